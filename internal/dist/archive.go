// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/outrigger/outrigger/internal/filetree"
)

// writeFile makes a file of what write writes into it.
func writeFile(name string, write func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// writeBytes makes a file of data.
func writeBytes(name string, data []byte) error {
	return writeFile(name, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// writeTarGz makes a .tar.gz of a tree.
func writeTarGz(t filetree.Tree, name string, date time.Time) error {
	return writeFile(name, func(w io.Writer) error { return zip(t, w, "", date) })
}

func zip(t filetree.Tree, w io.Writer, prefix string, date time.Time) error {
	// Level 9 takes six times as long for one per cent less.
	zip, err := gzip.NewWriterLevel(w, 7)
	if err != nil {
		return err
	}
	zip.ModTime = time.Unix(0, 0) // none: it would differ
	return errors.Join(t.WriteTar(zip, prefix, date), zip.Close())
}
