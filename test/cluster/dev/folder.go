// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"

	"github.com/outrigger/outrigger/test/stand"
)

// folder is what a developer uses of the cluster.
type folder struct {
	t     *stand.Session
	dir   string
	files []string
}

func (f *folder) path(name string) string {
	path := filepath.Join(f.dir, name)
	f.files = append(f.files, path)
	return path
}

func (f *folder) write(name string, mode os.FileMode, text string) {
	path := f.path(name)
	os.Remove(path) // a mode is only for a new file
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		f.t.Fatal(err)
	}
}

// remove leaves what others have put into the folder.
func (f *folder) remove() {
	for _, path := range f.files {
		os.Remove(path)
	}
	os.Remove(f.dir)
}
