// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/imagedata"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"

	"github.com/outrigger/outrigger/provider"
)

var _ provider.ImageImporter = (*Provider)(nil)

// diskFormats and architectures are what Glance and Nova call ours.
var (
	diskFormats   = map[string]string{provider.FormatQcow2: "qcow2", provider.FormatRaw: "raw", provider.FormatVHD: "vhd"}
	architectures = map[string]string{"amd64": "x86_64", "arm64": "aarch64", "s390x": "s390x"}
)

// ImportImage implements provider.ImageImporter: it uploads a file to Glance.
func (p *Provider) ImportImage(ctx context.Context, source provider.ImageSource, progress func(provider.ImageProgress)) (string, error) {
	if err := importable(source); err != nil {
		return "", fmt.Errorf("import image: %w", err)
	}
	c, err := p.conn.open(ctx)
	if err == nil {
		err = nobodyIsCalled(ctx, c, source.Name)
	}
	if err != nil {
		return "", classify(fmt.Errorf("import image %s: %w", source.Name, err))
	}
	// The id is ours, so that what was made can be removed even when the reply
	// that names it was lost.
	id := uuid.NewString()
	if err := p.fill(ctx, c, id, source, progress); err != nil {
		err = classify(err)
		if left := removeImage(ctx, c, id); left != nil {
			err = fmt.Errorf("%w; %v", err, left)
		}
		return "", fmt.Errorf("import image %s: %w", source.Name, err)
	}
	return id, nil
}

func importable(source provider.ImageSource) error {
	switch {
	case diskFormats[source.Format] == "":
		return fmt.Errorf("%w: format %q: Glance gets qcow2, raw or vhd", provider.ErrInvalidArgument, source.Format)
	case !filepath.IsAbs(source.Location):
		return fmt.Errorf("%w: location %q: want a file's absolute path", provider.ErrInvalidArgument, source.Location)
	case source.Name == "" || len([]rune(source.Name)) > maxImageName:
		return fmt.Errorf("%w: name %q: want 1 to %d characters", provider.ErrInvalidArgument, source.Name, maxImageName)
	case architectures[source.Arch] == "":
		return fmt.Errorf("%w: architecture %q is none of amd64, arm64, s390x", provider.ErrInvalidArgument, source.Arch)
	}
	return source.CheckFile()
}

const maxImageName = 255

// nobodyIsCalled refuses a name that an image of the project has: Glance would
// take it again.
func nobodyIsCalled(ctx context.Context, c *clients, name string) error {
	pages, err := allPages(ctx, images.List(c.image, images.ListOpts{Name: name, Owner: c.project}))
	if err != nil {
		return err
	}
	list, err := images.ExtractImages(pages)
	if err == nil && len(list) > 0 {
		err = fmt.Errorf("%w: image %s has this name", provider.ErrAlreadyExists, list[0].ID)
	}
	return err
}

func (p *Provider) fill(ctx context.Context, c *clients, id string, source provider.ImageSource, progress func(provider.ImageProgress)) error {
	file, err := os.Open(source.Location)
	if err != nil {
		return fmt.Errorf("%w: %w", provider.ErrInvalidArgument, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("%w: %w", provider.ErrInvalidArgument, err)
	}
	private := images.ImageVisibilityPrivate
	if err := images.Create(ctx, c.image, images.CreateOpts{
		ID: id, Name: source.Name, Visibility: &private, ContainerFormat: "bare", DiskFormat: diskFormats[source.Format],
		Properties: properties(source.Arch),
	}).Err; err != nil {
		return err
	}
	from := &counted{from: file, total: info.Size(), tell: progress}
	if err := imagedata.Upload(ctx, c.image, id, from).ExtractErr(); err != nil && !uploaded(ctx, c, id) {
		return err
	}
	return p.awaitImage(ctx, c, id, progress)
}

// properties make Nova boot the image as it wants it: by UEFI.
func properties(arch string) map[string]string {
	made := map[string]string{"architecture": architectures[arch], "os_type": "linux"}
	if arch != "s390x" {
		made["hw_firmware_type"] = "uefi"
	}
	if arch == "amd64" {
		made["hw_machine_type"] = "q35"
	}
	return made
}

// uploaded reports whether Glance has taken an upload whose reply was lost.
func uploaded(ctx context.Context, c *clients, id string) bool {
	image, err := images.Get(ctx, c.image, id).Extract()
	return err == nil && (image.Status == images.ImageStatusActive || image.Status == images.ImageStatusSaving)
}

func (p *Provider) awaitImage(ctx context.Context, c *clients, id string, progress func(provider.ImageProgress)) error {
	return p.pace.Until(ctx, func() (bool, error) {
		image, err := images.Get(ctx, c.image, id).Extract()
		if err != nil {
			return false, err
		}
		switch image.Status {
		case images.ImageStatusActive:
			return true, nil
		case images.ImageStatusQueued, images.ImageStatusKilled, images.ImageStatusDeleted, images.ImageStatusPendingDelete, images.ImageStatusDeactivated:
			return false, fmt.Errorf("%w: Glance did not keep what was uploaded: image %s is %s", provider.ErrUnknown, id, image.Status)
		}
		if progress != nil {
			progress(provider.ImageProgress{Step: "waiting for the cloud"})
		}
		return false, nil
	})
}

// imageUndo is how long the removal of what a failed import left may take. The
// caller's context may have ended already.
const imageUndo = 30 * time.Second

func removeImage(ctx context.Context, c *clients, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), imageUndo)
	defer cancel()
	err := images.Delete(ctx, c.image, id).ExtractErr()
	if err == nil || status(err, http.StatusNotFound) {
		return nil
	}
	return classify(fmt.Errorf("image %s is left and must be deleted: %w", id, err))
}

// counted counts how much of a file has been read.
type counted struct {
	from        io.ReadSeeker
	done, total int64
	tell        func(provider.ImageProgress)
}

func (c *counted) Read(into []byte) (int, error) {
	n, err := c.from.Read(into)
	c.done += int64(n)
	if c.tell != nil && n > 0 {
		c.tell(provider.ImageProgress{Step: "uploading", Done: c.done, Total: c.total})
	}
	return n, err
}

// Seek implements io.Seeker, for an upload that begins again with a new token.
func (c *counted) Seek(offset int64, whence int) (int64, error) {
	at, err := c.from.Seek(offset, whence)
	c.done = at
	return at, err
}
