// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"encoding/base64"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// instance is a machine.
type instance struct {
	id, name, kind, vswitch, zone, userData string
	tags                                    map[string]string
	created                                 time.Time
	private, public                         string
	nics                                    []string // the first is the primary one
	disk                                    string
	foreign, deleting                       bool
	status                                  string // that it has from since on
	since                                   time.Time
}

// nic is an interface.
type nic struct {
	id, instance, addr string
	primary            bool
	tags               map[string]string
}

// Statuses of instances.
const (
	pending  = "Pending"
	starting = "Starting"
	running  = "Running"
	stopping = "Stopping"
	stopped  = "Stopped"
)

// next is what a status passes into by itself.
var next = map[string]string{pending: starting, starting: running, stopping: stopped}

// statusOf lets time pass.
func (c *Cloud) statusOf(i *instance) string {
	for !i.deleting && next[i.status] != "" && c.now().Sub(i.since) >= c.options.Lag {
		i.status, i.since = next[i.status], i.since.Add(c.options.Lag)
	}
	return i.status
}

func (i *instance) become(status string, at time.Time) { i.status, i.since = status, at }

var instanceName = regexp.MustCompile(`^\pL[\pL\d:_.\-\[\],]{1,127}$`)

func (c *Cloud) runInstances(p *parameters) (map[string]any, error) {
	if p.bool("DryRun") {
		if _, err := c.plan(p); err != nil {
			return nil, err
		}
		return nil, refuse("DryRunOperation", "Request validation has been passed with DryRun flag set.")
	}
	return c.once("RunInstances", p, func() (map[string]any, error) {
		i, err := c.plan(p)
		if err != nil {
			return nil, err
		}
		if unknown := p.unused(); len(unknown) > 0 {
			return nil, refuse("NotSimulated", "RunInstances: parameters %v are not simulated.", unknown)
		}
		c.place(i, p)
		c.requests = append(c.requests, maps.Clone(p.values))
		return map[string]any{"InstanceIdSets": map[string]any{"InstanceIdSet": []string{i.id}}}, nil
	})
}

// plan checks a request and returns the instance that it asks for.
func (c *Cloud) plan(p *parameters) (*instance, error) {
	i := &instance{name: p.text("InstanceName"), kind: p.text("InstanceType"), vswitch: p.text("VSwitchId"), userData: p.text("UserData")}
	for _, check := range []func(*instance, *parameters) error{c.checkSize, c.checkNetwork, c.checkImage, c.checkMoney, c.checkOptions, c.checkStock} {
		if err := check(i, p); err != nil {
			return nil, err
		}
	}
	var err error
	if i.tags, err = p.tags(); err != nil {
		return nil, err
	}
	p.used["ClientToken"] = true
	return i, nil
}

func (c *Cloud) checkSize(i *instance, p *parameters) error {
	if p.number("Amount", 1) != 1 || p.number("MinAmount", 1) != 1 {
		return refuse("NotSimulated", "Amount other than 1.")
	}
	if i.name != "" && !instanceName.MatchString(i.name) {
		return refuse("InvalidInstanceName.Malformed", "The name %q is not valid.", i.name)
	}
	text, err := base64.StdEncoding.DecodeString(i.userData)
	switch {
	case err != nil:
		return refuse("InvalidUserData.Base64FormatInvalid", "The user data is not base64.")
	case len(text) > 32<<10:
		return refuse("InvalidUserData.SizeExceeded", "The user data has %d bytes, and 32 KB at most.", len(text))
	}
	if key := p.text("SystemDisk.KMSKeyId"); key != "" && p.text("SystemDisk.Encrypted") != "true" {
		return refuse("InvalidParameter.Conflict", "The KMS key %s is for a disk that is encrypted.", key)
	}
	size := p.number("SystemDisk.Size", 40)
	if size < 20 || size > 2048 || size < imageSize {
		return refuse("InvalidSystemDiskSize", "The system disk cannot have %d GiB.", size)
	}
	return oneOf("InvalidSystemDiskCategory.ValueNotSupported", p.text("SystemDisk.Category"),
		"cloud_efficiency", "cloud_ssd", "cloud_essd", "cloud", "cloud_auto", "cloud_essd_entry")
}

func (c *Cloud) checkNetwork(i *instance, p *parameters) error {
	at, ok := vswitches[i.vswitch]
	if !ok {
		return refuse("InvalidVSwitchId.NotFound", "The vSwitch %q does not exist.", i.vswitch)
	}
	i.zone = at.zone
	groups := p.list("SecurityGroupIds")
	if len(groups) == 0 {
		return refuse("MissingParameter", "SecurityGroupIds.")
	}
	for _, group := range groups {
		network, ok := securityGroups[group]
		if !ok {
			return refuse("InvalidSecurityGroupId.NotFound", "The security group %q does not exist.", group)
		}
		if network != at.vpc {
			return refuse("InvalidSecurityGroupId.VPCMismatch", "The security group %q is not in the VPC of the vSwitch.", group)
		}
	}
	if p.values.Has("NetworkInterface.1.InstanceType") {
		if err := oneOf("InvalidParameter", p.text("NetworkInterface.1.InstanceType"), "Secondary"); err != nil {
			return err
		}
		if !p.bool("NetworkInterface.1.DeleteOnRelease") {
			return refuse("NotSimulated", "Interfaces that stay.")
		}
	}
	return nil
}

func (c *Cloud) checkImage(_ *instance, p *parameters) error {
	id := p.text("ImageId")
	if c.images[id] == nil {
		return refuse("InvalidImageId.NotFound", "The image %q does not exist.", id)
	}
	if status, _ := c.statusOfImage(c.images[id]); status != "Available" {
		return refuse("IncorrectImageStatus", "The image is %s.", status)
	}
	if pair := p.text("KeyPairName"); pair != "" && pair != KeyPair {
		return refuse("InvalidKeyPairName.NotFound", "The key pair %q does not exist.", pair)
	}
	return nil
}

func (c *Cloud) checkMoney(_ *instance, p *parameters) error {
	if err := oneOf("InvalidParameter", p.text("InstanceChargeType"), "PostPaid"); err != nil {
		return err
	}
	spot := p.text("SpotStrategy")
	if err := oneOf("InvalidSpotStrategy", spot, "NoSpot", "SpotAsPriceGo", "SpotWithPriceLimit"); err != nil {
		return err
	}
	limit, _ := strconv.ParseFloat(p.text("SpotPriceLimit"), 64)
	if (spot == "SpotWithPriceLimit") != (limit > 0) {
		return refuse("InvalidSpotPriceLimit.LowerThanPublicPrice", "A price limit goes with SpotWithPriceLimit.")
	}
	if out := p.number("InternetMaxBandwidthOut", 0); out < 0 || out > 100 {
		return refuse("InvalidParameter", "InternetMaxBandwidthOut is from 0 to 100.")
	}
	return oneOf("InvalidInternetChargeType.ValueNotSupported", p.text("InternetChargeType"), "PayByTraffic", "PayByBandwidth")
}

func (c *Cloud) checkOptions(i *instance, p *parameters) error {
	if err := oneOf("InvalidHttpTokens.NotSupported", p.text("HttpTokens"), "optional", "required"); err != nil {
		return err
	}
	if err := oneOf("InvalidParameter", p.text("HttpEndpoint"), "enabled", "disabled"); err != nil {
		return err
	}
	mode := p.text("SecurityOptions.ConfidentialComputingMode")
	if err := oneOf("InvalidSecurityOptions.NotSupported", mode, "Enclave", "TDX"); err != nil {
		return err
	}
	if mode == "TDX" && !types[i.kind].tdx && types[i.kind].cores > 0 {
		return refuse("InvalidSecurityOptions.NotSupported", "The type %s has no TDX.", i.kind)
	}
	return nil
}

func (c *Cloud) checkStock(i *instance, _ *parameters) error {
	kind, ok := types[i.kind]
	switch {
	case !ok:
		return refuse("InvalidInstanceType.ValueNotSupported", "The instance type %q does not exist.", i.kind)
	case !slices.Contains(kind.zones, i.zone):
		return refuse("InvalidInstanceType.ZoneNotSupported", "The instance type %q is not offered in %s.", i.kind, i.zone)
	case c.soldOut[i.kind] || c.soldOut[i.kind+"@"+i.zone]:
		return refuse("OperationDenied.NoStock", "The resource is out of stock in %s.", i.zone)
	case c.options.MaxInstances > 0 && c.own() >= c.options.MaxInstances:
		return refuse("QuotaExceed.ElasticQuota", "The account has %d instances.", c.own())
	}
	return nil
}

func (c *Cloud) own() int {
	n := 0
	for _, i := range c.instances {
		if !i.foreign {
			n++
		}
	}
	return n
}

// place makes the instance and what belongs to it.
func (c *Cloud) place(i *instance, p *parameters) {
	i.id, i.disk, i.created, i.private = newID("i-"), newID("d-"), c.now(), c.address("10.0")
	i.become(pending, c.now())
	if p.number("InternetMaxBandwidthOut", 0) > 0 {
		i.public = c.address("198.51")
	}
	c.instances[i.id] = i
	c.disks[i.disk] = true
	c.World.Add(cloudsim.KindInstance, i.id, i.tags)
	c.World.Add(cloudsim.KindDisk, i.disk, i.tags)
	c.addNIC(i, true)
	if p.values.Has("NetworkInterface.1.InstanceType") {
		c.addNIC(i, false)
	}
}

// addNIC gives tags to the primary interface only, as the API says.
func (c *Cloud) addNIC(i *instance, primary bool) {
	n := &nic{id: newID("eni-"), instance: i.id, addr: i.private, primary: primary, tags: i.tags}
	if !primary {
		n.addr, n.tags = c.address("10.0"), map[string]string{}
	}
	i.nics = append(i.nics, n.id)
	c.nics[n.id] = n
	c.World.Add(cloudsim.KindNIC, n.id, n.tags)
}

// AddForeign makes somebody else's instance, with these tags, and returns its
// id.
func (c *Cloud) AddForeign(tags map[string]string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := &instance{
		id: newID("i-"), name: "podvm-somebody-elses", kind: "ecs.g8i.xlarge", vswitch: VSwitch, zone: zone, tags: maps.Clone(tags),
		created: c.now().Add(-time.Hour), private: c.address("10.0"), foreign: true,
	}
	i.become(running, c.now())
	c.instances[i.id] = i
	c.World.AddForeign(cloudsim.KindInstance, i.id, tags)
	return i.id
}

// find returns an instance by its id, as far as the cloud shows it.
func (c *Cloud) find(id string) (*instance, error) {
	i := c.instances[id]
	if i == nil || !c.World.Visible(cloudsim.KindInstance, id) {
		return nil, refuse("InvalidInstanceId.NotFound", "The specified InstanceId does not exist.")
	}
	return i, nil
}

func (c *Cloud) deleteInstance(p *parameters) (map[string]any, error) {
	i, err := c.find(p.text("InstanceId"))
	if err != nil {
		return nil, err
	}
	force := p.bool("Force")
	p.bool("ForceStop")
	switch status := c.statusOf(i); {
	case i.deleting:
		return map[string]any{}, nil
	case status == pending:
		return nil, refuse("IncorrectInstanceStatus.Initializing", "The specified instance status does not support this operation.")
	case status != stopped && !force:
		return nil, refuse("IncorrectInstanceStatus", "The current status of the resource does not support this operation.")
	}
	i.become(stopping, c.now())
	i.deleting = true
	for _, r := range c.belongings(i) {
		c.World.Deleting(r.kind, r.id)
	}
	if c.options.Lag < time.Microsecond {
		c.remove(i)
		return map[string]any{}, nil
	}
	c.removeLater(i)
	return map[string]any{}, nil
}

func (c *Cloud) removeLater(i *instance) {
	time.AfterFunc(c.options.Lag, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.options.HeldByAddress && slices.ContainsFunc(slices.Collect(maps.Values(c.addresses)), i.holds) {
			c.removeLater(i)
			return
		}
		c.remove(i)
	})
}

// holds reports whether a is an address of i or of one of its interfaces.
func (i *instance) holds(a *address) bool {
	return a.holder != "" && (a.holder == i.id || slices.Contains(i.nics, a.holder))
}

type belonging struct{ kind, id string }

func (c *Cloud) belongings(i *instance) []belonging {
	all := []belonging{{cloudsim.KindInstance, i.id}}
	if i.disk != "" {
		all = append(all, belonging{cloudsim.KindDisk, i.disk})
	}
	for _, id := range i.nics {
		all = append(all, belonging{cloudsim.KindNIC, id})
	}
	return all
}

// remove ends an instance. Its addresses stay and are nobody's.
func (c *Cloud) remove(i *instance) {
	for _, r := range c.belongings(i) {
		c.World.Remove(r.kind, r.id)
	}
	for _, a := range c.addresses {
		if i.holds(a) {
			a.let()
		}
	}
	for _, id := range i.nics {
		delete(c.nics, id)
	}
	c.letDisks(i)
	delete(c.disks, i.disk)
	delete(c.instances, i.id)
}

func (c *Cloud) stopInstance(p *parameters) (map[string]any, error) {
	p.bool("ForceStop")
	if err := oneOf("InvalidParameter", p.text("StoppedMode"), "KeepCharging"); err != nil {
		return nil, err
	}
	return c.turn(p, running, stopping)
}

func (c *Cloud) startInstance(p *parameters) (map[string]any, error) {
	return c.turn(p, stopped, starting)
}

func (c *Cloud) turn(p *parameters, from, to string) (map[string]any, error) {
	i, err := c.find(p.text("InstanceId"))
	if err != nil {
		return nil, err
	}
	if status := c.statusOf(i); i.deleting || status != from {
		return nil, refuse("IncorrectInstanceStatus", "The current status of the resource does not support this operation.")
	}
	i.become(to, c.now())
	return map[string]any{}, nil
}

func (c *Cloud) consoleOutput(p *parameters) (map[string]any, error) {
	i, err := c.find(p.text("InstanceId"))
	if err != nil {
		return nil, err
	}
	text := "[    0.000000] Linux version of " + i.id + "\n[    1.000000] the guest of a simulated cloud\n"
	return map[string]any{
		"InstanceId": i.id, "LastUpdateTime": c.now().Format(time.RFC3339),
		"ConsoleOutput": base64.StdEncoding.EncodeToString([]byte(text)),
	}, nil
}

func (c *Cloud) tagResources(p *parameters) (map[string]any, error) {
	tags, err := p.tags()
	if err != nil {
		return nil, err
	}
	if err := oneOf("InvalidResourceType.NotFound", p.text("ResourceType"), "eni"); err != nil {
		return nil, err
	}
	for _, id := range p.list("ResourceId") {
		n := c.nics[id]
		if n == nil {
			return nil, refuse("InvalidResourceId.NotFound", "There is no interface %s.", id)
		}
		maps.Copy(n.tags, tags)
		c.World.Tag(cloudsim.KindNIC, id, tags)
	}
	return map[string]any{}, nil
}

// UserData returns what the metadata service of an instance would.
func (c *Cloud) UserData(id string) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.instances[id]
	if i == nil {
		return "", false
	}
	text, err := base64.StdEncoding.DecodeString(i.userData)
	return string(text), err == nil
}
