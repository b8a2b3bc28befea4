// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/outrigger/outrigger/provider"
)

// galleryName is what an image is called: gallery, image and version, since
// confidential VMs are made from galleries only ("Naming rules and restrictions
// for Azure resources", Microsoft.Compute).
var galleryName = regexp.MustCompile(`^([A-Za-z0-9](?:[\w.]{0,78}[A-Za-z0-9])?)/([A-Za-z0-9](?:[-\w.]{0,78}[A-Za-z0-9])?)/(\d{1,9}\.\d{1,9}\.\d{1,9})$`)

// Sizes of a VHD of fixed size: the footer comes after whole MiB, and a disk
// that is uploaded has at least 20 of these (Disks, creationData.uploadSizeBytes).
const (
	vhdFooter = 512
	vhdUnit   = 1 << 20
	minUpload = 20 << 20
)

var azureArchitectures = map[string]armcompute.Architecture{"amd64": armcompute.ArchitectureX64, "arm64": armcompute.ArchitectureArm64}

// ImportImage implements provider.ImageImporter: it uploads a VHD into a disk,
// which needs no storage account, and makes a version of a gallery's image from
// that. Gallery and image are made if there are none.
func (p *Provider) ImportImage(ctx context.Context, source provider.ImageSource, progress func(provider.ImageProgress)) (id string, err error) {
	defer explain(&err, "import image %s", source.Name)
	if progress == nil {
		progress = func(provider.ImageProgress) {}
	}
	i, err := p.newImport(source, progress)
	if err != nil {
		return "", err
	}
	id, err = i.run(ctx)
	left := i.clear(ctx, err != nil)
	switch {
	case left != nil && err != nil:
		return "", fmt.Errorf("%w; %v", classify(err), left)
	case left != nil:
		logger().Warn("The image is there, but not everything else is gone", "error", left)
	}
	return id, err
}

// imageImport is an image that is being made.
type imageImport struct {
	*Provider
	source                       provider.ImageSource
	gallery, definition, version string
	disk                         string
	size                         int64
	tell                         func(provider.ImageProgress)

	galleries   *armcompute.GalleriesClient
	definitions *armcompute.GalleryImagesClient
	versions    *armcompute.GalleryImageVersionsClient
	// undo removes what was made, the last first; drop what is of no use later.
	undo, drop []func(context.Context) error
}

func (p *Provider) newImport(source provider.ImageSource, tell func(provider.ImageProgress)) (*imageImport, error) {
	names := galleryName.FindStringSubmatch(source.Name)
	switch {
	case source.Format != provider.FormatVHD:
		return nil, fmt.Errorf("%w: format %q: Azure takes a VHD of fixed size, which podvm-image --format vhd makes", provider.ErrInvalidArgument, source.Format)
	case !filepath.IsAbs(source.Location):
		return nil, fmt.Errorf("%w: location %q: want a file's absolute path", provider.ErrInvalidArgument, source.Location)
	case azureArchitectures[source.Arch] == "":
		return nil, fmt.Errorf("%w: architecture %q: Azure has amd64 and arm64", provider.ErrInvalidArgument, source.Arch)
	case names == nil:
		return nil, fmt.Errorf("%w: name %q: want GALLERY/IMAGE/VERSION, such as podvm/linux/1.0.0", provider.ErrInvalidArgument, source.Name)
	}
	if err := source.CheckFile(); err != nil {
		return nil, err
	}
	info, err := os.Stat(source.Location)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", provider.ErrInvalidArgument, err)
	}
	if content := info.Size() - vhdFooter; content%vhdUnit != 0 || content < minUpload {
		return nil, fmt.Errorf("%w: %s holds a disk of %d bytes: Azure takes whole MiB, at least 20, in a VHD of fixed size", provider.ErrInvalidArgument, source.Location, content)
	}
	i := &imageImport{
		Provider: p, source: source, gallery: names[1], definition: names[2], version: names[3],
		disk: "import-" + randomSuffix(), size: info.Size(), tell: tell,
	}
	var errs [3]error
	c, subscription := p.cloud, p.cfg.SubscriptionID
	i.galleries, errs[0] = armcompute.NewGalleriesClient(subscription, c.credential, c.options)
	i.definitions, errs[1] = armcompute.NewGalleryImagesClient(subscription, c.credential, c.options)
	i.versions, errs[2] = armcompute.NewGalleryImageVersionsClient(subscription, c.credential, c.options)
	return i, errors.Join(errs[:]...)
}

// run makes the parts in their order. What one needs is there before it.
func (i *imageImport) run(ctx context.Context) (string, error) {
	if err := i.free(ctx); err != nil {
		return "", err
	}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"gallery " + i.gallery, i.makeGallery}, {"image " + i.definition, i.makeDefinition}, {"disk " + i.disk, i.makeDisk},
	} {
		if err := step.do(ctx); err != nil {
			return "", fmt.Errorf("%s: %w", step.what, err)
		}
	}
	if err := i.free(ctx); err != nil {
		return "", err // somebody was faster
	}
	return i.makeVersion(ctx)
}

// free reports whether the version can still be made.
func (i *imageImport) free(ctx context.Context) error {
	_, err := i.versions.Get(ctx, i.cfg.ResourceGroup, i.gallery, i.definition, i.version, nil)
	switch {
	case err == nil:
		return fmt.Errorf("%w: gallery %s has version %s of %s", provider.ErrAlreadyExists, i.gallery, i.version, i.definition)
	case absent(err):
		return nil
	}
	return err
}

// made remembers how to remove what is about to be made. What others have put
// something into meanwhile stays: it is of use.
func made[T any](i *imageImport, what string, begin func(context.Context) (*runtime.Poller[T], error)) func(context.Context) error {
	return func(ctx context.Context) error {
		poller, err := begin(ctx)
		if err := finish(ctx, i.tempo.ask, poller, err); err != nil && codeOf(err) != "CannotDeleteResource" {
			return fmt.Errorf("%s is left and must be deleted: %w", what, err)
		}
		return nil
	}
}

// importUndo is how long the removal of what an import left may take: that of a
// version takes minutes.
const importUndo = 5 * time.Minute

// clear removes what is of no use any more: all of it when the import failed.
func (i *imageImport) clear(ctx context.Context, failed bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), importUndo)
	defer cancel()
	steps := i.drop
	if failed {
		steps = slices.Concat(i.undo, i.drop)
	}
	var errs []error
	for n := len(steps) - 1; n >= 0; n-- {
		errs = append(errs, classify(steps[n](ctx)))
	}
	return errors.Join(errs...)
}

// await waits for an operation whose resource must exist at the end.
func await[T any](ctx context.Context, i *imageImport, step string, poller *runtime.Poller[T], err error) (T, error) {
	return wait(ctx, i.tempo.ask, func() { i.tell(provider.ImageProgress{Step: step}) }, poller, err)
}

func (i *imageImport) makeGallery(ctx context.Context) error {
	group := i.cfg.ResourceGroup
	_, err := i.galleries.Get(ctx, group, i.gallery, nil)
	if !absent(err) {
		return err
	}
	i.undo = append(i.undo, made(i, "gallery "+i.gallery, func(ctx context.Context) (*runtime.Poller[armcompute.GalleriesClientDeleteResponse], error) {
		return i.galleries.BeginDelete(ctx, group, i.gallery, nil)
	}))
	poller, err := i.galleries.BeginCreateOrUpdate(ctx, group, i.gallery, armcompute.Gallery{Location: &i.cfg.Region, Tags: pointers(i.cfg.Tags)}, nil)
	_, err = await(ctx, i, "making the gallery", poller, err)
	return err
}

func (i *imageImport) makeDefinition(ctx context.Context) error {
	group := i.cfg.ResourceGroup
	_, err := i.definitions.Get(ctx, group, i.gallery, i.definition, nil)
	if !absent(err) {
		return err
	}
	i.undo = append(i.undo, made(i, "image "+i.definition, func(ctx context.Context) (*runtime.Poller[armcompute.GalleryImagesClientDeleteResponse], error) {
		return i.definitions.BeginDelete(ctx, group, i.gallery, i.definition, nil)
	}))
	poller, err := i.definitions.BeginCreateOrUpdate(ctx, group, i.gallery, i.definition, armcompute.GalleryImage{
		Location: &i.cfg.Region, Tags: pointers(i.cfg.Tags),
		Properties: &armcompute.GalleryImageProperties{
			Identifier: &armcompute.GalleryImageIdentifier{Publisher: to.Ptr("outrigger"), Offer: &i.gallery, SKU: &i.definition},
			OSType:     to.Ptr(armcompute.OperatingSystemTypesLinux), OSState: to.Ptr(armcompute.OperatingSystemStateTypesGeneralized),
			HyperVGeneration: to.Ptr(armcompute.HyperVGenerationV2), Architecture: to.Ptr(azureArchitectures[i.source.Arch]),
			Features: i.features(),
		},
	}, nil)
	_, err = await(ctx, i, "making the image", poller, err)
	return err
}

// features let VMs of the image be ordinary, confidential or of trusted launch;
// those of arm64 are ordinary.
func (i *imageImport) features() []*armcompute.GalleryImageFeature {
	if i.source.Arch != "amd64" {
		return nil
	}
	return []*armcompute.GalleryImageFeature{{Name: to.Ptr("SecurityType"), Value: to.Ptr("TrustedLaunchAndConfidentialVmSupported")}}
}

// makeDisk makes the disk and fills it.
func (i *imageImport) makeDisk(ctx context.Context) error {
	group := i.cfg.ResourceGroup
	i.drop = append(i.drop, made(i, "disk "+i.disk, func(ctx context.Context) (*runtime.Poller[armcompute.DisksClientDeleteResponse], error) {
		return i.cloud.disks.BeginDelete(ctx, group, i.disk, nil)
	}))
	poller, err := i.cloud.disks.BeginCreateOrUpdate(ctx, group, i.disk, armcompute.Disk{
		Location: &i.cfg.Region, Tags: pointers(i.cfg.Tags), SKU: &armcompute.DiskSKU{Name: to.Ptr(armcompute.DiskStorageAccountTypesStandardLRS)},
		Properties: &armcompute.DiskProperties{
			OSType: to.Ptr(armcompute.OperatingSystemTypesLinux), HyperVGeneration: to.Ptr(armcompute.HyperVGenerationV2),
			SupportedCapabilities: &armcompute.SupportedCapabilities{Architecture: to.Ptr(azureArchitectures[i.source.Arch])},
			CreationData:          &armcompute.CreationData{CreateOption: to.Ptr(armcompute.DiskCreateOptionUpload), UploadSizeBytes: &i.size},
		},
	}, nil)
	if _, err := await(ctx, i, "making the disk", poller, err); err != nil {
		return err
	}
	grant, err := i.cloud.disks.BeginGrantAccess(ctx, group, i.disk, armcompute.GrantAccessData{Access: to.Ptr(armcompute.AccessLevelWrite), DurationInSeconds: to.Ptr[int32](accessSeconds)}, nil)
	access, err := await(ctx, i, "making the disk", grant, err)
	if err != nil {
		return err
	}
	err = i.upload(ctx, deref(access.AccessSAS))
	// A disk to which somebody has access can be neither read nor deleted.
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), i.tempo.undo)
	defer cancel()
	revoke, revokeErr := i.cloud.disks.BeginRevokeAccess(closing, group, i.disk, nil)
	_, revokeErr = await(closing, i, "closing the disk", revoke, revokeErr)
	return errors.Join(err, revokeErr)
}

// accessSeconds is how long the disk can be written at most.
const accessSeconds = 6 * 60 * 60

func (i *imageImport) makeVersion(ctx context.Context) (string, error) {
	group := i.cfg.ResourceGroup
	i.undo = append(i.undo, i.removeVersion)
	disk := fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/Microsoft.Compute/disks/%s", i.cfg.SubscriptionID, group, i.disk)
	poller, err := i.versions.BeginCreateOrUpdate(ctx, group, i.gallery, i.definition, i.version, armcompute.GalleryImageVersion{
		Location: &i.cfg.Region, Tags: pointers(i.cfg.Tags),
		Properties: &armcompute.GalleryImageVersionProperties{
			StorageProfile: &armcompute.GalleryImageVersionStorageProfile{OSDiskImage: &armcompute.GalleryOSDiskImage{Source: &armcompute.GalleryDiskImageSource{ID: &disk}}},
			PublishingProfile: &armcompute.GalleryImageVersionPublishingProfile{
				TargetRegions: []*armcompute.TargetRegion{{Name: &i.cfg.Region, RegionalReplicaCount: to.Ptr[int32](1)}},
			},
		},
	}, nil)
	version, err := await(ctx, i, "waiting for the cloud", poller, err)
	if err != nil {
		return "", fmt.Errorf("version %s: %w", i.version, err)
	}
	id := deref(version.ID)
	if _, err := parseImage(id); err != nil {
		return "", fmt.Errorf("version %s: %w", i.version, err)
	}
	return id, nil
}

// removeVersion removes the version if it is of our disk: another import may have
// made it while this one uploaded.
func (i *imageImport) removeVersion(ctx context.Context) error {
	group := i.cfg.ResourceGroup
	there, err := i.versions.Get(ctx, group, i.gallery, i.definition, i.version, nil)
	if absent(err) || err == nil && !i.of(&there.GalleryImageVersion) {
		return nil
	}
	return made(i, "version "+i.version, func(ctx context.Context) (*runtime.Poller[armcompute.GalleryImageVersionsClientDeleteResponse], error) {
		if err != nil {
			return nil, err
		}
		return i.versions.BeginDelete(ctx, group, i.gallery, i.definition, i.version, nil)
	})(ctx)
}

// of reports whether a version is made of the disk of this import.
func (i *imageImport) of(version *armcompute.GalleryImageVersion) bool {
	p := version.Properties
	if p == nil || p.StorageProfile == nil || p.StorageProfile.OSDiskImage == nil || p.StorageProfile.OSDiskImage.Source == nil {
		return false
	}
	return strings.HasSuffix(strings.ToLower(deref(p.StorageProfile.OSDiskImage.Source.ID)), "/disks/"+strings.ToLower(i.disk))
}
