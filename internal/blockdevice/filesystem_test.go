// SPDX-License-Identifier: Apache-2.0

package blockdevice

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestMarkInAFile: what somebody writes into a file system says nothing about the disk.
func TestMarkInAFile(t *testing.T) {
	const size = 16 << 20
	for name, c := range map[string]struct {
		blocks uint32
		mark   bool
		want   content
	}{
		"formatting was cut short after its superblock": {size/markSize - 1, true, isEmpty},
		"grown over the place of the mark":              {size / markSize, true, hasExt4},
		"formatted":                                     {size/markSize - 1, false, hasExt4},
		"not even begun":                                {0, true, isEmpty},
		"nothing":                                       {0, false, isEmpty},
	} {
		disk := make([]byte, size)
		if c.blocks > 0 {
			super := disk[superOffset:]
			binary.LittleEndian.PutUint16(super[superMagic:], 0xef53)
			binary.LittleEndian.PutUint32(super[superLog:], 2)
			binary.LittleEndian.PutUint32(super[superSize:], c.blocks)
		}
		if c.mark {
			copy(disk[size-markSize:], formatting)
		}
		if got, err := contentOf(bytes.NewReader(disk), size); err != nil || got != c.want {
			t.Errorf("%s: %v, %v; want %v", name, got, err, c.want)
		}
	}
}

// TestFormattingIsCutShort: the disk of a VM or of a program that was killed meanwhile is formatted again.
func TestFormattingIsCutShort(t *testing.T) {
	const size = 64 << 20
	path := filepath.Join(t.TempDir(), "disk")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	mark := make([]byte, markSize)
	copy(mark, formatting)
	_, err = file.WriteAt([]byte("half a file system"), 1<<20)
	if err := errors.Join(err, file.Truncate(size), writeMark(file, mark, size)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{1, 0} { // the second time it is checked only
		formatted := 0
		if err := Prepare(t.Context(), path, func(string, ...any) { formatted++ }); err != nil || formatted != want {
			t.Errorf("formatted %d times, want %d; %v", formatted, want, err)
		}
	}
	if kind, err := contentOf(file, size); err != nil || kind != hasExt4 {
		t.Errorf("%v, %v", kind, err)
	}
}
