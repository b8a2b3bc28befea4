// SPDX-License-Identifier: Apache-2.0

// Package cloudinit writes and reads the user-data of a pod VM: a
// #cloud-config document that holds nothing but write_files, and the initdata
// that travels in it.
//
// The document is YAML that cloud-init accepts (its module "write_files") and
// that guests which know only path and content read as well: every text travels
// as plain text, and only bytes that are not UTF-8 travel as base64.
package cloudinit

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxSize is the largest document in bytes that [Parse] reads and
// [CloudConfig.Generate] writes. Clouds allow less: 16 KiB to 256 KiB.
const MaxSize = 1 << 20

// Encodings of a file's content in the document, as cloud-init names them.
const (
	// EncodingText carries the content as YAML text.
	EncodingText = "text/plain"
	// EncodingBase64 carries the content as standard base64 with padding.
	EncodingBase64 = "b64"
)

// CloudConfigGenerator makes the user-data of one instance.
type CloudConfigGenerator interface {
	Generate() (string, error)
}

// Raw is user-data that is ready as it is.
type Raw string

// Generate returns the text unchanged.
func (r Raw) Generate() (string, error) { return string(r), nil }

// CloudConfig is a #cloud-config document with only write_files.
type CloudConfig struct {
	WriteFiles []WriteFile
}

// WriteFile is one file that the guest writes.
type WriteFile struct {
	// Path is absolute and clean, in the sense of [path.Clean].
	Path string
	// Content is what the file will hold, byte by byte. It is never encoded,
	// whatever Encoding says.
	Content string
	// Owner is "user" or "user:group"; empty leaves it to the guest.
	Owner string
	// Permissions is octal, such as "0600"; empty leaves it to the guest.
	Permissions string
	// Encoding says how the document carries Content. Empty means text where
	// Content is valid UTF-8 and base64 where it is not. [Parse] tells what it
	// found.
	Encoding string
	// Append adds to a file that exists instead of replacing it.
	Append bool
}

// Generate writes the document. It fails on a path that is not absolute and
// clean, on malformed owner, permissions or encoding, and beyond [MaxSize].
func (c CloudConfig) Generate() (string, error) {
	var doc strings.Builder
	doc.WriteString(header + "\nwrite_files:")
	if len(c.WriteFiles) == 0 {
		doc.WriteString(" []")
	}
	doc.WriteByte('\n')
	for i, file := range c.WriteFiles {
		if err := file.check(); err != nil {
			return "", fmt.Errorf("write_files[%d]: %w", i, err)
		}
		file.write(&doc)
	}
	if doc.Len() > MaxSize {
		return "", fmt.Errorf("the user-data has %d bytes, limit %d", doc.Len(), MaxSize)
	}
	return doc.String(), nil
}

const header = "#cloud-config"

var (
	ownerPattern       = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?$`)
	permissionsPattern = regexp.MustCompile(`^0?[0-7]{3,4}$`)
)

func (f WriteFile) check() error {
	switch {
	case f.Path == "":
		return errors.New("path is missing")
	case !path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path || f.Path == "/":
		return fmt.Errorf("path %q is not an absolute, clean path of a file", f.Path)
	case !utf8.ValidString(f.Path) || strings.ContainsFunc(f.Path, unicode.IsControl):
		return fmt.Errorf("path %q holds characters that are not printable", f.Path)
	case f.Owner != "" && !ownerPattern.MatchString(f.Owner):
		return fmt.Errorf("owner %q of %s is not user or user:group", f.Owner, f.Path)
	case f.Permissions != "" && !permissionsPattern.MatchString(f.Permissions):
		return fmt.Errorf("permissions %q of %s are not octal, such as 0600", f.Permissions, f.Path)
	}
	return f.checkEncoding()
}

func (f WriteFile) checkEncoding() error {
	switch f.Encoding {
	case "", EncodingBase64, "base64":
		return nil
	case EncodingText:
		if !utf8.ValidString(f.Content) {
			return fmt.Errorf("content of %s is not UTF-8: use encoding %s", f.Path, EncodingBase64)
		}
		return nil
	}
	return fmt.Errorf("encoding %q of %s is neither %s nor %s", f.Encoding, f.Path, EncodingText, EncodingBase64)
}
