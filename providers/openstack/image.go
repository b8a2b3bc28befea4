// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/google/uuid"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/imagedata"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/parts"
)

// diskFormats and architectures are what Glance and Nova call ours.
var (
	diskFormats   = map[string]string{provider.FormatQcow2: "qcow2", provider.FormatRaw: "raw", provider.FormatVHD: "vhd"}
	architectures = map[string]string{"amd64": "x86_64", "arm64": "aarch64", "s390x": "s390x"}
)

// ImportImage implements provider.ImageImporter: it uploads a file to Glance.
func (p *Provider) ImportImage(ctx context.Context, source provider.ImageSource, progress func(provider.ImageProgress)) (id string, err error) {
	defer explain(&err, "import image %s", source.Name)
	if err := importable(source); err != nil {
		return "", err
	}
	if progress == nil {
		progress = func(provider.ImageProgress) {}
	}
	c, err := p.conn.open(ctx)
	if err == nil {
		err = nobodyIsCalled(ctx, c, source.Name)
	}
	if err != nil {
		return "", err
	}
	// The id is ours, so that what was made can be removed even when the reply
	// that names it was lost.
	id = uuid.NewString()
	if err := p.fill(ctx, c, id, source, progress); err != nil {
		err = classify(err)
		if left := removeImage(ctx, c, id); left != nil {
			err = fmt.Errorf("%w; %v", err, left)
		}
		return "", err
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
	list, err := all(ctx, images.List(c.image, images.ListOpts{Name: name, Owner: c.project}), images.ExtractImages)
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
	from := &parts.Reader{From: file, Total: info.Size(), Tell: progress}
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
		progress(provider.ImageProgress{Step: "waiting for the cloud"})
		return false, nil
	})
}

func removeImage(ctx context.Context, c *clients, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoWait)
	defer cancel()
	err := images.Delete(ctx, c.image, id).ExtractErr()
	if err == nil || status(err, http.StatusNotFound) {
		return nil
	}
	return classify(fmt.Errorf("image %s is left and must be deleted: %w", id, err))
}
