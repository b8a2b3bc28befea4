// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
)

// undoLimit is how long the removal of what a failed import left may take. The
// caller's context may have ended already.
const undoLimit = 30 * time.Second

// guestFeatures are what the pod VM image can do, or is needed to be seen as
// one that may be confidential.
var guestFeatures = []string{"UEFI_COMPATIBLE", "GVNIC", "VIRTIO_SCSI_MULTIQUEUE", "SEV_CAPABLE", "SEV_SNP_CAPABLE", "TDX_CAPABLE"}

// newImage is what images.insert takes.
type newImage struct {
	Name         string         `json:"name"`
	Architecture string         `json:"architecture"`
	Features     []imageFeature `json:"guestOsFeatures"`
	Raw          struct {
		Source    string `json:"source"`
		Container string `json:"containerType"`
	} `json:"rawDisk"`
}

// ImportImage implements provider.ImageImporter for objects in Cloud Storage:
// gs://BUCKET/OBJECT, a tar.gz of disk.raw.
func (p *Provider) ImportImage(ctx context.Context, source provider.ImageSource, progress func(provider.ImageProgress)) (path string, err error) {
	defer explain(&err, "import image %s", source.Name)
	body, err := imageOf(source)
	if err != nil {
		return "", err
	}
	var op operation
	// Nobody knows the number of an image whose reply was not waited for.
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	err = p.api.send(asking, http.MethodPost, "global/images", requestID(), body, &op)
	if err == nil {
		err = p.finishImage(ctx, &op, progress)
	}
	switch {
	case err == nil:
		return "projects/" + p.cfg.Project + "/global/images/" + source.Name, nil
	case errors.Is(err, provider.ErrAlreadyExists):
		return "", err
	}
	return "", errors.Join(failure.Classify(err), p.removeImage(ctx, source.Name, op))
}

func imageOf(source provider.ImageSource) (*newImage, error) {
	object, ok := strings.CutPrefix(source.Location, "gs://")
	bucket, name, both := strings.Cut(object, "/")
	if !ok || !both || bucket == "" || name == "" {
		return nil, fmt.Errorf("%w: location %q: Compute Engine reads gs://BUCKET/OBJECT; put the file there with gcloud storage cp", provider.ErrInvalidArgument, source.Location)
	}
	if source.Format != provider.FormatGCP {
		return nil, fmt.Errorf("%w: format %q: Compute Engine takes a tar.gz of disk.raw (%s)", provider.ErrInvalidArgument, source.Format, provider.FormatGCP)
	}
	if !resourceName.MatchString(source.Name) {
		return nil, fmt.Errorf("%w: name %q: images have lower case letters, digits and dashes", provider.ErrInvalidArgument, source.Name)
	}
	image := &newImage{Name: source.Name}
	for theirs, ours := range architectures {
		if ours == source.Arch {
			image.Architecture = theirs
		}
	}
	if image.Architecture == "" {
		return nil, fmt.Errorf("%w: Compute Engine has no %s", provider.ErrInvalidArgument, source.Arch)
	}
	for _, feature := range guestFeatures {
		image.Features = append(image.Features, imageFeature{feature})
	}
	image.Raw.Source = (&url.URL{Scheme: "https", Host: "storage.googleapis.com", Path: "/" + object}).String()
	image.Raw.Container = "TAR"
	return image, nil
}

func (p *Provider) finishImage(ctx context.Context, op *operation, progress func(provider.ImageProgress)) error {
	err := p.wait.Until(ctx, func() (bool, error) {
		if progress != nil {
			progress(provider.ImageProgress{Step: "waiting for the cloud", Done: op.Progress, Total: 100})
		}
		if op.Status == operationDone {
			return true, op.failure()
		}
		if err := p.refresh(ctx, "global", op); err != nil {
			return false, err
		}
		return op.Status == operationDone, op.failure()
	})
	if err == nil && progress != nil {
		progress(provider.ImageProgress{Step: "done", Done: 100, Total: 100})
	}
	return err
}

// removeImage removes what a failed import left: by its number, since the name
// may be another's.
func (p *Provider) removeImage(ctx context.Context, name string, op operation) error {
	if op.TargetID == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	err := p.wait.Until(ctx, func() (bool, error) {
		err := p.api.send(ctx, http.MethodDelete, "global/images/"+op.TargetID, requestID(), nil, nil)
		if busy(err) {
			return false, nil
		}
		return true, err
	})
	if err == nil || failure.HasStatus(err, http.StatusNotFound) {
		return nil
	}
	return fmt.Errorf("image %s is left and must be deleted: %w", name, err)
}
