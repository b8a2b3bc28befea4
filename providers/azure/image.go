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
}

// imageKind is a kind of images with the syntax of its ids.
type imageKind struct {
	// public is the kind of gallery of images that are in no resource group.
	public string
	syntax *regexp.Regexp
	// version is the API version with which they are read.
	version string
}

// imageKinds are the kinds there are. Without a version of the image the newest is taken.
var imageKinds = []imageKind{
	{"", imageSyntax(`/subscriptions/@/resourceGroups/@/providers/Microsoft.Compute/images/@`), "2026-04-01"},
	{"", imageSyntax(`/subscriptions/@/resourceGroups/@/providers/Microsoft.Compute/galleries/@/images/@(/versions/@)?`), galleryAPI},
	{"community", imageSyntax(`/CommunityGalleries/@/Images/@(/Versions/@)?`), galleryAPI},
	{"shared", imageSyntax(`/SharedGalleries/@/Images/@(/Versions/@)?`), galleryAPI},
}

const galleryAPI = "2025-12-03"

func imageSyntax(pattern string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)^` + strings.ReplaceAll(pattern, "@", `[-\w.()]{1,90}`) + `$`)
}

func parseImage(id string) (image, error) {
	for _, kind := range imageKinds {
		if kind.syntax.MatchString(id) {
			return image{id, kind}, nil
		}
	}
	return image{}, fmt.Errorf("%w: image %.200q: it is not a resource id of an image or of a gallery's image, nor /CommunityGalleries/GALLERY/Images/IMAGE, nor /SharedGalleries/GALLERY/Images/IMAGE",
		provider.ErrInvalidArgument, id)
}

// reference returns the image for the VM's model.
func (i image) reference() *armcompute.ImageReference {
	switch i.kind.public {
	case "community":
		return &armcompute.ImageReference{CommunityGalleryImageID: to.Ptr(i.id)}
	case "shared":
		return &armcompute.ImageReference{SharedGalleryImageID: to.Ptr(i.id)}
	}
	return &armcompute.ImageReference{ID: to.Ptr(i.id)}
}

// check looks for the image, which may be in another subscription.
func (i image) check(ctx context.Context, c *clients, region, subscription string) error {
	path := i.id
	if i.kind.public != "" {
		parts := strings.Split(i.id, "/")
		for n, word := range []string{i.kind.public + "Galleries", "images", "versions"}[:len(parts)/2] {
			parts[2*n+1] = word // as paths have it
		}
		path = "/subscriptions/" + subscription + "/providers/Microsoft.Compute/locations/" + region + strings.Join(parts, "/")
	}
	return c.get(ctx, c.url(path, i.kind.version), nil)
}
