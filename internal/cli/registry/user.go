// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// User is a user of an image, with its numeric ids.
type User struct {
	UID, GID   uint32
	Additional []uint32
	// Home is from the image's passwd; empty when unknown.
	Home string
}

// maxAccountFile limits how many bytes of /etc/passwd and /etc/group are read.
const maxAccountFile = 4 << 20

// User resolves USER[:GROUP], by name or number, with the image's own
// /etc/passwd and /etc/group; empty means what the image says. A number needs
// no entry. Layers are read only when a name must be looked up or when the
// user may have further groups.
func (i *Image) User(text string) (User, error) {
	if text == "" {
		text = i.Config.User
	}
	if text == "" || text == "0" || text == "root" || text == "0:0" || text == "root:root" {
		return User{Home: "/root"}, nil
	}
	files, err := i.readFiles("etc/passwd", "etc/group")
	if err != nil {
		return User{}, fmt.Errorf("user %q: reading the image: %w", text, err)
	}
	u, err := lookup(text, string(files["etc/passwd"]), string(files["etc/group"]))
	if err != nil {
		return User{}, fmt.Errorf("user %q: %w", text, err)
	}
	return u, nil
}

func lookup(text, passwd, group string) (User, error) {
	userPart, groupPart, hasGroup := strings.Cut(text, ":")
	if userPart == "" || hasGroup && groupPart == "" {
		return User{}, errors.New("want USER or USER:GROUP, by name or number")
	}
	var u User
	account, contents := findAccount(passwd, userPart)
	if contents {
		uid, err1 := number(account[2])
		gid, err2 := number(account[3])
		if err := errors.Join(err1, err2); err != nil {
			return User{}, fmt.Errorf("the image's /etc/passwd: %w", err)
		}
		u = User{UID: uid, GID: gid, Home: account[5], Additional: groupsOf(group, account[0])}
	} else {
		uid, err := number(userPart)
		if err != nil {
			return User{}, errors.New("no such user in the image's /etc/passwd")
		}
		u.UID = uid
	}
	if !hasGroup {
		return u, nil
	}
	gid, err := groupID(group, groupPart)
	u.GID, u.Additional = gid, nil
	return u, err
}

// findAccount returns the fields of a line of passwd(5). It looks for the name first,
// then for the number.
func findAccount(passwd, want string) ([]string, bool) {
	for _, field := range []int{0, 2} {
		for line := range strings.Lines(passwd) {
			f := strings.Split(strings.TrimSpace(line), ":")
			if len(f) >= 6 && f[field] == want {
				return f, true
			}
		}
	}
	return nil, false
}

func groupsOf(group, user string) []uint32 {
	var gids []uint32
	for line := range strings.Lines(group) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) < 4 {
			continue
		}
		for member := range strings.SplitSeq(f[3], ",") {
			if gid, err := number(f[2]); err == nil && member == user {
				gids = append(gids, gid)
			}
		}
	}
	return gids
}

func groupID(group, want string) (uint32, error) {
	for line := range strings.Lines(group) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) >= 3 && f[0] == want {
			return number(f[2])
		}
	}
	gid, err := number(want)
	if err != nil {
		return 0, fmt.Errorf("no group %q in the image's /etc/group", want)
	}
	return gid, nil
}

func number(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	return uint32(n), err
}

// readFiles reads regular files of the image by their paths without leading
// slash. The topmost layer that has a file, or a whiteout of it, decides.
func (i *Image) readFiles(names ...string) (map[string][]byte, error) {
	layers, err := i.image.Layers()
	if err != nil {
		return nil, err
	}
	missing := map[string]bool{}
	for _, n := range names {
		missing[n] = true
	}
	contents := map[string][]byte{}
	for n := len(layers) - 1; n >= 0 && len(missing) > 0; n-- {
		if err := readLayer(layers[n], missing, contents); err != nil {
			return nil, err
		}
	}
	return contents, nil
}

func readLayer(layer v1.Layer, missing map[string]bool, contents map[string][]byte) error {
	rc, err := layer.Uncompressed()
	if err != nil {
		return err
	}
	defer rc.Close()
	decided := map[string]bool{}
	tr := tar.NewReader(bufio.NewReader(rc))
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := readEntry(tr, h, missing, decided, contents); err != nil {
			return err
		}
	}
	for n := range decided {
		delete(missing, n)
	}
	return nil
}

func readEntry(r io.Reader, h *tar.Header, missing, decided map[string]bool, contents map[string][]byte) error {
	file := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
	dir, base := path.Split(file)
	for want := range missing {
		// image-spec, layer.md: .wh..wh..opq hides the folder's content below,
		// .wh.NAME hides NAME.
		whiteout := base == ".wh..wh..opq" && strings.HasPrefix(want, dir) ||
			strings.HasPrefix(base, ".wh.") && (dir+base[4:] == want || strings.HasPrefix(want, dir+base[4:]+"/"))
		if whiteout {
			decided[want] = true
		}
	}
	if !missing[file] {
		return nil
	}
	if h.Typeflag != tar.TypeReg { // it hides the file of a layer below
		decided[file] = true
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(r, maxAccountFile))
	contents[file], decided[file] = data, true
	return err
}
