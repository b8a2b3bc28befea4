// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"fmt"
	"path"
	"strings"
)

// ImageImporter makes an image of the cloud, of which instances can be made.
// People need it who set up a cloud, so that only the provider's own program
// has it (package serve); it is none of the powers of [Powers].
type ImageImporter interface {
	// ImportImage returns when instances can be made of the image: its id, as
	// [InstanceTypeSpec] takes it in Image. progress, unless nil, is called
	// with what goes on, never twice at a time and not after the return. When
	// the import fails or ctx ends, what it made MUST be removed, or the error
	// names what is left.
	//
	// Errors: ErrAlreadyExists (there is an image of that name),
	// ErrInvalidArgument (a location, format or name the cloud does not take;
	// a file that is no image), ErrNotFound (no such file or object), and those
	// of CreateInstance.
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

// ImageFormat answers the format that a location's ending tells, or
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

// ImageProgress is how far an import is.
type ImageProgress struct {
	// Step says what goes on, for people: uploading, waiting for the cloud.
	Step string
	// Done and Total are bytes, or percent where the cloud tells only that;
	// a Total of 0 is unknown.
	Done, Total int64
}
