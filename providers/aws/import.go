// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync/atomic"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ebs"
	ebstypes "github.com/aws/aws-sdk-go-v2/service/ebs/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/parts"
	"github.com/outrigger/outrigger/provider/kit/tags"
)

// imageNameSyntax is that of RegisterImage's parameter Name.
var imageNameSyntax = regexp.MustCompile(`^[a-zA-Z0-9()\[\] ./'@_-]{3,128}$`)

// imageArchitectures are EC2's names of GOARCH's.
var imageArchitectures = map[string]types.ArchitectureValues{"amd64": types.ArchitectureValuesX8664, "arm64": types.ArchitectureValuesArm64}

// importRoot is the name of the root device of the images that are made here.
const importRoot = "/dev/xvda"

// ImportImage implements provider.ImageImporter, from a raw file: it is written
// into a snapshot, which needs neither a bucket nor the role vmimport.
func (p *Provider) ImportImage(ctx context.Context, source provider.ImageSource, progress func(provider.ImageProgress)) (id string, err error) {
	defer explain(&err, "import image %s", source.Name)
	if err := importable(source); err != nil {
		return "", err
	}
	ctx, s, done, err := p.begin(ctx)
	if err != nil {
		return "", err
	}
	defer done()
	if progress == nil {
		progress = func(provider.ImageProgress) {}
	}
	same, err := s.imagesNamed(ctx, source.Name)
	if err != nil {
		return "", err
	}
	if len(same) > 0 {
		return "", fmt.Errorf("%w: %s is called so", provider.ErrAlreadyExists, sdk.ToString(same[0].ImageId))
	}
	snapshot, err := p.snapshot(ctx, s, source, progress)
	if err == nil {
		progress(provider.ImageProgress{Step: "registering"})
		id, err = p.register(ctx, s, source, snapshot)
	}
	if err == nil {
		err = p.awaitImage(ctx, s, id)
	}
	if err != nil {
		return "", p.removeImport(ctx, s, id, snapshot, err)
	}
	return id, nil
}

func importable(source provider.ImageSource) error {
	switch {
	case source.Format != provider.FormatRaw:
		return fmt.Errorf("%w: format %q: snapshots are written from a raw disk, which podvm-image --format raw makes", provider.ErrInvalidArgument, source.Format)
	case !filepath.IsAbs(source.Location):
		return fmt.Errorf("%w: location %q: want a file's absolute path", provider.ErrInvalidArgument, source.Location)
	case imageArchitectures[source.Arch] == "":
		return fmt.Errorf("%w: architecture %q: EC2 has amd64 and arm64", provider.ErrInvalidArgument, source.Arch)
	case !imageNameSyntax.MatchString(source.Name):
		return fmt.Errorf("%w: name %q: want 3 to 128 letters, digits, spaces and ()[]./-'@_", provider.ErrInvalidArgument, source.Name)
	}
	return source.CheckFile()
}

// imagesNamed returns the account's images of a name, of which there is one at
// most.
func (s *session) imagesNamed(ctx context.Context, name string) ([]types.Image, error) {
	out, err := s.ec2().DescribeImages(ctx, &ec2.DescribeImagesInput{Owners: []string{"self"}, Filters: []types.Filter{filter("name", literal.Replace(name))}})
	if err != nil {
		return nil, err
	}
	return out.Images, nil
}

// snapshot makes one with the file's content. With the error it returns what
// there is of it.
func (p *Provider) snapshot(ctx context.Context, s *session, source provider.ImageSource, progress func(provider.ImageProgress)) (string, error) {
	file, err := os.Open(source.Location)
	if err != nil {
		return "", fmt.Errorf("%w: %w", provider.ErrInvalidArgument, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", fmt.Errorf("%w: %w", provider.ErrInvalidArgument, err)
	}
	// Nobody knows the id of one whose reply was not waited for.
	starting, cancel := context.WithTimeout(context.WithoutCancel(ctx), importUndo)
	defer cancel()
	started, err := s.blocks.StartSnapshot(starting, &ebs.StartSnapshotInput{
		VolumeSize: sdk.Int64((info.Size() + 1<<30 - 1) >> 30), Description: sdk.String("image " + source.Name),
		ClientToken: sdk.String(rand.Text()), // the same for each attempt
		Tags:        p.snapshotTags(source.Name),
	})
	if err != nil {
		return "", err
	}
	id := sdk.ToString(started.SnapshotId)
	var written atomic.Int32
	u := parts.Upload{From: file, Size: info.Size(), Part: blockSize, AtOnce: uploaders, Tell: progress}
	u.Put = func(ctx context.Context, at int64, part []byte) error {
		written.Add(1)
		return s.putBlock(ctx, id, at, part)
	}
	if err := u.Run(ctx); err != nil {
		return id, err
	}
	if _, err := s.blocks.CompleteSnapshot(ctx, &ebs.CompleteSnapshotInput{SnapshotId: &id, ChangedBlocksCount: new(written.Load())}); err != nil {
		return id, err
	}
	return id, p.awaitSnapshot(ctx, s, id, progress)
}

// Snapshots are written in blocks of one size (EBS direct APIs,
// PutSnapshotBlock, x-amz-Data-Length); so many are under way at a time.
const (
	blockSize = 512 << 10
	uploaders = 8
)

func (s *session) putBlock(ctx context.Context, snapshot string, at int64, part []byte) error {
	block := part[:blockSize]
	clear(block[len(part):]) // the last is padded
	sum := sha256.Sum256(block)
	_, err := s.blocks.PutSnapshotBlock(ctx, &ebs.PutSnapshotBlockInput{
		SnapshotId: &snapshot, BlockIndex: new(int32(at / blockSize)), BlockData: bytes.NewReader(block), DataLength: sdk.Int32(blockSize),
		Checksum: sdk.String(base64.StdEncoding.EncodeToString(sum[:])), ChecksumAlgorithm: ebstypes.ChecksumAlgorithmChecksumAlgorithmSha256,
	})
	return err
}

func (p *Provider) snapshotTags(name string) []ebstypes.Tag {
	list := []ebstypes.Tag{}
	for _, tag := range p.importTags(name) {
		list = append(list, ebstypes.Tag{Key: tag.Key, Value: tag.Value})
	}
	return list
}

// importTags returns the tags of images and their snapshots.
func (p *Provider) importTags(name string) []types.Tag {
	return tagList(tags.Merge(map[string]string{tagName: name}, p.cfg.Tags))
}

func (p *Provider) awaitSnapshot(ctx context.Context, s *session, id string, progress func(provider.ImageProgress)) error {
	return p.pace().Until(ctx, func() (bool, error) {
		progress(provider.ImageProgress{Step: "waiting for the snapshot"})
		out, err := s.ec2().DescribeSnapshots(ctx, &ec2.DescribeSnapshotsInput{SnapshotIds: []string{id}})
		switch {
		case isCode(err, "InvalidSnapshot.NotFound"): // not yet
			return false, nil
		case err != nil || len(out.Snapshots) != 1:
			return false, err
		case out.Snapshots[0].State == types.SnapshotStateError:
			return false, fmt.Errorf("%w: snapshot %s has failed: %s", provider.ErrUnknown, id, sdk.ToString(out.Snapshots[0].StateMessage))
		}
		return out.Snapshots[0].State == types.SnapshotStateCompleted, nil
	})
}

// register makes the image. RegisterImage has no token: when the reply was
// lost, or a repetition finds the name taken, the image of our snapshot is it.
func (p *Provider) register(ctx context.Context, s *session, source provider.ImageSource, snapshot string) (string, error) {
	out, err := s.ec2().RegisterImage(ctx, &ec2.RegisterImageInput{
		Name: &source.Name, Description: sdk.String("pod VM"), Architecture: imageArchitectures[source.Arch],
		BootMode: types.BootModeValuesUefi, EnaSupport: sdk.Bool(true), VirtualizationType: sdk.String("hvm"), ImdsSupport: types.ImdsSupportValuesV20,
		RootDeviceName: sdk.String(importRoot),
		BlockDeviceMappings: []types.BlockDeviceMapping{{
			DeviceName: sdk.String(importRoot), Ebs: &types.EbsBlockDevice{SnapshotId: &snapshot, DeleteOnTermination: sdk.Bool(true), VolumeType: types.VolumeTypeGp3},
		}},
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeImage, Tags: p.importTags(source.Name)}},
	})
	if err == nil {
		return sdk.ToString(out.ImageId), nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), importUndo)
	defer cancel()
	images, findErr := s.imagesNamed(ctx, source.Name)
	for _, image := range images {
		if isOfSnapshot(image, snapshot) {
			return sdk.ToString(image.ImageId), nil
		}
	}
	return "", errors.Join(err, findErr)
}

// isOfSnapshot reports whether an image is one of the snapshot.
func isOfSnapshot(image types.Image, snapshot string) bool {
	for _, device := range image.BlockDeviceMappings {
		if device.Ebs != nil && sdk.ToString(device.Ebs.SnapshotId) == snapshot {
			return true
		}
	}
	return false
}

func (p *Provider) awaitImage(ctx context.Context, s *session, id string) error {
	return p.pace().Until(ctx, func() (bool, error) {
		out, err := s.ec2().DescribeImages(ctx, &ec2.DescribeImagesInput{ImageIds: []string{id}})
		switch {
		case isCode(err, "InvalidAMIID.NotFound"): // not yet
			return false, nil
		case err != nil || len(out.Images) != 1 || out.Images[0].State == types.ImageStatePending:
			return false, err
		case out.Images[0].State != types.ImageStateAvailable:
			return false, fmt.Errorf("%w: AMI %s is %s", provider.ErrUnknown, id, out.Images[0].State)
		}
		return true, nil
	})
}

// importUndo is how long the removal of what a failed import left may take. The
// caller's context may have ended already.
const importUndo = 30 * time.Second

// removeImport removes what a failed import left; empty ids are nothing. To the
// cause it adds what could not be removed.
func (p *Provider) removeImport(ctx context.Context, s *session, image, snapshot string, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), importUndo)
	defer cancel()
	var errs []error
	if image != "" {
		_, err := s.ec2().DeregisterImage(ctx, &ec2.DeregisterImageInput{ImageId: &image})
		errs = append(errs, ignoreMissing("AMI "+image, err))
	}
	if snapshot != "" {
		_, err := s.ec2().DeleteSnapshot(ctx, &ec2.DeleteSnapshotInput{SnapshotId: &snapshot})
		errs = append(errs, ignoreMissing("snapshot "+snapshot, err))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w; %v", classify("make it", cause), err)
	}
	return cause
}

func ignoreMissing(what string, err error) error {
	if err == nil || isCode(err, "InvalidAMIID.NotFound", "InvalidAMIID.Unavailable", "InvalidSnapshot.NotFound") {
		return nil
	}
	return classify(what+" is left and must be deleted", err)
}
