// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// result writes one output file; readers see the old one or the whole new one.
func (b *builder) result(name string, data []byte) error {
	return b.streamResult(name, writing(data))
}

// streamResult is [builder.result] for results that are too large for memory.
func (b *builder) streamResult(name string, write func(io.Writer) error) error {
	path, sum := filepath.Join(b.Output, name), sha256.New()
	err := writeAtomic(path, func(out io.Writer) error { return write(io.MultiWriter(out, sum)) })
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	b.summary.Files = append(b.summary.Files, File{Name: name, Size: info.Size(), SHA256: hex.EncodeToString(sum.Sum(nil))})
	b.Log("wrote %s, %.1f MB", path, float64(info.Size())/1e6)
	return nil
}

// writeManifest records what the image was made of, beside it.
func (b *builder) writeManifest(context.Context) error {
	data, err := json.MarshalIndent(b.summary, "", "  ")
	if err != nil {
		return err
	}
	return writeAtomic(filepath.Join(b.Output, "manifest.json"), writing(append(data, '\n')))
}

func writing(data []byte) func(io.Writer) error {
	return func(out io.Writer) error {
		_, err := out.Write(data)
		return err
	}
}

func writeAtomic(path string, write func(io.Writer) error) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // nothing is there once it has its name
	err = errors.Join(write(file), file.Chmod(0o644), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
