// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/outrigger/outrigger/provider"
)

// image is one of the kinds of images that a VM can be made from.
type image struct {
	id   string
	kind imageKind
	// names are the parts of the id that are names, in order.
	names []string
}

type imageKind int

const (
	managedImage imageKind = iota
	galleryImage
	galleryVersion
	communityImage
	communityVersion
	sharedImage
	sharedVersion
)

// imageSyntaxes are the ids of each kind. Without a version the newest is
// taken.
var imageSyntaxes = []struct {
	kind   imageKind
	syntax *regexp.Regexp
}{
	{managedImage, imageSyntax(`/subscriptions/@/resourceGroups/@/providers/Microsoft.Compute/images/@`)},
	{galleryImage, imageSyntax(`/subscriptions/@/resourceGroups/@/providers/Microsoft.Compute/galleries/@/images/@`)},
	{galleryVersion, imageSyntax(`/subscriptions/@/resourceGroups/@/providers/Microsoft.Compute/galleries/@/images/@/versions/@`)},
	{communityImage, imageSyntax(`/CommunityGalleries/@/Images/@`)},
	{communityVersion, imageSyntax(`/CommunityGalleries/@/Images/@/Versions/@`)},
	{sharedImage, imageSyntax(`/SharedGalleries/@/Images/@`)},
	{sharedVersion, imageSyntax(`/SharedGalleries/@/Images/@/Versions/@`)},
}

func imageSyntax(pattern string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)^` + strings.ReplaceAll(pattern, "@", `([-\w.()]{1,90})`) + `$`)
}

func parseImage(id string) (image, error) {
	for _, s := range imageSyntaxes {
		if found := s.syntax.FindStringSubmatch(id); found != nil {
			return image{id: id, kind: s.kind, names: found[1:]}, nil
		}
	}
	return image{}, fmt.Errorf("%w: image %.200q: it is no resource id of an image or of a gallery's image, nor /CommunityGalleries/../Images/.., nor /SharedGalleries/../Images/..",
		provider.ErrInvalidArgument, id)
}

// reference is the image as the VM's model wants it.
func (i image) reference() *armcompute.ImageReference {
	switch i.kind {
	case communityImage, communityVersion:
		return &armcompute.ImageReference{CommunityGalleryImageID: to.Ptr(i.id)}
	case sharedImage, sharedVersion:
		return &armcompute.ImageReference{SharedGalleryImageID: to.Ptr(i.id)}
	}
	return &armcompute.ImageReference{ID: to.Ptr(i.id)}
}

// action is the permission to make VMs from the image, if it needs one, and
// where.
func (i image) action() (scope, action string) {
	switch i.kind {
	case managedImage:
		return i.id, "Microsoft.Compute/images/read"
	case galleryImage:
		return i.id, "Microsoft.Compute/galleries/images/read"
	case galleryVersion:
		return i.id, "Microsoft.Compute/galleries/images/versions/read"
	}
	return "", ""
}

// check looks for the image.
func (i image) check(ctx context.Context, c *clients, region string) error {
	var err error
	n, subscription := i.names, ""
	if i.kind <= galleryVersion {
		subscription = n[0]
	}
	compute, err := c.of(subscription)
	if err != nil {
		return err
	}
	switch i.kind {
	case managedImage:
		_, err = compute.NewImagesClient().Get(ctx, n[1], n[2], nil)
	case galleryImage:
		_, err = compute.NewGalleryImagesClient().Get(ctx, n[1], n[2], n[3], nil)
	case galleryVersion:
		_, err = compute.NewGalleryImageVersionsClient().Get(ctx, n[1], n[2], n[3], n[4], nil)
	case communityImage:
		_, err = compute.NewCommunityGalleryImagesClient().Get(ctx, region, n[0], n[1], nil)
	case communityVersion:
		_, err = compute.NewCommunityGalleryImageVersionsClient().Get(ctx, region, n[0], n[1], n[2], nil)
	case sharedImage:
		_, err = compute.NewSharedGalleryImagesClient().Get(ctx, region, n[0], n[1], nil)
	case sharedVersion:
		_, err = compute.NewSharedGalleryImageVersionsClient().Get(ctx, region, n[0], n[1], n[2], nil)
	}
	return err
}
