// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"

	"github.com/outrigger/outrigger/provider"
)

// placement is where instances go: what is configured, completed by what this
// machine, an instance itself, has.
type placement struct {
	region, keyName string
	subnets, groups []string
}

const imdsDisabled = imds.ClientDisabled

// discoveryLimit bounds the questions to the metadata service, which answers
// within milliseconds where there is one.
const discoveryLimit = 5 * time.Second

// discover completes the place from the metadata service. Keys and groups that
// it does not have are not error.
func (p *Provider) discover(ctx context.Context, client *awshttp.BuildableClient, region string) (placement, error) {
	here := placement{region: region, keyName: p.cfg.KeyName, subnets: p.cfg.Subnets, groups: p.cfg.SecurityGroups}
	if p.cfg.UseTemplate && region != "" || region != "" && len(here.subnets) > 0 && len(here.groups) > 0 && here.keyName != "" {
		return here, nil // a template says the rest
	}
	asked := errors.New("the metadata service must not be asked (AWS_EC2_METADATA_DISABLED)")
	if !p.cfg.MetadataDisabled {
		ctx, cancel := context.WithTimeout(ctx, discoveryLimit)
		defer cancel()
		asked = here.complete(ctx, metadata{imds.New(imds.Options{HTTPClient: client, Endpoint: p.cfg.MetadataEndpoint, ClientEnableState: imds.ClientEnabled})}, p.cfg.UseTemplate)
	}
	var errs []error
	if here.region == "" {
		errs = append(errs, bad("aws-region", "it is not set, and this machine does not tell: %v", asked))
	}
	if len(here.subnets) == 0 && !p.cfg.UseTemplate {
		errs = append(errs, bad("subnetid", "it is not set, and this machine does not tell: %v", asked))
	}
	return here, errors.Join(errs...)
}

// complete asks for what is missing. The error is that of the first question
// that was not answered.
func (h *placement) complete(ctx context.Context, m metadata, regionOnly bool) error {
	if h.region == "" {
		region, err := m.region(ctx)
		if err != nil {
			return err
		}
		h.region = region
	}
	if regionOnly {
		return nil
	}
	if len(h.subnets) == 0 || len(h.groups) == 0 {
		if err := h.network(ctx, m); err != nil {
			return err
		}
	}
	if h.keyName == "" {
		h.keyName = m.keyName(ctx)
	}
	return nil
}

// network takes subnet and groups from this machine's first interface. Its
// groups are of use only in its own VPC, so not with a subnet that may be in
// another.
func (h *placement) network(ctx context.Context, m metadata) error {
	mac, err := m.get(ctx, "mac")
	if err != nil {
		return err
	}
	subnet, err := m.get(ctx, "network/interfaces/macs/"+mac+"/subnet-id")
	if err != nil {
		return err
	}
	if len(h.subnets) == 0 {
		h.subnets = []string{subnet}
	}
	if len(h.groups) > 0 || len(h.subnets) != 1 || h.subnets[0] != subnet {
		return nil
	}
	groups, err := m.get(ctx, "network/interfaces/macs/"+mac+"/security-group-ids")
	h.groups = strings.Fields(groups)
	return err
}

// metadata is the metadata service of this machine.
type metadata struct{ client *imds.Client }

func (m metadata) region(ctx context.Context) (string, error) {
	out, err := m.client.GetRegion(ctx, &imds.GetRegionInput{})
	if err != nil {
		return "", m.explain("region", err)
	}
	return out.Region, nil
}

// maxMetadata is more than any value we ask for.
const maxMetadata = 64 << 10

func (m metadata) get(ctx context.Context, path string) (string, error) {
	out, err := m.client.GetMetadata(ctx, &imds.GetMetadataInput{Path: path})
	if err != nil {
		return "", m.explain(path, err)
	}
	defer out.Content.Close()
	data, err := io.ReadAll(io.LimitReader(out.Content, maxMetadata))
	if err != nil {
		return "", m.explain(path, err)
	}
	return strings.TrimSpace(string(data)), nil
}

// keyName returns the name of the first key pair; many machines have none. The list
// consists of lines such as 0=name.
func (m metadata) keyName(ctx context.Context) string {
	list, err := m.get(ctx, "public-keys/")
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(list, "\n")
	_, name, _ := strings.Cut(first, "=")
	return strings.TrimSpace(name)
}

func (metadata) explain(what string, err error) error {
	return fmt.Errorf("%w: metadata service, %s: %w", provider.ErrUnavailable, what, err)
}
