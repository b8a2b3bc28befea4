// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/attributestags"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/floatingips"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/kit/lifetime"
	"github.com/outrigger/outrigger/provider/kit/places"
	"github.com/outrigger/outrigger/provider/kit/tags"
	"github.com/outrigger/outrigger/provider/kit/userdata"
)

// undoWait limits the removal of what a failed creation left. The caller's context may
// have ended already.
const undoWait = 30 * time.Second

// CreateInstance implements provider.Provider. For a key that has an instance it returns
// that instance, whatever the other arguments are.
func (p *Provider) CreateInstance(ctx context.Context, podName, sandboxID string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (made *provider.Instance, err error) {
	defer explain(&err, "create instance %s", instanceID(sandboxID))
	o, err := p.newOrder(podName, sandboxID, cloudConfig, spec)
	if err != nil {
		return nil, err
	}
	unlock, err := p.locks.Take(ctx, o.id)
	if err != nil {
		return nil, err
	}
	made, err = lifetime.Outlive(ctx, func() (*provider.Instance, error) {
		defer unlock() // a deletion waits until it is known what was made
		f, err := p.findOrMake(ctx, o)
		if f == nil {
			return nil, err
		}
		return p.instance(f), err
	})
	if made == nil && ctx.Err() != nil {
		made = p.instance(&resources{id: o.id})
	}
	if made != nil {
		made.Key = sandboxID
	}
	return made, err
}

// order describes the instance to make, as far as no call to the cloud is needed.
type order struct {
	id, name string
	tags     map[string]string
	userData []byte // base64
	image    string
	spec     provider.InstanceTypeSpec
}

func (p *Provider) newOrder(podName, key string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*order, error) {
	switch {
	case spec.MultiNic:
		return nil, fmt.Errorf("%w: a second interface to the outside: this provider gives none", provider.ErrInvalidArgument)
	case len(spec.Volumes) > 0:
		return nil, fmt.Errorf("%w: volumes: this provider has none", provider.ErrInvalidArgument)
	}
	o := &order{
		id: instanceID(key), name: provider.InstanceName(podName, key), image: cmp.Or(spec.Image, p.cfg.Image), spec: spec,
		tags: tags.Merge(p.cfg.Tags, spec.Tags, map[string]string{provider.TagKey: key}),
	}
	if err := checkItems(len(o.tags), 2); err != nil { // metaID and metaName come with them
		return nil, err
	}
	for k, v := range o.tags {
		if err := checkMetadata(k, v); err != nil {
			return nil, err
		}
	}
	var err error
	o.userData, err = encodeUserData(cloudConfig)
	return o, err
}

// maxUserData limits encoded user-data, in bytes (Compute API, "Create server",
// user_data).
const maxUserData = 65535

func encodeUserData(cloudConfig cloudinit.CloudConfigGenerator) ([]byte, error) {
	text, err := userdata.Generate(cloudConfig)
	if err != nil || text == "" {
		return nil, err
	}
	encoded := base64.StdEncoding.EncodeToString([]byte(text))
	if len(encoded) > maxUserData {
		return nil, fmt.Errorf("%w: user-data of %d bytes is %d encoded; Nova takes %d", provider.ErrInvalidArgument, len(text), len(encoded), maxUserData)
	}
	return []byte(encoded), nil
}

// findOrMake returns the resources of the instance. With an error it also returns them if
// the caller may have to delete them.
func (p *Provider) findOrMake(ctx context.Context, o *order) (*resources, error) {
	c, err := p.conn.open(ctx)
	if err != nil {
		return nil, err
	}
	for {
		f, err := p.find(ctx, c, o.id)
		if err != nil {
			return nil, err
		}
		switch {
		case f.nothing():
			f, err = p.make(ctx, c, o)
			if macTaken(err) {
				continue // another process was faster
			}
			return f, err
		case f.server != nil && stateOf(f.server) == provider.StateDeleting:
			return f, fmt.Errorf("%w: instance %s is still being deleted", provider.ErrUnavailable, o.id)
		case f.server != nil && f.port != nil && f.server.Status != statusError:
			return p.finish(ctx, c, o, f)
		case f.server == nil && f.port != nil:
			if made, err := p.awaitMaker(ctx, c, o.id); err != nil || made {
				if err != nil {
					return f, err
				}
				continue
			}
		}
		if err := p.remove(ctx, c, f); err != nil {
			return f, fmt.Errorf("remove what is left of an earlier creation: %w", err)
		}
	}
}

// awaitMaker waits for another process that may be about to make the server of a port.
func (p *Provider) awaitMaker(ctx context.Context, c *clients, id string) (made bool, err error) {
	end := time.Now().Add(p.makerWait)
	err = p.pace.Until(ctx, func() (bool, error) {
		list, err := c.findServers(ctx, id)
		made = len(list) > 0
		return made || err != nil || time.Now().After(end), err
	})
	return made, err
}

// make makes the instance, first its port: the port's MAC address is unique, so only one
// process succeeds.
func (p *Provider) make(ctx context.Context, c *clients, o *order) (*resources, error) {
	choices, err := p.choices(ctx, c, o.spec)
	if err != nil {
		return nil, err
	}
	if err := c.checkVolumeType(p.cfg.VolumeType); err != nil {
		return nil, err
	}
	f := &resources{id: o.id}
	if f.port, err = p.makePort(ctx, c, o); err != nil {
		return unsettled(f, err), err
	}
	err = p.build(ctx, c, o, f, choices)
	if err == nil || unsettled(f, err) != nil {
		return f, err
	}
	return p.undo(ctx, c, f, err)
}

// unsettled returns f, for the caller to delete it, if it is unknown whether the failed
// call has made something.
func unsettled(f *resources, err error) *resources {
	if class := provider.Class(classify(err)); !macTaken(err) && (class == provider.ErrUnavailable || class == provider.ErrUnknown) {
		return f
	}
	return nil
}

func (p *Provider) undo(ctx context.Context, c *clients, f *resources, cause error) (*resources, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoWait)
	defer cancel()
	if err := p.remove(ctx, c, f); err != nil {
		return f, errors.Join(classify(cause), fmt.Errorf("remove what was made: %w", err))
	}
	return nil, cause
}

func (p *Provider) makePort(ctx context.Context, c *clients, o *order) (*ports.Port, error) {
	description, rest := describe(o.tags)
	opts := ports.CreateOpts{NetworkID: p.cfg.Network, Name: portName(o.id), Description: description, MACAddress: macOf(o.id)}
	if len(p.cfg.Groups) > 0 {
		opts.SecurityGroups = &p.cfg.Groups
	}
	if p.cfg.Subnet != "" {
		opts.FixedIPs = []ports.IP{{SubnetID: p.cfg.Subnet}}
	}
	var port *ports.Port
	err := p.post(ctx, o.id, func(ctx context.Context) (err error) {
		port, err = ports.Create(ctx, c.network, opts).Extract()
		return err
	})
	if status(err, http.StatusForbidden) && classOf(err) == provider.ErrPermissionDenied {
		err = fmt.Errorf("%w (it may set a port's MAC address only on networks of its own project, unless Neutron's policy create_port:mac_address says more)", err)
	}
	if err != nil {
		return nil, fmt.Errorf("make a port on -network-id (OPENSTACK_NETWORK_ID) %s, -subnet-id (OPENSTACK_SUBNET_ID) %s, -security-group-ids (OPENSTACK_SECURITY_GROUP_IDS) %v: %w", p.cfg.Network, p.cfg.Subnet, p.cfg.Groups, err)
	}
	port.Tags = rest
	return port, tag(ctx, c, "ports", port.ID, rest)
}

// tag puts on a resource of Neutron what its description does not hold.
func tag(ctx context.Context, c *clients, kind, id string, rest []string) error {
	if len(rest) == 0 {
		return nil
	}
	_, err := attributestags.ReplaceAll(ctx, c.network, kind, id, attributestags.ReplaceAllOpts{Tags: rest}).Extract()
	if err != nil {
		return fmt.Errorf("tag %s %s: %w", kind, id, err)
	}
	return nil
}

// build makes the server of a port with the first flavor and zone that has capacity.
func (p *Provider) build(ctx context.Context, c *clients, o *order, f *resources, choices []choice) error {
	_, err := places.Try(choices, places.NoCapacity, func(to choice) (*resources, error) {
		err := p.makeServer(ctx, c, o, f, to)
		if err == nil {
			return f, nil
		}
		err = fmt.Errorf("flavor %s, availability zone %q, image %s: %w", to.Type.Name, to.Zone, o.image, classify(err))
		if !places.NoCapacity(err) {
			return nil, err
		}
		if left := p.removeServer(ctx, c, f.server); left != nil {
			return f, errors.Join(err, left)
		}
		f.server = nil
		return nil, err
	})
	if err != nil {
		return err
	}
	return p.makeFloating(ctx, c, o, f)
}

func (p *Provider) makeServer(ctx context.Context, c *clients, o *order, f *resources, to choice) error {
	metadata := tags.Merge(o.tags, map[string]string{metaID: o.id, metaName: o.name})
	opts := servers.CreateOpts{
		Name: serverName(o.name, o.id), ImageRef: o.image, FlavorRef: to.id, AvailabilityZone: to.Zone,
		Networks: []servers.Network{{Port: f.port.ID}}, Metadata: metadata, UserData: o.userData, ConfigDrive: &p.cfg.ConfigDrive,
	}
	if p.cfg.RootVolume > 0 {
		opts.ImageRef = ""
		opts.BlockDevice = []servers.BlockDevice{{
			SourceType: servers.SourceImage, UUID: o.image, DestinationType: servers.DestinationVolume,
			BootIndex: 0, DeleteOnTermination: true, VolumeSize: int(p.cfg.RootVolume), VolumeType: p.cfg.VolumeType,
		}}
	}
	var made *servers.Server
	err := p.post(ctx, o.id, func(ctx context.Context) (err error) {
		made, err = servers.Create(ctx, c.compute, p.withKey(opts), nil).Extract()
		return err
	})
	if err != nil {
		return fmt.Errorf("make the server: %w", err)
	}
	made.Metadata, made.Status = metadata, statusBuild
	f.server = made
	return p.awaitPlaced(ctx, c, f)
}

// withKey adds the key pair, for which servers.CreateOpts has no field.
func (p *Provider) withKey(opts servers.CreateOpts) servers.CreateOptsBuilder {
	if p.cfg.KeyName == "" {
		return opts
	}
	return keyed{opts, p.cfg.KeyName}
}

type keyed struct {
	servers.CreateOpts
	name string
}

// ToServerCreateMap implements servers.CreateOptsBuilder.
func (k keyed) ToServerCreateMap() (map[string]any, error) {
	body, err := k.CreateOpts.ToServerCreateMap()
	if err != nil {
		return nil, err
	}
	body["server"].(map[string]any)["key_name"] = k.name
	return body, nil
}

// awaitPlaced waits until Nova has found a host for the server, or has no capacity. There
// is no need to wait longer: the address is that of the port.
func (p *Provider) awaitPlaced(ctx context.Context, c *clients, f *resources) error {
	return p.pace.Until(ctx, func() (bool, error) {
		s, err := servers.Get(ctx, c.compute, f.server.ID).Extract()
		switch {
		case status(err, http.StatusNotFound):
			return true, fmt.Errorf("%w: server %s went away; somebody deletes it", provider.ErrUnavailable, f.server.ID)
		case err != nil:
			return true, err
		}
		f.server = s
		if s.Status == statusError {
			return true, fmt.Errorf("%w: Nova could not make server %s: %s", faultClass(s.Fault.Message), s.ID, s.Fault.Message)
		}
		return s.Status != statusBuild || placed[s.TaskState], nil
	})
}

// placed holds the task states of a server in status BUILD that has a host (Nova's
// compute/task_states.py).
var placed = map[string]bool{"networking": true, "block_device_mapping": true, "spawning": true}

// makeFloating gives the port a floating IP, if one is configured.
func (p *Provider) makeFloating(ctx context.Context, c *clients, o *order, f *resources) error {
	if p.cfg.FloatingNetwork == "" || f.floating != nil {
		return nil
	}
	description, rest := describe(o.tags)
	var made *floatingips.FloatingIP
	err := p.post(ctx, o.id, func(ctx context.Context) (err error) {
		made, err = floatingips.Create(ctx, c.network, floatingips.CreateOpts{
			FloatingNetworkID: p.cfg.FloatingNetwork, PortID: f.port.ID, Description: description,
		}).Extract()
		return err
	})
	if associated(err) { // another process was faster
		if f.floating, err = c.findFloating(ctx, o.id, p.cfg.FloatingNetwork, f.port); err == nil && f.floating == nil {
			err = fmt.Errorf("%w: somebody has given port %s a floating IP of their own", provider.ErrAlreadyExists, f.port.ID)
		}
		return err
	}
	if err != nil {
		return fmt.Errorf("make a floating IP of -floating-network-id (OPENSTACK_FLOATING_NETWORK_ID) %s: %w", p.cfg.FloatingNetwork, err)
	}
	f.floating = made
	return tag(ctx, c, "floatingips", made.ID, rest)
}

// finish completes the creation of an instance whose server exists.
func (p *Provider) finish(ctx context.Context, c *clients, o *order, f *resources) (*resources, error) {
	if key := f.server.Metadata[provider.TagKey]; key != o.tags[provider.TagKey] {
		return nil, fmt.Errorf("%w: server %s is of another sandbox", provider.ErrAlreadyExists, f.server.ID)
	}
	if f.server.Status == statusBuild && !placed[f.server.TaskState] {
		if err := p.awaitPlaced(ctx, c, f); err != nil {
			return f, err
		}
	}
	return f, p.makeFloating(ctx, c, o, f)
}
