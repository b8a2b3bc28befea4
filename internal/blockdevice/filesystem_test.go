// SPDX-License-Identifier: Apache-2.0

package blockdevice

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/outrigger/outrigger/internal/luks"
)

// encryptedDisk stands for a disk that begins with LUKS.
const encryptedDisk = 1 << 31

// TestMarkInAFile: what somebody writes into a file system says nothing about the disk.
func TestMarkInAFile(t *testing.T) {
	const size = 16 << 20
	for name, c := range map[string]struct {
		blocks uint32
		mark   bool
		want   content
	}{
		"encrypting was cut short after its header": {encryptedDisk, true, isEmpty},
		"encrypted": {encryptedDisk, false, hasLUKS},
		"formatting was cut short after its superblock": {size/markSize - 1, true, isEmpty},
		"grown over the place of the mark":              {size / markSize, true, hasExt4},
		"formatted":                                     {size/markSize - 1, false, hasExt4},
		"not even begun":                                {0, true, isEmpty},
		"nothing":                                       {0, false, isEmpty},
	} {
		disk := make([]byte, size)
		if c.blocks == encryptedDisk {
			copy(disk, "LUKS\xba\xbe\x00\x02")
		} else if c.blocks > 0 {
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
	if err := errors.Join(err, file.Truncate(size), writeMark(file, mark)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{1, 0} { // the second time it is checked only
		formatted := 0
		if _, err := Prepare(t.Context(), path, nil, func(string, ...any) { formatted++ }); err != nil || formatted != want {
			t.Errorf("formatted %d times, want %d; %v", formatted, want, err)
		}
	}
	if kind, err := contentOf(file, size); err != nil || kind != hasExt4 {
		t.Errorf("%v, %v", kind, err)
	}
}

// TestOtherEncryption: a disk is used neither without its encryption nor with one that it does not have, and nothing is written.
func TestOtherEncryption(t *testing.T) {
	log := func(text string, args ...any) { t.Error(text, args) }
	disk := func(prepare func(*os.File) error) string {
		file, err := os.Create(filepath.Join(t.TempDir(), "disk"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if err := errors.Join(file.Truncate(64<<20), prepare(file)); err != nil {
			t.Fatal(err)
		}
		return file.Name()
	}
	locked := disk(func(f *os.File) error { return luks.Format(f, []byte("key")) })
	plain := disk(func(f *os.File) error { _, err := format(t.Context(), f, nil); return err })
	small := disk(func(f *os.File) error { return f.Truncate(20 << 20) })
	for name, c := range map[string]struct {
		disk string
		e    *Encryption
		want error
	}{
		"without a key":  {locked, nil, ErrEncrypted},
		"another key":    {locked, NewEncryption("v", []byte("other")), ErrKey},
		"not encrypted":  {plain, NewEncryption("v", []byte("key")), ErrPlain},
		"no room for it": {small, NewEncryption("v", []byte("key")), nil},
	} {
		before, err := os.ReadFile(c.disk)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Prepare(t.Context(), c.disk, c.e, log); err == nil || c.want != nil && (!errors.Is(err, c.want) || !Unusable(err)) {
			t.Errorf("%s: %v", name, err)
		}
		if after, err := os.ReadFile(c.disk); err != nil || !bytes.Equal(before, after) {
			t.Errorf("%s: the disk is another: %v", name, err)
		}
	}
}
