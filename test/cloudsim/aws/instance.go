// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
)

// States of an instance.
const (
	pending     = "pending"
	running     = "running"
	stopping    = "stopping"
	stopped     = "stopped"
	ending      = "shutting-down"
	terminated  = "terminated"
	defaultSize = 8
)

var stateCodes = map[string]int{pending: 0, running: 16, ending: 32, terminated: 48, stopping: 64, stopped: 80}

type instance struct {
	id, token, zone, subnet, kind, image, key string
	tags                                      map[string]string
	userData                                  string
	nics                                      []*nic
	disks                                     []*disk
	launched, since                           time.Time
	state                                     string // as of since
	reason, failing                           string
	spot, snp, public                         bool
	serial                                    int
	foreign                                   bool
}

type nic struct {
	id, subnet, address string
	groups              []string
	index               int
	goes                bool // with the instance
	tags                map[string]string
}

type disk struct {
	id, device, kind string
	size             int
	goes, encrypted  bool
	tags             map[string]string
}

// stateAt follows the states that change by themselves.
func (c *Cloud) stateAt(i *instance) string {
	past := c.now().Sub(i.since)
	switch {
	case i.state == pending && past >= c.options.Pending:
		return running
	case i.state == stopping && past >= c.options.Stopping:
		return stopped
	case i.state == ending && past >= c.options.Ending:
		return terminated
	}
	return i.state
}

func (c *Cloud) become(i *instance, state string) { i.state, i.since = state, c.now() }

// settled brings the state up to date.
func (c *Cloud) settled(i *instance) string {
	if reason := i.failing; reason != "" && c.now().Sub(i.since) >= c.options.Pending {
		i.failing = ""
		c.end(i, reason)
	}
	if now := c.stateAt(i); now != i.state {
		i.state = now // since stays: nothing hangs on it in these states
		if now == terminated {
			i.since = c.now()
		}
	}
	return i.state
}

// find returns an instance by its id, for calls that name one.
func (c *Cloud) find(id string) (*instance, *failure) {
	if hex, ok := strings.CutPrefix(id, "i-"); !ok || (len(hex) != 8 && len(hex) != 17) || strings.Trim(hex, "0123456789abcdef") != "" {
		return nil, fail("InvalidInstanceID.Malformed", "Invalid id: \"%s\"", id)
	}
	i := c.instances[id]
	if i == nil || !c.visible(i) {
		return nil, fail("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", id)
	}
	return i, nil
}

// visible reports whether a read shows the instance: not yet, or no longer.
func (c *Cloud) visible(i *instance) bool {
	if c.settled(i) == terminated {
		return c.now().Sub(i.since) < c.options.Keep
	}
	return c.World.Visible(cloudsim.KindInstance, i.id)
}

var instanceFilters = []string{"client-token", "instance-id", "instance-state-name", "instance-type", "subnet-id", "availability-zone", "tag-key"}

func (c *Cloud) describeInstances(r request) (obj, *failure) {
	ids := r.strings("InstanceId")
	if len(ids) > 0 && r.has("MaxResults") {
		return nil, fail("InvalidParameterCombination", "The parameter instancesSet cannot be used with the parameter maxResults")
	}
	filters, f := filtersOf(r, instanceFilters...)
	if f != nil {
		return nil, f
	}
	var shown []string
	if len(ids) > 0 {
		for _, id := range ids {
			if _, f := c.find(id); f != nil {
				return nil, f
			}
		}
		shown = ids
	} else {
		shown = c.listed(filters)
	}
	shown, next, f := page(c, r, shown, 5, 1000)
	if f != nil {
		return nil, f
	}
	var list objs
	for _, id := range shown {
		if i := c.instances[id]; filters.match(c.facts(i)) {
			list = append(list, c.reservation(i))
		}
	}
	return withNext(obj{"Reservations": list}, next), nil
}

// listed returns the ids of the instances that a list shows. By a client token
// it always lags behind; by tags where the options say so.
func (c *Cloud) listed(filters filters) []string {
	lags := c.options.ListLag || slices.ContainsFunc(filters, func(f filter) bool { return f.name == "client-token" })
	var ids []string
	for _, id := range c.order {
		i := c.instances[id]
		if !filters.match(c.facts(i)) {
			continue
		}
		if lags && !c.visible(i) || c.settled(i) == terminated && c.now().Sub(i.since) >= c.options.Keep {
			continue
		}
		ids = append(ids, id)
	}
	return ids
}

func (c *Cloud) facts(i *instance) map[string]string {
	facts := map[string]string{
		"client-token": i.token, "instance-id": i.id, "instance-state-name": c.settled(i), "instance-type": i.kind, "subnet-id": i.subnet, "availability-zone": i.zone,
	}
	for key, value := range i.tags {
		facts["tag:"+key] = value
	}
	return facts
}

func (c *Cloud) reservation(i *instance) obj {
	return obj{"ReservationId": "r-" + i.id[2:], "OwnerId": "123456789012", "Instances": objs{c.describe(i)}}
}

func (c *Cloud) describe(i *instance) obj {
	state := c.settled(i)
	o := obj{
		"InstanceId": i.id, "ImageId": i.image, "InstanceType": i.kind, "State": obj{"Name": state, "Code": stateCodes[state]},
		"LaunchTime": i.launched, "Placement": obj{"AvailabilityZone": i.zone}, "Tags": tagObjs(i.tags), "ClientToken": i.token,
		"Architecture": c.Stock.Images[i.image].Arch, "AmiLaunchIndex": 0,
		"CpuOptions": obj{"CoreCount": c.Stock.Types[i.kind].VCPUs, "ThreadsPerCore": 1},
	}
	if i.spot {
		o["InstanceLifecycle"] = "spot"
	}
	if i.reason != "" {
		o["StateReason"] = obj{"Code": i.reason, "Message": i.reason + ": as the options say"}
	}
	if i.key != "" {
		o["KeyName"] = i.key
	}
	if state == terminated {
		return o
	}
	o["PrivateIpAddress"], o["SubnetId"], o["VpcId"] = i.nics[0].address, i.subnet, c.Stock.Subnets[i.subnet].VPC
	if public := c.publicAddress(i, i.nics[0]); public != "" {
		o["PublicIpAddress"] = public
	}
	var nics, disks objs
	for _, n := range i.nics {
		nics = append(nics, obj{
			"NetworkInterfaceId": n.id, "SubnetId": n.subnet, "PrivateIpAddress": n.address, "Status": "in-use",
			"Attachment": obj{"DeviceIndex": n.index, "DeleteOnTermination": n.goes, "Status": "attached", "AttachTime": i.launched},
		})
	}
	for _, d := range i.disks {
		disks = append(disks, obj{"DeviceName": d.device, "Ebs": obj{"VolumeId": d.id, "DeleteOnTermination": d.goes, "Status": "attached", "AttachTime": i.launched}})
	}
	for _, v := range c.volumesOf(i.id) {
		disks = append(disks, obj{"DeviceName": v.device, "Ebs": obj{"VolumeId": v.id, "DeleteOnTermination": false, "Status": v.attachment}})
	}
	o["NetworkInterfaces"], o["BlockDeviceMappings"] = nics, disks
	return o
}

// publicAddress is the elastic address of an interface, or the one that the
// cloud gives while the instance runs.
func (c *Cloud) publicAddress(i *instance, n *nic) string {
	for _, a := range c.addresses {
		if a.nic == n.id {
			return a.ip
		}
	}
	if state := c.settled(i); i.public && state == running {
		return fmt.Sprintf("198.51.%d.%d", i.serial/250%250, i.serial%250+1)
	}
	return ""
}

func tagObjs(tags map[string]string) objs {
	var list objs
	for key, value := range tags {
		list = append(list, obj{"Key": key, "Value": value})
	}
	return list
}

// change is what StopInstances, StartInstances and TerminateInstances have in
// common: all of the instances or none.
func (c *Cloud) change(r request, refuse func(*instance) *failure, do func(*instance)) (objs, *failure) {
	var found []*instance
	for _, id := range r.strings("InstanceId") {
		i, f := c.find(id)
		if f == nil {
			f = refuse(i)
		}
		if f != nil {
			return nil, f
		}
		found = append(found, i)
	}
	var list objs
	for _, i := range found {
		before := c.settled(i)
		do(i)
		now := c.settled(i)
		list = append(list, obj{
			"InstanceId": i.id, "PreviousState": obj{"Name": before, "Code": stateCodes[before]}, "CurrentState": obj{"Name": now, "Code": stateCodes[now]},
		})
	}
	return list, nil
}

func (c *Cloud) terminateInstances(r request) (obj, *failure) {
	list, f := c.change(r, func(*instance) *failure { return nil }, func(i *instance) { c.end(i, "Client.UserInitiatedShutdown") })
	return obj{"TerminatingInstances": list}, f
}

// end removes an instance and what goes with it. Its elastic addresses stay,
// and belong to nobody.
func (c *Cloud) end(i *instance, reason string) {
	if s := c.settled(i); s == ending || s == terminated {
		return
	}
	c.become(i, ending)
	i.reason = reason
	for _, a := range c.addresses {
		if slices.ContainsFunc(i.nics, func(n *nic) bool { return n.id == a.nic }) {
			a.nic, a.association = "", ""
		}
	}
	type thing struct{ kind, id string }
	gone := []thing{{cloudsim.KindInstance, i.id}}
	for _, n := range i.nics {
		if n.goes {
			gone = append(gone, thing{cloudsim.KindNIC, n.id})
		}
	}
	for _, d := range i.disks {
		if d.goes {
			gone = append(gone, thing{cloudsim.KindDisk, d.id})
		}
	}
	for _, t := range gone {
		c.World.Deleting(t.kind, t.id)
	}
	time.AfterFunc(c.options.Ending, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, v := range c.volumesOf(i.id) {
			v.letGo()
		}
		for _, t := range gone {
			c.World.Remove(t.kind, t.id)
		}
	})
}

func (c *Cloud) stopInstances(r request) (obj, *failure) {
	list, f := c.change(r, func(i *instance) *failure {
		switch s := c.settled(i); {
		case i.spot:
			return fail("UnsupportedOperation", "You can't stop the Spot Instance '%s' because it is associated with a one-time Spot Instance request.", i.id)
		case s == pending || s == ending || s == terminated:
			return fail("IncorrectInstanceState", "The instance '%s' is not in a state from which it can be stopped.", i.id)
		}
		return nil
	}, func(i *instance) {
		if c.settled(i) == running {
			c.become(i, stopping)
		}
	})
	return obj{"StoppingInstances": list}, f
}

func (c *Cloud) startInstances(r request) (obj, *failure) {
	list, f := c.change(r, func(i *instance) *failure {
		if s := c.settled(i); s == stopping || s == ending || s == terminated {
			return fail("IncorrectInstanceState", "The instance '%s' is not in a state from which it can be started.", i.id)
		}
		return nil
	}, func(i *instance) {
		if c.settled(i) == stopped {
			c.become(i, pending)
			i.launched = c.now()
			i.serial++ // another public address
		}
	})
	return obj{"StartingInstances": list}, f
}

func (c *Cloud) getConsoleOutput(r request) (obj, *failure) {
	i, f := c.find(r.get("InstanceId"))
	if f != nil {
		return nil, f
	}
	if r.flag("Latest") && strings.HasPrefix(i.kind, "m5.") { // stands for a type that is not a Nitro
		return nil, fail("UnsupportedOperation", "This instance type does not support retrieving the latest console logs.")
	}
	text := fmt.Sprintf("[    0.000000] Linux version 6.1.0 (%s)\n%s login: ", i.id, i.tags["Name"])
	return obj{"InstanceId": i.id, "Timestamp": c.now(), "Output": base64.StdEncoding.EncodeToString([]byte(text))}, nil
}

// UserData returns what the guest of an instance would read.
func (c *Cloud) UserData(id string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.instances[id]
	if i == nil {
		return "", fmt.Errorf("%w: %s", provider.ErrNotFound, id)
	}
	return i.userData, nil
}

// Terminate ends an instance as if somebody did it elsewhere.
func (c *Cloud) Terminate(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := c.instances[id]; i != nil {
		c.end(i, "Client.UserInitiatedShutdown")
	}
}

func (c *Cloud) usedIn(subnet string) int {
	used := 0
	for _, i := range c.instances {
		if i.subnet == subnet && c.settled(i) != terminated {
			used++
		}
	}
	return used
}
