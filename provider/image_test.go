// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckFile(t *testing.T) {
	sector := strings.Repeat("\x00", sectorSize)
	vhd := sector + "conectix" + sector[8:]
	tar := sector[:257] + "ustar" + sector
	for name, test := range map[string]struct {
		content, format string
		want            error
	}{
		"raw": {sector, FormatRaw, nil}, "qcow2": {"QFI\xfb" + sector, FormatQcow2, nil}, "vhd": {vhd, FormatVHD, nil},
		"gcp": {"\x1f\x8b", FormatGCP, nil}, "ova": {tar, FormatOVA, nil}, "a provider's own": {"x", "squashfs", nil},
		"qcow2 as raw": {"QFI\xfb" + sector, FormatRaw, ErrInvalidArgument}, "raw as vhd": {sector, FormatVHD, ErrInvalidArgument},
		"odd size": {sector + "x", FormatRaw, ErrInvalidArgument}, "empty": {"", FormatRaw, ErrInvalidArgument},
	} {
		path := filepath.Join(t.TempDir(), "image")
		if err := os.WriteFile(path, []byte(test.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := (ImageSource{Location: path, Format: test.format}).CheckFile(); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
	if err := (ImageSource{Location: t.TempDir(), Format: FormatRaw}).CheckFile(); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("a folder: %v", err)
	}
	if err := (ImageSource{Location: "/nowhere", Format: FormatRaw}).CheckFile(); !errors.Is(err, ErrNotFound) {
		t.Errorf("nothing: %v", err)
	}
	if err := (ImageSource{Location: "oss://bucket/object", Format: FormatRaw}).CheckFile(); err != nil {
		t.Errorf("a URL: %v", err)
	}
}
