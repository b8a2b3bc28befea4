// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"github.com/IBM/vpc-go-sdk/vpcv1"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
)

// undoLimit is how long the removal of what a failed import left may take. The
// caller's context may have ended already.
const undoLimit = 30 * time.Second

// objectURL is an object in Cloud Object Storage (reference of image.file.href).
var objectURL = regexp.MustCompile(`^cos://[a-z0-9-]+/[a-z0-9.-]{3,63}/.+$`)

// imageName is the pattern of names of images.
var imageName = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)

// systems are the operating systems that an image is said to have: by them the
// cloud tells architecture and drivers.
var systems = map[string]string{"amd64": "ubuntu-24-04-amd64", "s390x": "ubuntu-24-04-s390x"}

// ImportImage implements provider.ImageImporter for objects in Cloud Object
// Storage: cos://REGION/BUCKET/OBJECT, qcow2 or VHD.
func (p *Provider) ImportImage(ctx context.Context, source provider.ImageSource, progress func(provider.ImageProgress)) (id string, err error) {
	defer explain(&err, "import image %s", source.Name)
	if err := checkSource(source); err != nil {
		return "", err
	}
	system := systems[source.Arch]
	proto := &vpcv1.ImagePrototypeImageByFile{
		Name: &source.Name, File: &vpcv1.ImageFilePrototype{Href: &source.Location},
		OperatingSystem: &vpcv1.OperatingSystemIdentityByName{Name: &system},
	}
	if p.cfg.ResourceGroup != "" {
		proto.ResourceGroup = &vpcv1.ResourceGroupIdentityByID{ID: &p.cfg.ResourceGroup}
	}
	// Nobody knows the id of an image whose reply was not waited for.
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	made, err := ask(asking, p.api.CreateImageWithContext, vpcv1.CreateImageOptions{ImagePrototype: proto})
	if err != nil {
		return "", err
	}
	id = value(made.ID)
	if err := p.finishImage(ctx, id, progress); err != nil {
		return "", errors.Join(classify(err), p.removeImage(ctx, id))
	}
	return id, nil
}

func checkSource(source provider.ImageSource) error {
	switch {
	case !objectURL.MatchString(source.Location):
		return fmt.Errorf("%w: location %q: a VPC reads cos://REGION/BUCKET/OBJECT; put the file there with ibmcloud cos upload", provider.ErrInvalidArgument, source.Location)
	case source.Format != provider.FormatQcow2 && source.Format != provider.FormatVHD:
		return fmt.Errorf("%w: format %q: a VPC takes qcow2 and vhd", provider.ErrInvalidArgument, source.Format)
	case !imageName.MatchString(source.Name):
		return fmt.Errorf("%w: name %q: images have lower case letters, digits and dashes", provider.ErrInvalidArgument, source.Name)
	case systems[source.Arch] == "":
		return fmt.Errorf("%w: a VPC has no %s", provider.ErrInvalidArgument, source.Arch)
	}
	return nil
}

// imageReasons are the classes of an image's status_reasons.
var imageReasons = map[string]error{
	"image_data_corrupted":               provider.ErrInvalidArgument,
	"image_provisioned_size_unsupported": provider.ErrInvalidArgument,
	"encrypted_data_key_invalid":         provider.ErrInvalidArgument,
}

func (p *Provider) finishImage(ctx context.Context, id string, progress func(provider.ImageProgress)) error {
	return p.wait.Until(ctx, func() (bool, error) {
		if progress != nil {
			progress(provider.ImageProgress{Step: "waiting for the cloud"})
		}
		img, err := ask(ctx, p.api.GetImageWithContext, vpcv1.GetImageOptions{ID: &id})
		if err != nil {
			return false, err
		}
		switch value(img.Status) {
		case "available":
			return true, nil
		case "failed", "unusable", "deleting":
			reason := vpcv1.ImageStatusReason{}
			if len(img.StatusReasons) > 0 {
				reason = img.StatusReasons[0]
			}
			return false, failed(reason.Code, reason.Message, imageReasons)
		}
		return false, nil
	})
}

func (p *Provider) removeImage(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	err := p.wait.Until(ctx, func() (bool, error) {
		err := order(ctx, p.api.DeleteImageWithContext, vpcv1.DeleteImageOptions{ID: &id})
		if failure.HasStatus(err, http.StatusConflict) {
			return false, nil
		}
		return true, err
	})
	if err == nil || failure.HasStatus(err, http.StatusNotFound) {
		return nil
	}
	return fmt.Errorf("image %s is left and must be deleted: %w", id, err)
}
