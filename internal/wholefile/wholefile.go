// SPDX-License-Identifier: Apache-2.0

// Package wholefile reads and writes files as a whole, and looks at folders that are
// written so.
package wholefile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace writes a file at once or not at all, also when the machine is switched off:
// who watches its folder sees what was there or all of data. Until it has its mode only
// this user can read it.
func Replace(path string, data []byte, mode fs.FileMode) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name()) // does nothing once it is renamed
	_, err = temp.Write(data)
	if err := errors.Join(err, temp.Chmod(mode), temp.Sync(), temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}

// Replaceable keeps a mistyped folder from being removed: it must not exist, be empty,
// or have a file by which it is known to be of a kind, such as "an OCI layout".
func Replaceable(dir, mark, kind string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, mark)); err != nil {
		return fmt.Errorf("%s is neither empty nor %s: name another folder", dir, kind)
	}
	return nil
}

// SHA256 returns the checksum of a file in hexadecimal, as sha256sum does.
func SHA256(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
