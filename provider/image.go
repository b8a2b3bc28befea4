// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
)

// ImageImporter makes an image of the cloud, of which instances can be made.
// People need it who set up a cloud, so that only the provider's own program
// has it (package serve); it is none of the capabilities of [Capabilities].
type ImageImporter interface {
	// ImportImage returns when instances can be made of the image: its id, as
	// [InstanceTypeSpec] takes it in Image. progress, unless nil, is called
	// with what goes on, never twice at a time and not after the return. When
	// the import fails or ctx ends, what it made MUST be removed, or the error
	// names what is left.
	//
	// Errors: ErrAlreadyExists (there is an image of that name),
	// ErrInvalidArgument (a location, format or name the cloud does not take; a
	// file that is not an image), ErrNotFound (no such file or object), and
	// those of CreateInstance.
	ImportImage(ctx context.Context, source ImageSource, progress func(ImageProgress)) (imageID string, err error)
}

// ImageSource is an image that is to be imported.
type ImageSource struct {
	// Name is what the cloud shall call the image.
	Name string
	// Location is the absolute path of a file, or a URL in an object store of
	// the cloud, such as oss://bucket/object; which of them a provider takes is
	// on its page.
	Location string
	// Format is one of the Format constants; [ImageFormat] tells it from a
	// file's name.
	Format string
	// Arch is a GOARCH name.
	Arch string
}

// Formats of images: the names that package cmd/podvm-image has for them.
const (
	FormatQcow2 = "qcow2"
	FormatRaw   = "raw"
	FormatVHD   = "vhd"
	FormatGCP   = "gcp" // a tar.gz of disk.raw
	FormatOVA   = "ova"
)

// Check reports whether the cloud's name, the format and the architecture are such
// that a provider may be asked.
func (s ImageSource) Check() error {
	formats := []string{FormatQcow2, FormatRaw, FormatVHD, FormatGCP, FormatOVA}
	switch {
	case s.Location == "":
		return fmt.Errorf("%w: the location is empty: give a file or a URL", ErrInvalidArgument)
	case s.Name == "":
		return fmt.Errorf("%w: the name is empty: say what the cloud shall call the image", ErrInvalidArgument)
	case !slices.Contains(formats, s.Format):
		return fmt.Errorf("%w: format %q is none of %s", ErrInvalidArgument, s.Format, strings.Join(formats, ", "))
	case !slices.Contains(imageArchs, s.Arch):
		return fmt.Errorf("%w: architecture %q is none of %s", ErrInvalidArgument, s.Arch, strings.Join(imageArchs, ", "))
	}
	return nil
}

var imageArchs = []string{"amd64", "arm64", "s390x"}

// ImageFormat returns the format that a location's ending tells, or
// [ErrInvalidArgument].
func ImageFormat(location string) (string, error) {
	name := path.Base(location)
	for ending, format := range map[string]string{
		".qcow2": FormatQcow2, ".raw": FormatRaw, ".img": FormatRaw, ".vhd": FormatVHD, ".tar.gz": FormatGCP, ".ova": FormatOVA,
	} {
		if strings.HasSuffix(name, ending) {
			return format, nil
		}
	}
	return "", fmt.Errorf("%w: the name %q does not tell the format: it ends in none of .qcow2, .raw, .img, .vhd, .tar.gz, .ova", ErrInvalidArgument, name)
}

// IsURL reports whether the location is in an object store.
func (s ImageSource) IsURL() bool { return strings.Contains(s.Location, "://") }

// sectorSize is what the size of a disk is a multiple of.
const sectorSize = 512

// marks are what files of a format have, at an offset from their beginning or,
// if it is negative, from their end.
var marks = map[string]struct {
	offset int64
	text   string
}{
	FormatQcow2: {0, "QFI\xfb"}, FormatVHD: {-sectorSize, "conectix"}, FormatGCP: {0, "\x1f\x8b"}, FormatOVA: {257, "ustar"},
}

// CheckFile looks whether the location, unless it is a URL, is a file of the
// format: [ErrNotFound] or [ErrInvalidArgument] is cheaper now than after an
// upload.
func (s ImageSource) CheckFile() error {
	if s.IsURL() {
		return nil
	}
	file, err := os.Open(s.Location)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: there is no file %s", ErrNotFound, s.Location)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidArgument, err)
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrInvalidArgument, err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w: %s is not a regular file", ErrInvalidArgument, s.Location)
	case info.Size() == 0:
		return fmt.Errorf("%w: %s is empty", ErrInvalidArgument, s.Location)
	}
	return s.checkContent(file, info.Size())
}

func (s ImageSource) checkContent(file io.ReaderAt, size int64) error {
	is := FormatRaw
	for format, mark := range marks {
		at, data := mark.offset, make([]byte, len(mark.text))
		if at < 0 {
			at += size
		}
		if at < 0 {
			continue
		}
		if n, _ := file.ReadAt(data, at); string(data[:n]) == mark.text {
			is = format
		}
	}
	_, marked := marks[s.Format]
	switch {
	case !marked && s.Format != FormatRaw:
		return nil // a provider's own
	case is != s.Format && is == FormatRaw:
		return fmt.Errorf("%w: %s is not a %s file: it lacks the mark of the format", ErrInvalidArgument, s.Location, s.Format)
	case is != s.Format:
		return fmt.Errorf("%w: %s is a %s file, not %s", ErrInvalidArgument, s.Location, is, s.Format)
	case is == FormatRaw && size%sectorSize != 0:
		return fmt.Errorf("%w: %s is not a raw disk: its %d bytes are not a multiple of %d", ErrInvalidArgument, s.Location, size, sectorSize)
	}
	return nil
}

// ImageProgress is how far an import is.
type ImageProgress struct {
	// Step says what goes on, for people: uploading, waiting for the cloud.
	Step string
	// Done and Total are bytes, or percent where the cloud tells only that;
	// a Total of 0 is unknown.
	Done, Total int64
}
