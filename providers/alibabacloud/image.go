// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	ecs "github.com/alibabacloud-go/ecs-20140526/v7/client"
	"github.com/alibabacloud-go/tea/dara"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
)

// imageFormats and imageArchitectures are what the cloud calls them
// (ImportImage).
var (
	imageFormats       = map[string]string{provider.FormatQcow2: "QCOW2", provider.FormatRaw: "RAW", provider.FormatVHD: "VHD"}
	imageArchitectures = map[string]string{"amd64": "x86_64", "arm64": "arm64"}
	imageNameSyntax    = regexp.MustCompile(`^\pL[\pL\d:_.-]{1,127}$`)
)

const allImageStatuses = "Creating,Waiting,Available,UnAvailable,CreateFailed"

// ImportImage implements provider.ImageImporter, from an object in OSS, such as
// oss://bucket/podvm.qcow2.
func (p *Provider) ImportImage(ctx context.Context, source provider.ImageSource, progress func(provider.ImageProgress)) (id string, err error) {
	defer explain(&err, "import image %s", source.Location)
	request, err := p.importRequest(source)
	if err != nil {
		return "", err
	}
	same, err := p.images(ctx, &ecs.DescribeImagesRequest{ImageName: new(source.Name)})
	if err != nil {
		return "", err
	}
	if len(same) > 0 {
		return "", fmt.Errorf("%w: %s is called %s", provider.ErrAlreadyExists, dara.StringValue(same[0].ImageId), source.Name)
	}
	// Nobody knows the id of an image whose reply was not waited for.
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.pace.undo)
	defer cancel()
	response, err := call(asking, p.api, "ecs:ImportImage", p.api.ecs().ImportImageWithContext, request)
	if err != nil {
		return "", err
	}
	id = dara.StringValue(response.Body.ImageId)
	if err := p.awaitImage(ctx, id, progress); err != nil {
		return "", errors.Join(failure.Classify(err), p.deleteImage(ctx, id))
	}
	return id, nil
}

func (p *Provider) importRequest(source provider.ImageSource) (*ecs.ImportImageRequest, error) {
	location, isOSS := strings.CutPrefix(source.Location, "oss://")
	bucket, object, _ := strings.Cut(location, "/")
	format, architecture := imageFormats[source.Format], imageArchitectures[source.Arch]
	switch {
	case !isOSS || bucket == "" || object == "":
		return nil, fmt.Errorf("%w: location %q: want oss://bucket/object; aliyun oss cp uploads a file", provider.ErrInvalidArgument, source.Location)
	case format == "":
		return nil, fmt.Errorf("%w: format %q: the cloud imports qcow2, raw and vhd", provider.ErrInvalidArgument, source.Format)
	case architecture == "":
		return nil, fmt.Errorf("%w: architecture %q: the cloud has amd64 and arm64", provider.ErrInvalidArgument, source.Arch)
	case !imageNameSyntax.MatchString(source.Name):
		return nil, fmt.Errorf("%w: name %q: want 2 to 128 letters, digits, and :_.- after a letter", provider.ErrInvalidArgument, source.Name)
	}
	return &ecs.ImportImageRequest{
		RegionId: new(p.cfg.Region), ImageName: new(source.Name), Architecture: new(architecture), OSType: new("linux"), BootMode: new("UEFI"),
		ClientToken:       new(rand.Text()), // the same for each attempt
		DiskDeviceMapping: []*ecs.ImportImageRequestDiskDeviceMapping{{OSSBucket: new(bucket), OSSObject: new(object), Format: new(format)}},
		Features:          &ecs.ImportImageRequestFeatures{NvmeSupport: new("supported")},
	}, nil
}

type imageRow = ecs.DescribeImagesResponseBodyImagesImage

func (p *Provider) images(ctx context.Context, request *ecs.DescribeImagesRequest) ([]*imageRow, error) {
	request.RegionId, request.Status = new(p.cfg.Region), new(allImageStatuses)
	response, err := call(ctx, p.api, "ecs:DescribeImages", p.api.ecs().DescribeImagesWithContext, request)
	if err != nil || response.Body == nil || response.Body.Images == nil {
		return nil, err
	}
	return response.Body.Images.Image, nil
}

// awaitImage reports the percentage that the cloud reports.
func (p *Provider) awaitImage(ctx context.Context, id string, progress func(provider.ImageProgress)) error {
	for t := p.pace.ticker(); ; {
		rows, err := p.images(ctx, &ecs.DescribeImagesRequest{ImageId: new(id)})
		if err != nil {
			return err
		}
		if len(rows) > 0 {
			switch status := dara.StringValue(rows[0].Status); status {
			case "Available":
				return nil
			case "CreateFailed", "UnAvailable":
				return fmt.Errorf("%w: the cloud could not make %s an image: it is %s", provider.ErrInvalidArgument, id, status)
			}
			percent, err := strconv.ParseInt(strings.TrimSuffix(dara.StringValue(rows[0].Progress), "%"), 10, 64)
			if progress != nil && err == nil {
				progress(provider.ImageProgress{Step: "importing", Done: percent, Total: 100})
			}
		}
		if err := t.Wait(ctx); err != nil {
			return err
		}
	}
}

// deleteImage removes an image that has not become one.
func (p *Provider) deleteImage(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.pace.undo)
	defer cancel()
	_, err := call(ctx, p.api, "ecs:DeleteImage", p.api.ecs().DeleteImageWithContext,
		&ecs.DeleteImageRequest{RegionId: new(p.cfg.Region), ImageId: new(id), Force: new(true)})
	if err == nil || errors.Is(err, provider.ErrNotFound) {
		return nil
	}
	return fmt.Errorf("image %s is left: %w", id, err)
}
