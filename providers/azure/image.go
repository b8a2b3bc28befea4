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
		if match := s.syntax.FindStringSubmatch(id); match != nil {
			return image{id: id, kind: s.kind, names: match[1:]}, nil
		}
	}
	return image{}, fmt.Errorf("%w: image %.200q: it is not a resource id of an image or of a gallery's image, nor /CommunityGalleries/GALLERY/Images/IMAGE, nor /SharedGalleries/GALLERY/Images/IMAGE",
		provider.ErrInvalidArgument, id)
}

// reference returns the image for the VM's model.
func (i image) reference() *armcompute.ImageReference {
	switch i.kind {
	case communityImage, communityVersion:
		return &armcompute.ImageReference{CommunityGalleryImageID: to.Ptr(i.id)}
	case sharedImage, sharedVersion:
		return &armcompute.ImageReference{SharedGalleryImageID: to.Ptr(i.id)}
	}
	return &armcompute.ImageReference{ID: to.Ptr(i.id)}
}

// check looks for the image, which may be in another subscription.
func (i image) check(ctx context.Context, c *clients, region, subscription string) error {
	n := i.names
	switch i.kind {
	case managedImage:
		images, err := armcompute.NewImagesClient(n[0], c.credential, c.options)
		return callClient(err, func() error { _, err := images.Get(ctx, n[1], n[2], nil); return err })
	case galleryImage:
		images, err := armcompute.NewGalleryImagesClient(n[0], c.credential, c.options)
		return callClient(err, func() error { _, err := images.Get(ctx, n[1], n[2], n[3], nil); return err })
	case galleryVersion:
		versions, err := armcompute.NewGalleryImageVersionsClient(n[0], c.credential, c.options)
		return callClient(err, func() error { _, err := versions.Get(ctx, n[1], n[2], n[3], n[4], nil); return err })
	case communityImage:
		images, err := armcompute.NewCommunityGalleryImagesClient(subscription, c.credential, c.options)
		return callClient(err, func() error { _, err := images.Get(ctx, region, n[0], n[1], nil); return err })
	case communityVersion:
		versions, err := armcompute.NewCommunityGalleryImageVersionsClient(subscription, c.credential, c.options)
		return callClient(err, func() error { _, err := versions.Get(ctx, region, n[0], n[1], n[2], nil); return err })
	case sharedImage:
		images, err := armcompute.NewSharedGalleryImagesClient(subscription, c.credential, c.options)
		return callClient(err, func() error { _, err := images.Get(ctx, region, n[0], n[1], nil); return err })
	}
	versions, err := armcompute.NewSharedGalleryImageVersionsClient(subscription, c.credential, c.options)
	return callClient(err, func() error { _, err := versions.Get(ctx, region, n[0], n[1], n[2], nil); return err })
}

// callClient asks a client, if there is one.
func callClient(err error, ask func() error) error {
	if err != nil {
		return err
	}
	return ask()
}
