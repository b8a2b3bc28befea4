// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"

	ecs "github.com/alibabacloud-go/ecs-20140526/v7/client"
	"github.com/alibabacloud-go/tea/dara"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/kit/places"
	"github.com/outrigger/outrigger/provider/kit/tags"
	"github.com/outrigger/outrigger/provider/kit/userdata"
)

// maxUserData is what RunInstances takes by any way. The cloud has 32 KB, but the API's
// parameters are in the URL, base64 and escapes make more of them, and nothing says how long
// that may be.
const maxUserData = 16 << 10

// plan is an instance to be made.
type plan struct {
	key, name, image, userData string
	// tags go on everything, also, with more, on the instance.
	tags map[string]string
	// owner are the tags by which an instance of the same key is found.
	owner    map[string]string
	address  string // for what it has an address of its own
	multiNIC bool
	targets  []target
}

// target is a place where the instance may be made.
type target struct {
	places.Place
	vswitch string
}

func (t target) String() string { return t.Place.String() + ", vSwitch " + t.vswitch }

func (p *Provider) plan(ctx context.Context, podName, key string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*plan, error) {
	if len(spec.Volumes) > 0 {
		return nil, fmt.Errorf("%w: volumes: this provider attaches none", provider.ErrInvalidArgument)
	}
	pl := &plan{key: key, name: provider.InstanceName(podName, key), image: cmp.Or(spec.Image, p.cfg.ImageID), multiNIC: spec.MultiNic}
	var err error
	if pl.userData, err = userDataOf(cloudConfig); err != nil {
		return nil, err
	}
	if pl.tags, err = p.allTags(key, spec.Tags); err != nil {
		return nil, err
	}
	pl.owner = map[string]string{provider.TagKey: key}
	if cluster, ok := pl.tags[provider.TagCluster]; ok {
		pl.owner[provider.TagCluster] = cluster
	}
	switch {
	case spec.MultiNic:
		pl.address = addressEgress
	case p.cfg.UsePublicIP && p.cfg.PublicIP == publicEIP:
		pl.address = addressPrimary
	}
	if spec.MultiNic && p.cfg.UsePublicIP && p.cfg.PublicIP == publicEIP {
		return nil, fmt.Errorf("%w: a second interface and -alibabacloud-public-ip=%s (ALIBABACLOUD_PUBLIC_IP) do not go together: use bandwidth", provider.ErrInvalidArgument, publicEIP)
	}
	pl.targets, err = p.targets(ctx, spec)
	return pl, err
}

func userDataOf(cloudConfig cloudinit.CloudConfigGenerator) (string, error) {
	text, err := userdata.Generate(cloudConfig)
	if err != nil {
		return "", err
	}
	if len(text) > maxUserData {
		return "", fmt.Errorf("%w: user-data has %d bytes, of which the cloud's API takes %d: make initdata or registry credentials smaller", provider.ErrInvalidArgument, len(text), maxUserData)
	}
	return base64.StdEncoding.EncodeToString([]byte(text)), nil
}

// token returns the client token of a generation. The instances of a key that are made
// one after the other, each when the one before is gone, have different generations.
func (pl *plan) token(generation int) string {
	return clientToken("instance", pl.owner[provider.TagCluster], pl.key, strconv.Itoa(generation))
}

// request returns the request for one call. Its tag of the attempt is in no other
// call.
func (p *Provider) request(pl *plan, to target, generation int) *ecs.RunInstancesRequest {
	all := tags.Merge(pl.tags, map[string]string{tagAttempt: rand.Text()})
	if pl.address != "" {
		all[tagAddress] = pl.address
	}
	r := &ecs.RunInstancesRequest{
		RegionId: new(p.cfg.Region), ImageId: new(pl.image), InstanceType: new(to.Type.Name), VSwitchId: new(to.vswitch),
		InstanceName: new(pl.name), Amount: new(int32(1)), MinAmount: new(int32(1)), ClientToken: new(pl.token(generation)),
		InstanceChargeType: new("PostPaid"), SpotStrategy: new(p.cfg.Spot), HttpEndpoint: new("enabled"), HttpTokens: new(p.cfg.HTTPTokens),
		SystemDisk: &ecs.RunInstancesRequestSystemDisk{Category: new(p.cfg.DiskCategory), Size: new(strconv.FormatInt(p.cfg.DiskSize, 10))},
		Tag: tags.List(all, func(key, value string) *ecs.RunInstancesRequestTag {
			return &ecs.RunInstancesRequestTag{Key: new(key), Value: new(value)}
		}),
	}
	if p.cfg.DiskKey != "" {
		r.SystemDisk.Encrypted, r.SystemDisk.KMSKeyId = new("true"), new(p.cfg.DiskKey)
	}
	for _, group := range p.cfg.SecurityGroups {
		r.SecurityGroupIds = append(r.SecurityGroupIds, new(group))
	}
	if pl.userData != "" {
		r.UserData = new(pl.userData)
	}
	if !p.cfg.DisableCVM {
		r.SecurityOptions = &ecs.RunInstancesRequestSecurityOptions{ConfidentialComputingMode: new("TDX")}
	}
	p.options(r, pl)
	return r
}

// options fills what only some configurations have.
func (p *Provider) options(r *ecs.RunInstancesRequest, pl *plan) {
	if p.cfg.KeyPair != "" {
		r.KeyPairName = new(p.cfg.KeyPair)
	}
	if p.cfg.Spot == spotLimited {
		limit, _ := strconv.ParseFloat(p.cfg.SpotLimit, 32) // validate has seen it
		r.SpotPriceLimit = new(float32(limit))
	}
	if p.cfg.UsePublicIP && p.cfg.PublicIP != publicEIP {
		r.InternetChargeType, r.InternetMaxBandwidthOut = new("PayByTraffic"), new(int32(p.cfg.Bandwidth))
	}
	if pl.multiNIC {
		// It takes vSwitch and groups from the instance, and goes away with it.
		r.NetworkInterface = []*ecs.RunInstancesRequestNetworkInterface{{InstanceType: new("Secondary"), DeleteOnRelease: new(true)}}
	}
}

// run makes an instance, in the first place from pl.targets on that has
// capacity. Places that have none are taken off the list.
func (p *Provider) run(ctx context.Context, pl *plan, generation int) (string, error) {
	id, err := places.Try(pl.targets, places.NoCapacity, func(to target) (*string, error) {
		response, err := call(ctx, p.api, "ecs:RunInstances", p.api.ecs().RunInstancesWithContext, p.request(pl, to, generation))
		switch {
		case places.NoCapacity(err):
			pl.targets = pl.targets[1:]
			return nil, fmt.Errorf("%s: %w", to, err)
		case err != nil:
			return nil, p.blame(pl, to, err)
		}
		body := response.Body
		if body == nil || body.InstanceIdSets == nil || len(body.InstanceIdSets.InstanceIdSet) != 1 {
			return nil, fmt.Errorf("ecs:RunInstances: %w: the answer does not hold one instance id", provider.ErrUnknown)
		}
		return body.InstanceIdSets.InstanceIdSet[0], nil
	})
	return dara.StringValue(id), err
}

// blame names what of the request a refusal is about.
func (p *Provider) blame(pl *plan, to target, err error) error {
	if errors.Is(err, provider.ErrNotFound) || errors.Is(err, provider.ErrInvalidArgument) {
		return fmt.Errorf("%w: image %q (IMAGEID), type %q, vSwitch %s (VSWITCH_ID), security groups %v (SECURITY_GROUP_IDS): %w",
			provider.ErrInvalidArgument, pl.image, to.Type.Name, to.vswitch, p.cfg.SecurityGroups, err)
	}
	return err
}
