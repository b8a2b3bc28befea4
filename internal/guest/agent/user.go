// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/outrigger/outrigger/internal/guest/pull/beneath"
	"github.com/outrigger/outrigger/internal/protocol/agent"
	"golang.org/x/sys/unix"
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
	passwd, err := readAccounts(root, "etc/passwd")
	if err != nil {
		return err
	}
	groups, err := readAccounts(root, "etc/group")
	if err != nil {
		return err
	}
	return lookUp(to, passwd, groups, name)
}

// lookUp finds names in the texts of the image's /etc/passwd and /etc/group.
func lookUp(to *oci.User, passwd, groups string, name *agent.StringUser) (err error) {
	if uid := name.GetUid(); uid != "" {
		if err := setUser(to, passwd, groups, uid); err != nil {
			return err
		}
	}
	if gid := name.GetGid(); gid != "" {
		if to.GID, err = lookUpGroup(groups, gid); err != nil {
			return err
		}
	}
	for _, group := range name.GetAdditionalGids() {
		gid, err := lookUpGroup(groups, group)
		if err != nil {
			return err
		}
		to.AdditionalGids = append(to.AdditionalGids, gid)
	}
	if len(to.AdditionalGids) > maxGroups {
		return fmt.Errorf("the user is in %d groups of the image's /etc/group; Linux has room for %d", len(to.AdditionalGids), maxGroups)
	}
	return nil
}

const (
	// maxAccounts is the size of the largest passwd or group file in bytes.
	maxAccounts = 4 << 20
	// maxGroups is NGROUPS_MAX (linux/limits.h).
	maxGroups = 65536
)

// readAccounts returns the text of a file of the image, "" without one. An image
// may have a pipe there, or a device that never ends.
func readAccounts(root *beneath.Dir, path string) (string, error) {
	fd, err := root.Open(path, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look up a user in the image: %w", err)
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("the image's /%s is not a file, but %s", path, info.Mode().Type())
	case info.Size() > maxAccounts:
		return "", fmt.Errorf("the image's /%s has %d bytes; users are looked up in at most %d", path, info.Size(), maxAccounts)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxAccounts))
	return string(text), err
}

// setUser sets uid, and gid and groups as the image's files have them.
func setUser(to *oci.User, passwd, groups, user string) error {
	number, numeric := parseID(user)
	// name:password:uid:gid:comment:home:shell
	entry := findEntry(passwd, 4, func(f []string) bool { return f[0] == user || numeric && f[2] == user })
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
	findEntry(groups, 4, func(f []string) bool {
		if gid, ok := parseID(f[2]); ok && slices.Contains(strings.Split(f[3], ","), entry[0]) {
			to.AdditionalGids = append(to.AdditionalGids, gid)
		}
		return false
	})
	return nil
}

func lookUpGroup(groups, group string) (uint32, error) {
	if gid, ok := parseID(group); ok {
		return gid, nil
	}
	entry := findEntry(groups, 3, func(f []string) bool { return f[0] == group })
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

// findEntry returns the first line with at least fields parts that matches, however
// long those before it are.
func findEntry(text string, fields int, matches func([]string) bool) []string {
	for line := range strings.SplitSeq(text, "\n") {
		parts := strings.Split(line, ":")
		if len(parts) >= fields && matches(parts) {
			return parts
		}
	}
	return nil
}
