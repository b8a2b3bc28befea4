// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/outrigger/outrigger/internal/accounts"
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
		user, err := accounts.FindUser(passwd, groups, uid)
		if err != nil {
			return err
		}
		to.UID, to.GID = user.UID, user.GID
		to.AdditionalGids = append(to.AdditionalGids, user.Additional...)
	}
	if gid := name.GetGid(); gid != "" {
		if to.GID, err = accounts.FindGroup(groups, gid); err != nil {
			return err
		}
	}
	for _, group := range name.GetAdditionalGids() {
		gid, err := accounts.FindGroup(groups, group)
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

// maxGroups is NGROUPS_MAX (linux/limits.h).
const maxGroups = 65536

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
	case info.Size() > accounts.MaxFile:
		return "", fmt.Errorf("the image's /%s has %d bytes; users are looked up in at most %d", path, info.Size(), accounts.MaxFile)
	}
	text, err := io.ReadAll(io.LimitReader(file, accounts.MaxFile))
	return string(text), err
}
