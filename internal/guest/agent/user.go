// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/outrigger/outrigger/internal/guest/pull/beneath"
	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// applyUser replaces the numeric user by one that is given by name, looked up
// in the image. Numbers need no entry there.
func applyUser(to *oci.User, rootfs string, name *agent.StringUser) error {
	if name.GetUid() == "" && name.GetGid() == "" {
		return nil
	}
	root, err := beneath.Open(rootfs, beneath.Chroot)
	if err != nil {
		return err
	}
	defer root.Close()
	if uid := name.GetUid(); uid != "" {
		if err := setUser(to, root, uid); err != nil {
			return err
		}
	}
	if gid := name.GetGid(); gid != "" {
		if to.GID, err = lookUpGroup(root, gid); err != nil {
			return err
		}
	}
	for _, group := range name.GetAdditionalGids() {
		gid, err := lookUpGroup(root, group)
		if err != nil {
			return err
		}
		to.AdditionalGids = append(to.AdditionalGids, gid)
	}
	return nil
}

// setUser sets uid, and gid and groups as the image's files have them.
func setUser(to *oci.User, root *beneath.Dir, user string) error {
	number, numeric := parseID(user)
	// name:password:uid:gid:comment:home:shell
	entry := findEntry(root, "etc/passwd", 4, func(f []string) bool { return f[0] == user || numeric && f[2] == user })
	switch {
	case entry != nil:
		uid, okUID := parseID(entry[2])
		gid, okGID := parseID(entry[3])
		if !okUID || !okGID {
			return fmt.Errorf("user %q has a broken entry in the image's /etc/passwd", user)
		}
		to.UID, to.GID = uid, gid
	case numeric:
		to.UID, to.GID = number, 0
		return nil
	default:
		return fmt.Errorf("user %q is not in the image's /etc/passwd", user)
	}
	// name:password:gid:members
	findEntry(root, "etc/group", 4, func(f []string) bool {
		if gid, ok := parseID(f[2]); ok && slices.Contains(strings.Split(f[3], ","), entry[0]) {
			to.AdditionalGids = append(to.AdditionalGids, gid)
		}
		return false
	})
	return nil
}

func lookUpGroup(root *beneath.Dir, group string) (uint32, error) {
	if gid, ok := parseID(group); ok {
		return gid, nil
	}
	entry := findEntry(root, "etc/group", 3, func(f []string) bool { return f[0] == group })
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

// findEntry answers the first line with at least fields parts that matches.
func findEntry(root *beneath.Dir, path string, fields int, matches func([]string) bool) []string {
	fd, err := root.Open(path, os.O_RDONLY, 0)
	if err != nil {
		return nil
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		parts := strings.Split(lines.Text(), ":")
		if len(parts) >= fields && matches(parts) {
			return parts
		}
	}
	return nil
}
