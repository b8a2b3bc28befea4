// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/outrigger/outrigger/internal/accounts"
)

// User resolves USER[:GROUP], by name or number, with the image's own
// /etc/passwd and /etc/group; empty means what the image says. A number needs
// no entry. Layers are read only when a name must be looked up or when the
// user may have further groups.
func (i *Image) User(text string) (accounts.User, error) {
	if text == "" {
		text = i.Config.User
	}
	if text == "" || text == "0" || text == "root" || text == "0:0" || text == "root:root" {
		return accounts.User{Home: "/root"}, nil
	}
	user, group, hasGroup := strings.Cut(text, ":")
	if user == "" || hasGroup && group == "" {
		return accounts.User{}, fmt.Errorf("user %q: want USER or USER:GROUP, by name or number", text)
	}
	files, err := i.readFiles("etc/passwd", "etc/group")
	if err != nil {
		return accounts.User{}, fmt.Errorf("user %q: reading the image: %w", text, err)
	}
	u, err := accounts.FindUser(string(files["etc/passwd"]), string(files["etc/group"]), user)
	if err == nil && hasGroup {
		u.Additional = nil
		u.GID, err = accounts.FindGroup(string(files["etc/group"]), group)
	}
	return u, err
}

// readFiles reads regular files of the image by their paths without leading
// slash. The topmost layer that has a file, or a whiteout of it, decides.
func (i *Image) readFiles(names ...string) (map[string][]byte, error) {
	root := mutate.Extract(i.image)
	defer root.Close()
	contents := map[string][]byte{}
	for files := tar.NewReader(root); len(contents) < len(names); {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return contents, nil
		}
		if err != nil {
			return nil, err
		}
		file := strings.TrimPrefix(h.Name, "/")
		if !slices.Contains(names, file) {
			continue
		}
		// A folder or link of that name is empty, and hides the file of a layer below.
		if contents[file], err = io.ReadAll(io.LimitReader(files, accounts.MaxFile)); err != nil {
			return nil, err
		}
	}
	return contents, nil
}
