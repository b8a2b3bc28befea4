// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// use is the instance that a client token has made in a zone.
type use struct{ fingerprint, instance string }

// plan is an instance that could be made.
type plan struct {
	image, kind, key, subnet, zone string
	userData                       string
	nics                           []*nic
	disks                          []*disk
	tags                           map[string]map[string]string // by kind of resource
	public, spot, snp              bool
}

func (c *Cloud) runInstances(r request) (obj, *failure) {
	pl, f := c.plan(r)
	if f != nil {
		return nil, f
	}
	token := r.get("ClientToken")
	if token != "" {
		if i, f := c.replay(pl.zone, token, fingerprint(r.form)); i != nil || f != nil {
			if f != nil {
				return nil, f
			}
			return c.reservation(i), nil
		}
	}
	if f := c.room(pl); f != nil {
		return nil, f
	}
	i := c.make(pl, token)
	if token != "" {
		c.tokens[pl.zone+" "+token] = use{fingerprint(r.form), i.id}
	}
	answer := c.reservation(i)
	delete(answer["Instances"].(objs)[0], "PublicIpAddress") // it comes later
	return answer, nil
}

// replay returns what a token has made before. A token with a subnet counts in
// the subnet's zone (EC2 developer guide, "RunInstances idempotency") and for a
// day after the instance has ended.
func (c *Cloud) replay(zone, token, fingerprint string) (*instance, *failure) {
	before, ok := c.tokens[zone+" "+token]
	if !ok {
		return nil, nil
	}
	i := c.instances[before.instance]
	switch s := c.settled(i); {
	case before.fingerprint != fingerprint:
		return nil, fail("IdempotentParameterMismatch", "The request uses the same client token as a previous, but non-identical request")
	case s == ending || s == terminated:
		return nil, fail("IdempotentInstanceTerminated", "The request uses the same client token as a previous request for which the instance has been terminated")
	}
	return i, nil
}

func fingerprint(form url.Values) string { return form.Encode() }

func (c *Cloud) plan(r request) (*plan, *failure) {
	if least, most := r.number("MinCount", 0), r.number("MaxCount", 0); least != 1 || most != 1 {
		return nil, fail("InvalidParameterValue", "the simulator makes one instance at a time, not %d to %d", least, most)
	}
	if token := r.get("ClientToken"); len(token) > 64 || strings.ContainsFunc(token, func(c rune) bool { return c < ' ' || c > '~' }) {
		return nil, fail("InvalidParameterValue", "Length of parameter client token must be less than or equal to 64, and ASCII")
	}
	t, f := c.templateOf(r)
	if f != nil {
		return nil, f
	}
	pl := &plan{image: or(r.get("ImageId"), t, "ImageId"), kind: or(r.get("InstanceType"), t, "InstanceType"), key: or(r.get("KeyName"), t, "KeyName")}
	for _, step := range []func(request, obj, *plan) *failure{c.planImage, c.planNetwork, c.planDisks, c.planTags, c.planUserData, c.planMarket} {
		if f := step(r, t, pl); f != nil {
			return nil, f
		}
	}
	return pl, nil
}

// templateOf returns the data of the launch template that a request names.
func (c *Cloud) templateOf(r request) (obj, *failure) {
	if !r.in("LaunchTemplate").any() {
		return obj{}, nil
	}
	name := r.get("LaunchTemplate.LaunchTemplateName")
	t, ok := c.Stock.Templates[name]
	if !ok {
		return nil, fail("InvalidLaunchTemplateName.NotFoundException", "The specified launch template, with template name %s, does not exist.", name)
	}
	return t, nil
}

func or(given string, t obj, name string) string {
	if said, ok := t[name].(string); ok && given == "" {
		return said
	}
	return given
}

func (c *Cloud) planImage(r request, _ obj, pl *plan) *failure {
	if pl.image == "" {
		return fail("MissingParameter", "The request must contain the parameter ImageId")
	}
	image, ok := c.Stock.Images[pl.image]
	if !ok {
		return fail("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", pl.image)
	}
	if image.State != "available" {
		return fail("InvalidAMIID.Unavailable", "The image id '[%s]' is no longer available", pl.image)
	}
	kind, ok := c.Stock.Types[pl.kind]
	if !ok {
		return fail("Unsupported", "The requested configuration is currently not supported: %q", pl.kind)
	}
	if kind.Arch != image.Arch {
		return fail("InvalidParameterValue", "The architecture '%s' of the specified instance type does not match the architecture '%s' of the specified AMI.", kind.Arch, image.Arch)
	}
	pl.snp = r.get("CpuOptions.AmdSevSnp") == "enabled"
	switch {
	case pl.snp && !kind.SNP:
		return fail("UnsupportedOperation", "The instance type %s does not support AMD SEV-SNP", pl.kind)
	case pl.snp && image.BootMode != "uefi":
		return fail("UnsupportedOperation", "AMD SEV-SNP needs an AMI that boots by UEFI")
	}
	if pl.key != "" && !c.Stock.Keys[pl.key] {
		return fail("InvalidKeyPair.NotFound", "The key pair '%s' does not exist", pl.key)
	}
	return nil
}

func (c *Cloud) planNetwork(r request, t obj, pl *plan) *failure {
	entries := r.each("NetworkInterface")
	switch {
	case len(entries) > 0 && (r.has("SubnetId") || r.has("SecurityGroupId.1")):
		return fail("InvalidParameterCombination", "Network interfaces and an instance-level subnet ID or security groups may not be specified on the same request")
	case len(entries) == 0:
		return fail("MissingParameter", "the simulator has no default subnet: name network interfaces")
	}
	seen := map[string]bool{}
	for _, entry := range entries {
		index := entry.get("DeviceIndex")
		if index == "" || seen[index] {
			return fail("InvalidParameterValue", "device index %q of a network interface is missing or there twice", index)
		}
		seen[index] = true
		n, f := c.planNIC(entry, t, pl)
		if f != nil {
			return f
		}
		pl.nics = append(pl.nics, n)
	}
	slices.SortFunc(pl.nics, func(a, b *nic) int { return a.index - b.index })
	pl.subnet = pl.nics[0].subnet
	pl.zone = c.Stock.Subnets[pl.subnet].Zone
	pl.public = c.Stock.Subnets[pl.subnet].Public && len(entries) == 1
	for _, entry := range entries {
		if entry.has("AssociatePublicIpAddress") {
			if len(entries) > 1 {
				return fail("InvalidParameterCombination", "The associatePublicIPAddress parameter cannot be specified when launching with multiple network interfaces.")
			}
			pl.public = entry.flag("AssociatePublicIpAddress")
		}
	}
	return nil
}

func (c *Cloud) planNIC(entry params, t obj, pl *plan) (*nic, *failure) {
	n := &nic{subnet: entry.get("SubnetId"), groups: entry.strings("SecurityGroupId"), index: entry.number("DeviceIndex", 0), goes: true}
	if said, ok := t["NetworkInterfaces"].(objs); ok && n.subnet == "" {
		n.subnet, _ = said[0]["SubnetId"].(string)
	}
	subnet, ok := c.Stock.Subnets[n.subnet]
	if !ok {
		return nil, fail("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", n.subnet)
	}
	for _, group := range n.groups {
		vpc, ok := c.Stock.Groups[group]
		switch {
		case !ok:
			return nil, fail("InvalidGroup.NotFound", "The security group '%s' does not exist", group)
		case vpc != subnet.VPC:
			return nil, fail("InvalidParameter", "Security group %s and subnet %s belong to different networks.", group, n.subnet)
		}
	}
	if entry.has("DeleteOnTermination") {
		n.goes = entry.flag("DeleteOnTermination")
	}
	if len(pl.nics) > 0 && c.Stock.Subnets[pl.nics[0].subnet].Zone != subnet.Zone {
		return nil, fail("InvalidParameterCombination", "the network interfaces are in different zones")
	}
	return n, nil
}

// planDisks merges the image's, the template's and the request's devices.
func (c *Cloud) planDisks(r request, t obj, pl *plan) *failure {
	image := c.Stock.Images[pl.image]
	root := &disk{device: image.Root, kind: "gp2", size: image.Size, goes: true}
	pl.disks = []*disk{root}
	if said, ok := t["BlockDeviceMappings"].(objs); ok {
		for _, entry := range said {
			ebs := entry["Ebs"].(obj)
			d := pl.disk(entry["DeviceName"].(string))
			d.size, d.kind, d.goes = ebs["VolumeSize"].(int), ebs["VolumeType"].(string), ebs["DeleteOnTermination"].(bool)
			d.encrypted, _ = ebs["Encrypted"].(bool)
		}
	}
	for _, entry := range r.each("BlockDeviceMapping") {
		d := pl.disk(entry.get("DeviceName"))
		ebs := entry.in("Ebs")
		d.size = ebs.number("VolumeSize", d.size)
		if kind := ebs.get("VolumeType"); kind != "" {
			d.kind = kind
		}
		if ebs.has("DeleteOnTermination") {
			d.goes = ebs.flag("DeleteOnTermination")
		}
		if ebs.has("Encrypted") {
			d.encrypted = ebs.flag("Encrypted")
		}
	}
	if root.size < image.Size {
		return fail("InvalidBlockDeviceMapping", "Volume of size %dGB is smaller than snapshot, expect size >= %dGB", root.size, image.Size)
	}
	return nil
}

func (pl *plan) disk(device string) *disk {
	for _, d := range pl.disks {
		if d.device == device {
			return d
		}
	}
	d := &disk{device: device, kind: "gp2", size: defaultSize}
	pl.disks = append(pl.disks, d)
	return d
}

func (c *Cloud) planTags(r request, _ obj, pl *plan) *failure {
	pl.tags = map[string]map[string]string{}
	allowed := []string{"instance", "volume", "network-interface"}
	if r.get("InstanceMarketOptions.MarketType") == "spot" {
		allowed = append(allowed, "spot-instances-request")
	}
	return readTags(r.params, allowed, pl.tags)
}

// readTags checks tags as EC2 does (EC2 user guide, "Tag restrictions").
func readTags(r params, allowed []string, into map[string]map[string]string) *failure {
	for _, entry := range r.each("TagSpecification") {
		kind := entry.get("ResourceType")
		if !slices.Contains(allowed, kind) {
			return fail("InvalidParameterValue", "'%s' is not a valid taggable resource type for this operation.", kind)
		}
		tags := map[string]string{}
		for _, tag := range entry.each("Tag") {
			key, value := tag.get("Key"), tag.get("Value")
			_, twice := tags[key]
			switch {
			case key == "" || len([]rune(key)) > 127+1 || len([]rune(value)) > 256:
				return fail("InvalidParameterValue", "Tag %q is too long or empty", key)
			case strings.HasPrefix(strings.ToLower(key), "aws:"):
				return fail("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved for internal use")
			case twice:
				return fail("InvalidParameterValue", "Duplicate tag key '%s' specified.", key)
			}
			tags[key] = value
		}
		if len(tags) > 50 {
			return fail("TagLimitExceeded", "More than 50 tags specified")
		}
		into[kind] = tags
	}
	return nil
}

const maxUserData = 16384

func (c *Cloud) planUserData(r request, _ obj, pl *plan) *failure {
	data, err := base64.StdEncoding.DecodeString(r.get("UserData"))
	switch {
	case err != nil:
		return fail("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.")
	case len(data) > maxUserData:
		return fail("InvalidParameterValue", "User data is limited to %d bytes", maxUserData)
	}
	pl.userData = string(data)
	return nil
}

func (c *Cloud) planMarket(r request, _ obj, pl *plan) *failure {
	pl.spot = r.get("InstanceMarketOptions.MarketType") == "spot"
	if pl.spot && pl.snp && c.options.Full["spot snp"] {
		return fail("UnsupportedOperation", "spot instances cannot be confidential here")
	}
	return nil
}

// room looks for capacity and quota.
func (c *Cloud) room(pl *plan) *failure {
	kind := c.Stock.Types[pl.kind]
	if len(kind.Zones) > 0 && !slices.Contains(kind.Zones, pl.zone) {
		return fail("Unsupported", "Your requested instance type (%s) is not supported in your requested Availability Zone (%s).", pl.kind, pl.zone)
	}
	if c.options.Full[pl.kind+" "+pl.zone] || c.options.Full["* "+pl.zone] {
		return fail("InsufficientInstanceCapacity", "We currently do not have sufficient %s capacity in the Availability Zone you requested (%s).", pl.kind, pl.zone)
	}
	used := 0
	for _, i := range c.instances {
		if s := c.settled(i); !i.foreign && s != terminated && s != stopped {
			used += c.Stock.Types[i.kind].VCPUs
		}
	}
	if limit := c.options.VCPUs; limit > 0 && used+kind.VCPUs > limit {
		return fail("VcpuLimitExceeded", "You have requested more vCPU capacity than your current vCPU limit of %d allows.", limit)
	}
	if limit := c.options.MaxFreeAddresses; limit > 0 && c.usedIn(pl.subnet) >= limit {
		return fail("InsufficientFreeAddressesInSubnet", "There are not enough free addresses in subnet '%s'.", pl.subnet)
	}
	return nil
}

func (c *Cloud) make(pl *plan, token string) *instance {
	i := &instance{
		id: c.nextID("i"), token: token, zone: pl.zone, subnet: pl.subnet, kind: pl.kind, image: pl.image, key: pl.key,
		tags: maps.Clone(pl.tags["instance"]), userData: pl.userData, nics: pl.nics, disks: pl.disks,
		launched: c.now(), state: pending, since: c.now(), spot: pl.spot, snp: pl.snp, public: pl.public,
	}
	i.serial = c.serial
	c.instances[i.id] = i
	c.order = append(c.order, i.id)
	c.World.Add(cloudsim.KindInstance, i.id, i.tags)
	for _, n := range i.nics {
		n.id, n.tags = c.nextID("eni"), maps.Clone(pl.tags["network-interface"])
		n.address = fmt.Sprintf("%s.%d", c.Stock.Subnets[n.subnet].Net, 4+c.serial%250)
		c.World.Add(cloudsim.KindNIC, n.id, n.tags)
	}
	for _, d := range i.disks {
		d.id, d.tags = c.nextID("vol"), maps.Clone(pl.tags["volume"])
		c.World.Add(cloudsim.KindDisk, d.id, d.tags)
	}
	i.failing = c.options.FailLaunch
	return i
}

// AddForeign makes an instance of somebody else's with these tags.
func (c *Cloud) AddForeign(tags map[string]string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.nextID("i")
	i := &instance{
		id: id, zone: Region + "a", subnet: SubnetA, kind: "m6a.large", image: AMI, tags: maps.Clone(tags), launched: c.now(), state: running, since: c.now(), foreign: true,
		nics: []*nic{{id: c.nextID("eni"), subnet: SubnetA, address: "10.0.1.3", goes: true}},
	}
	c.instances[id] = i
	c.order = append(c.order, id)
	c.World.AddForeign(cloudsim.KindInstance, id, tags)
	return id
}
