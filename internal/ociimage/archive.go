// SPDX-License-Identifier: Apache-2.0

package ociimage

import (
	"bytes"
	"os"
	"strings"
	"time"

	"github.com/outrigger/outrigger/internal/filetree"
)

// epoch dates everything, so that equal files give equal images.
var epoch = time.Unix(0, 0).UTC()

// archive returns the root file system as a tar: the files, folders that programs
// expect to be there, and a link since runtimes and shims hand over both paths.
func (f Files) archive(links map[string]string) ([]byte, error) {
	t := filetree.Tree{"tmp": {Folder: true, Mode: 0o1777}, "run": {Folder: true}}
	t.Link("var/run", "/run")
	for inside, target := range links {
		t.Link(strings.TrimPrefix(inside, "/"), target)
	}
	for inside, source := range f {
		info, err := os.Stat(source)
		if err != nil {
			return nil, err
		}
		// Modes of this machine depend on its umask.
		mode := int64(0o644)
		if info.Mode().Perm()&0o111 != 0 {
			mode = 0o755
		}
		t[strings.TrimPrefix(inside, "/")] = filetree.Entry{Source: source, Mode: mode}
	}
	var buffer bytes.Buffer
	err := t.WriteTar(&buffer, "", epoch)
	return buffer.Bytes(), err
}
