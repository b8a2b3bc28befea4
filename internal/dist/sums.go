// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/outrigger/outrigger/internal/wholefile"
)

// The files that say what the others have to be.
const (
	sumsName      = "SHA256SUMS"
	signatureName = sumsName + ".sig"
	bundleName    = sumsName + ".sigstore.json"
)

// makeChecksums writes what sha256sum --check reads, and signs it.
func (b *builder) makeChecksums(context.Context) error {
	sums, err := b.checksums()
	if err != nil {
		return err
	}
	var list bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(&list, "%s  %s\n", sums[name], name)
	}
	if err := writeBytes(filepath.Join(b.fresh, sumsName), list.Bytes()); err != nil || b.key == nil {
		return err
	}
	detached, bundled, err := sign(b.key, list.Bytes())
	if err != nil {
		return err
	}
	if err := writeBytes(filepath.Join(b.fresh, signatureName), detached); err != nil {
		return err
	}
	return writeBytes(filepath.Join(b.fresh, bundleName), bundled)
}

// checksums are those of all files that are there now.
func (b *builder) checksums() (map[string]string, error) {
	sums := map[string]string{}
	err := filepath.WalkDir(b.fresh, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(b.fresh, file)
		if err == nil {
			sums[name], err = wholefile.SHA256(file)
		}
		return err
	})
	return sums, err
}

// summarize shows stages and files; the last line reports whether there is a
// signature.
func (b *builder) summarize() error {
	b.Log("")
	for _, line := range b.times {
		b.Log("%s", line)
	}
	b.Log("")
	err := filepath.WalkDir(b.Output, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			name := strings.TrimPrefix(file, filepath.Clean(b.Output)+"/")
			b.Log("%-70s %10s", name, size(info.Size()))
		}
		return err
	})
	if err != nil {
		return err
	}
	b.Log("")
	if b.key == nil {
		b.Log("%s is complete and not signed: give a key with DIST_KEY=FILE", b.Output)
		return nil
	}
	hint, err := keyHint(b.key)
	b.Log("%s is complete; %s is signed with the key whose SHA-256 is %s", b.Output, sumsName, hint)
	return err
}

func size(bytes int64) string {
	if bytes < 100_000 {
		return fmt.Sprintf("%.1f kB", float64(bytes)/1e3)
	}
	return fmt.Sprintf("%.1f MB", float64(bytes)/1e6)
}
