// SPDX-License-Identifier: Apache-2.0

// Package accounts looks users and groups up in the texts of an image's
// /etc/passwd (passwd(5)) and /etc/group (group(5)).
package accounts

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MaxFile is the size of the largest passwd or group file in bytes.
const MaxFile = 4 << 20

// User is a user with its numeric ids.
type User struct {
	UID, GID uint32
	// Additional are the groups that have the user as a member.
	Additional []uint32
	// Home is the user's folder; empty when unknown.
	Home string
}

// FindUser finds a user by name or number. A number is never a name, also where an
// image has a user of that name, and needs no entry: without one its group is 0.
func FindUser(passwd, groups, user string) (User, error) {
	number, numeric := parseID(user)
	// name:password:uid:gid:comment:home:shell
	entry := find(passwd, 4, func(f []string) bool {
		if uid, ok := parseID(f[2]); numeric {
			return ok && uid == number
		}
		return f[0] == user
	})
	switch {
	case entry == nil && numeric:
		return User{UID: number}, nil
	case entry == nil:
		return User{}, fmt.Errorf("user %q is not in the image's /etc/passwd", user)
	}
	uid, okUID := parseID(entry[2])
	gid, okGID := parseID(entry[3])
	if !okUID || !okGID {
		return User{}, fmt.Errorf("user %q has a broken entry in the image's /etc/passwd", user)
	}
	u := User{UID: uid, GID: gid}
	if len(entry) > 5 {
		u.Home = entry[5]
	}
	// name:password:gid:members
	find(groups, 4, func(f []string) bool {
		if gid, ok := parseID(f[2]); ok && slices.Contains(strings.Split(f[3], ","), entry[0]) {
			u.Additional = append(u.Additional, gid)
		}
		return false
	})
	return u, nil
}

// FindGroup returns the number of a group, which is given by name or number.
func FindGroup(groups, group string) (uint32, error) {
	if gid, ok := parseID(group); ok {
		return gid, nil
	}
	entry := find(groups, 3, func(f []string) bool { return f[0] == group })
	if entry != nil {
		if gid, ok := parseID(entry[2]); ok {
			return gid, nil
		}
	}
	return 0, fmt.Errorf("group %q is not in the image's /etc/group", group)
}

func parseID(s string) (uint32, bool) {
	id, err := strconv.ParseUint(s, 10, 31)
	return uint32(id), err == nil
}

// find returns the first line with at least fields parts that matches, however
// long those before it are.
func find(text string, fields int, matches func([]string) bool) []string {
	for line := range strings.SplitSeq(text, "\n") {
		parts := strings.Split(strings.TrimSpace(line), ":")
		if len(parts) >= fields && matches(parts) {
			return parts
		}
	}
	return nil
}
