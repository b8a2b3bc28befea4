// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/availabilityzones"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/keypairs"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/external"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/groups"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
)

// verifyLimit bounds ConfigVerifier.
const verifyLimit = 30 * time.Second

// ConfigVerifier implements provider.Provider. It reports everything that is
// wrong, unless nobody can log in. OpenStack has no dry run: that servers and
// ports may be made shows with the first.
func (p *Provider) ConfigVerifier() error { return p.VerifyConfig(context.Background()) }

// VerifyConfig implements provider.ContextVerifier.
func (p *Provider) VerifyConfig(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, verifyLimit)
	defer cancel()
	c, err := p.conn.open(ctx)
	if err != nil {
		return fmt.Errorf("verify: %w", classify(err))
	}
	errs := []error{
		c.checkVolumeType(p.cfg.VolumeType), p.verifyImage(ctx, c), p.verifyFlavor(ctx, c), p.verifyZones(ctx, c), p.verifyKey(ctx, c),
		p.verifyNetwork(ctx, c), p.verifyFloating(ctx, c),
	}
	for _, id := range p.cfg.Groups {
		_, err := groups.Get(ctx, c.network, id).Extract()
		errs = append(errs, about("security-group-ids", id, err))
	}
	return errors.Join(errs...)
}

// about returns which setting an error is about, by its flag.
func about(flag, value string, err error) error {
	if err == nil {
		return nil
	}
	return config.About[Config](flag, fmt.Errorf("%s: %w", value, classify(err)))
}

func (p *Provider) verifyImage(ctx context.Context, c *clients) error {
	image, err := images.Get(ctx, c.image, p.cfg.Image).Extract()
	if err == nil && image.Status != images.ImageStatusActive {
		err = fmt.Errorf("%w: the image is %s, not active", provider.ErrInvalidArgument, image.Status)
	}
	return about("imageid", p.cfg.Image, err)
}

func (p *Provider) verifyFlavor(ctx context.Context, c *clients) error {
	_, err := p.choices(ctx, c, provider.InstanceTypeSpec{})
	return classify(err)
}

func (p *Provider) verifyZones(ctx context.Context, c *clients) error {
	if len(p.cfg.Zones) == 0 {
		return nil
	}
	list, err := readZones(ctx, c)
	if err != nil {
		return about("availability-zones", strings.Join(p.cfg.Zones, ","), err)
	}
	var errs []error
	for _, name := range p.cfg.Zones {
		if !slices.Contains(list, name) {
			errs = append(errs, about("availability-zones", name, fmt.Errorf("%w: there is no such zone", provider.ErrNotFound)))
		}
	}
	return errors.Join(errs...)
}

// zonesOfNova returns the zones of servers as they were a while ago.
func (p *Provider) zonesOfNova(ctx context.Context, c *clients) ([]string, error) {
	return p.zones.Get(ctx, "", func() ([]string, time.Time, error) {
		list, err := readZones(ctx, c)
		return list, time.Now().Add(catalogueAge), err
	})
}

// readZones returns the zones that take servers.
func readZones(ctx context.Context, c *clients) (names []string, err error) {
	list, err := all(ctx, availabilityzones.List(c.compute), availabilityzones.ExtractAvailabilityZones)
	for _, zone := range list {
		if zone.ZoneState.Available {
			names = append(names, zone.ZoneName)
		}
	}
	return names, err
}

func (p *Provider) verifyKey(ctx context.Context, c *clients) error {
	if p.cfg.KeyName == "" {
		return nil
	}
	_, err := keypairs.Get(ctx, c.compute, p.cfg.KeyName, nil).Extract()
	return about("keyname", p.cfg.KeyName, err)
}

func (p *Provider) verifyNetwork(ctx context.Context, c *clients) error {
	network, err := networks.Get(ctx, c.network, p.cfg.Network).Extract()
	if err != nil {
		return about("network-id", p.cfg.Network, err)
	}
	if network.ProjectID != c.project {
		logger().Warn("the network is another project's: Neutron's policy create_port:mac_address must allow this project to set a port's MAC address", "network", network.ID)
	}
	if p.cfg.Subnet == "" {
		return nil
	}
	subnet, err := subnets.Get(ctx, c.network, p.cfg.Subnet).Extract()
	if err == nil && subnet.NetworkID != p.cfg.Network {
		err = fmt.Errorf("%w: the subnet is of network %s", provider.ErrInvalidArgument, subnet.NetworkID)
	}
	return about("subnet-id", p.cfg.Subnet, err)
}

func (p *Provider) verifyFloating(ctx context.Context, c *clients) error {
	if p.cfg.FloatingNetwork == "" {
		return nil
	}
	var network struct {
		networks.Network
		external.NetworkExternalExt
	}
	err := networks.Get(ctx, c.network, p.cfg.FloatingNetwork).ExtractInto(&network)
	if err == nil && !network.External {
		err = fmt.Errorf("%w: the network is not external: it gives no floating IPs", provider.ErrInvalidArgument)
	}
	return about("floating-network-id", p.cfg.FloatingNetwork, err)
}
