// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// result writes one output file; readers see the old one or the whole new one.
func (b *builder) result(name string, data []byte) error {
	if err := writeAtomic(filepath.Join(b.Output, name), data); err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	b.addResult(name, int64(len(data)), hex.EncodeToString(sum[:]))
	return nil
}

// resultFile moves a finished file, which must be in b.Output, to its name.
func (b *builder) resultFile(name, tmp string) error {
	sum, err := fileSHA256(tmp)
	if err != nil {
		return err
	}
	info, err := os.Stat(tmp)
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, filepath.Join(b.Output, name)); err != nil {
		return err
	}
	b.addResult(name, info.Size(), sum)
	return nil
}

func (b *builder) addResult(name string, size int64, sum string) {
	b.summary.Files = append(b.summary.Files, File{Name: name, Size: size, SHA256: sum})
	b.Log("wrote %s, %.1f MB", filepath.Join(b.Output, name), float64(size)/1e6)
}

// writeManifest records what the image was made of, beside it.
func (b *builder) writeManifest(context.Context) error {
	data, err := json.MarshalIndent(b.summary, "", "  ")
	if err != nil {
		return err
	}
	return writeAtomic(filepath.Join(b.Output, "manifest.json"), append(data, '\n'))
}

func writeAtomic(name string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	_, err = f.Write(data)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Chmod(f.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
