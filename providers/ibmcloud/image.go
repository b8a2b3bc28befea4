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
func (p *Provider) ImportImage(ctx context.Context, source provider.ImageSource, progress func(provider.ImageProgress)) (string, error) {
	if err := checkSource(source); err != nil {
		return "", fmt.Errorf("import image: %w", err)
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
	made, reply, err := p.api.CreateImageWithContext(asking, &vpcv1.CreateImageOptions{ImagePrototype: proto})
	if err := classify(refused(reply, err)); err != nil {
		return "", fmt.Errorf("import image %s: %w", source.Name, err)
	}
	id := value(made.ID)
	if err := p.finishImage(ctx, id, progress); err != nil {
		return "", fmt.Errorf("import image %s: %w", source.Name, errors.Join(err, p.removeImage(ctx, id)))
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
	err := p.wait.Until(ctx, func() (bool, error) {
		if progress != nil {
			progress(provider.ImageProgress{Step: "waiting for the cloud"})
		}
		img, reply, err := p.api.GetImageWithContext(ctx, &vpcv1.GetImageOptions{ID: &id})
		if err := refused(reply, err); err != nil {
			return false, err
		}
		switch value(img.Status) {
		case "available":
			return true, nil
		case "failed", "unusable", "deleting":
			return false, imageFailure(img)
		}
		return false, nil
	})
	return classify(err)
}

func imageFailure(image *vpcv1.Image) error {
	if len(image.StatusReasons) == 0 {
		return fmt.Errorf("%w: the import has failed without a reason", provider.ErrUnknown)
	}
	reason := image.StatusReasons[0]
	class := imageReasons[value(reason.Code)]
	if class == nil {
		class = provider.ErrUnknown
	}
	return fmt.Errorf("%w: %s (%s)", class, value(reason.Message), value(reason.Code))
}

func (p *Provider) removeImage(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	err := p.wait.Until(ctx, func() (bool, error) {
		reply, err := p.api.DeleteImageWithContext(ctx, &vpcv1.DeleteImageOptions{ID: &id})
		err = refused(reply, err)
		if isStatus(err, http.StatusConflict) {
			return false, nil
		}
		return true, err
	})
	if err == nil || isStatus(err, http.StatusNotFound) {
		return nil
	}
	return fmt.Errorf("image %s is left and must be deleted: %w", id, classify(err))
}
