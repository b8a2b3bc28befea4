// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
)

type object = map[string]any

func (c *Cloud) describeInstances(p *parameters) (map[string]any, error) {
	if p.bool("DryRun") {
		return nil, refuse("DryRunOperation", "Request validation has been passed with DryRun flag set.")
	}
	match, err := c.matcher(p)
	if err != nil {
		return nil, err
	}
	if p.text("MaxResults") == "" && p.text("NextToken") == "" {
		return c.numberedPage(p, match), nil
	}
	size := p.number("MaxResults", 10)
	switch {
	case size < 10:
		size = 10 // as the API's page says
	case size > 100:
		size = 100
	}
	after, err := base64.StdEncoding.DecodeString(p.text("NextToken"))
	if err != nil {
		return nil, refuse("InvalidParameter", "NextToken is none of ours.")
	}
	var page []object
	answer := object{"TotalCount": 0, "NextToken": ""}
	last := ""
	for _, id := range slices.Sorted(maps.Keys(c.instances)) {
		i := c.instances[id]
		if id <= string(after) || !match(i) || !c.World.Visible(cloudsim.KindInstance, id) {
			continue
		}
		if len(page) == size {
			answer["NextToken"] = base64.StdEncoding.EncodeToString([]byte(last))
			break
		}
		page, last = append(page, c.describe(i)), id
	}
	answer["Instances"] = object{"Instance": page}
	return answer, nil
}

// numberedPage is a page as they were before there were tokens.
func (c *Cloud) numberedPage(p *parameters, match func(*instance) bool) map[string]any {
	number, size := max(1, p.number("PageNumber", 1)), min(100, max(1, p.number("PageSize", 10)))
	list := []object{}
	for _, id := range slices.Sorted(maps.Keys(c.instances)) {
		if i := c.instances[id]; match(i) && c.World.Visible(cloudsim.KindInstance, id) {
			list = append(list, c.describe(i))
		}
	}
	from := min(len(list), (number-1)*size)
	return object{
		"TotalCount": len(list), "PageNumber": number, "PageSize": size,
		"Instances": object{"Instance": list[from:min(len(list), from+size)]},
	}
}

// matcher returns which instances a request asks for.
func (c *Cloud) matcher(p *parameters) (func(*instance) bool, error) {
	tags, err := p.tags()
	if err != nil {
		return nil, err
	}
	var ids []string
	if text := p.text("InstanceIds"); text != "" {
		if err := json.Unmarshal([]byte(text), &ids); err != nil || len(ids) > 100 {
			return nil, refuse("InvalidInstanceIds.Malformed", "InstanceIds is not JSON list of 100 at most.")
		}
	}
	name := p.text("InstanceName")
	return func(i *instance) bool {
		if name != "" {
			if ok, err := path.Match(name, i.name); err != nil || !ok {
				return false
			}
		}
		return provider.HasTags(i.tags, tags) && (ids == nil || slices.Contains(ids, i.id))
	}, nil
}

func (c *Cloud) describe(i *instance) object {
	var tags, nics []object
	for _, key := range slices.Sorted(maps.Keys(i.tags)) {
		tags = append(tags, object{"TagKey": key, "TagValue": i.tags[key]})
	}
	status := c.statusOf(i)
	for _, id := range i.nics {
		kind := "Secondary"
		if c.nics[id].primary {
			kind = "Primary"
		}
		nics = append(nics, object{"NetworkInterfaceId": id, "Type": kind, "PrimaryIpAddress": c.nics[id].addr})
	}
	private, public := []string{i.private}, []string{}
	if status == pending && !i.deleting {
		private, nics = []string{}, nil // the cloud tells them a little later
	} else if i.public != "" {
		public = []string{i.public}
	}
	elastic := object{"IpAddress": "", "AllocationId": ""}
	for _, a := range c.addresses {
		if c.pass(a); a.holder == i.id && a.status == inUse {
			elastic = object{"IpAddress": a.addr, "AllocationId": a.id}
		}
	}
	return object{
		"InstanceId": i.id, "InstanceName": i.name, "InstanceType": i.kind, "RegionId": Region, "ZoneId": i.zone, "Status": status,
		"CreationTime": i.created.Format("2006-01-02T15:04Z"), "Tags": object{"Tag": tags}, "NetworkInterfaces": object{"NetworkInterface": nics},
		"VpcAttributes":   object{"VpcId": vswitches[i.vswitch].vpc, "VSwitchId": i.vswitch, "PrivateIpAddress": object{"IpAddress": private}},
		"PublicIpAddress": object{"IpAddress": public}, "EipAddress": elastic,
	}
}

// catalogue of the cloud.
const imageSize = 20

type kind struct {
	cores, gpus, nics int
	memory            float64 // GiB
	gpu, arch         string
	zones             []string
	price             float64
	tdx               bool
}

var types = map[string]kind{
	"ecs.g8i.large":    {cores: 2, memory: 8, nics: 3, arch: "X86", zones: []string{zone, otherZone}, price: 0.55, tdx: true},
	"ecs.g8i.xlarge":   {cores: 4, memory: 16, nics: 4, arch: "X86", zones: []string{zone, otherZone}, price: 1.1, tdx: true},
	"ecs.g8i.2xlarge":  {cores: 8, memory: 32, nics: 4, arch: "X86", zones: []string{zone, otherZone}, price: 2.2, tdx: true},
	"ecs.c8i.2xlarge":  {cores: 8, memory: 16, nics: 4, arch: "X86", zones: []string{zone}, price: 1.8, tdx: true},
	"ecs.r8i.xlarge":   {cores: 4, memory: 32, nics: 4, arch: "X86", zones: []string{otherZone}, price: 1.4, tdx: true},
	"ecs.e-c1m1.large": {cores: 2, memory: 2, nics: 1, arch: "X86", zones: []string{zone, otherZone}, price: 0.1},
	"ecs.g8y.large":    {cores: 2, memory: 8, nics: 3, arch: "ARM", zones: []string{zone}, price: 0.45},
	"ecs.gn7i.xlarge":  {cores: 8, memory: 30, nics: 4, gpus: 1, gpu: "NVIDIA A10", arch: "X86", zones: []string{zone}, price: 9},
}

type network struct {
	vpc, zone string
	free      int
}

var vswitches = map[string]network{
	VSwitch:      {VPC, zone, 200},
	OtherVSwitch: {VPC, otherZone, 200},
	StrayVSwitch: {strayVPC, zone, 200},
}

var securityGroups = map[string]string{Group: VPC, StrayGroup: strayVPC}

func (c *Cloud) describeInstanceTypes(p *parameters) (map[string]any, error) {
	names := p.list("InstanceTypes")
	if len(names) > 10 {
		return nil, refuse("InvalidParameter", "InstanceTypes names more than 10.")
	}
	after, size := p.text("NextToken"), p.number("MaxResults", 1600)
	var page []object
	answer := object{"NextToken": ""}
	last := ""
	for _, name := range slices.Sorted(maps.Keys(types)) {
		t := types[name]
		if name <= after || names != nil && !slices.Contains(names, name) {
			continue
		}
		if len(page) == min(size, 3) { // small pages, so that somebody turns them
			answer["NextToken"] = last
			break
		}
		last = name
		page = append(page, object{
			"InstanceTypeId": name, "CpuCoreCount": t.cores, "MemorySize": t.memory, "GPUAmount": t.gpus, "GPUSpec": t.gpu,
			"CpuArchitecture": t.arch, "EniQuantity": t.nics,
		})
	}
	answer["InstanceTypes"] = object{"InstanceType": page}
	return answer, nil
}

func (c *Cloud) describeAvailableResource(p *parameters) (map[string]any, error) {
	if err := oneOf("InvalidParameter", p.text("DestinationResource"), "InstanceType"); err != nil {
		return nil, err
	}
	wanted := p.text("InstanceType")
	p.text("InstanceChargeType")
	p.text("SpotStrategy")
	var zones []object
	for _, at := range []string{zone, otherZone} {
		var list []object
		for _, name := range slices.Sorted(maps.Keys(types)) {
			if wanted != "" && name != wanted || !slices.Contains(types[name].zones, at) {
				continue
			}
			status := "Available"
			if c.soldOut[name] || c.soldOut[name+"@"+at] {
				status = "SoldOut"
			}
			list = append(list, object{"Value": name, "Status": status})
		}
		zones = append(zones, object{
			"ZoneId": at, "Status": "Available",
			"AvailableResources": object{"AvailableResource": []object{{"Type": "InstanceType", "SupportedResources": object{"SupportedResource": list}}}},
		})
	}
	return object{"AvailableZones": object{"AvailableZone": zones}}, nil
}

func (c *Cloud) describePrice(p *parameters) (map[string]any, error) {
	t, ok := types[p.text("InstanceType")]
	if !ok {
		return nil, refuse("InvalidInstanceType.ValueNotSupported", "The instance type does not exist.")
	}
	for _, name := range []string{"ResourceType", "PriceUnit", "SpotStrategy", "SystemDisk.Category", "SystemDisk.Size"} {
		p.text(name)
	}
	return object{"PriceInfo": object{"Price": object{"Currency": "CNY", "OriginalPrice": t.price * 1.2, "TradePrice": t.price}}}, nil
}

func (c *Cloud) describeSecurityGroups(p *parameters) (map[string]any, error) {
	p.number("MaxResults", 10)
	var ids []string
	if err := json.Unmarshal([]byte(p.text("SecurityGroupIds")), &ids); err != nil {
		return nil, refuse("InvalidParameter", "SecurityGroupIds is not JSON list.")
	}
	var list []object
	for _, id := range ids {
		if vpc, ok := securityGroups[id]; ok {
			list = append(list, object{"SecurityGroupId": id, "VpcId": vpc})
		}
	}
	return object{"SecurityGroups": object{"SecurityGroup": list}}, nil
}

func (c *Cloud) describeKeyPairs(p *parameters) (map[string]any, error) {
	var list []object
	if ok, err := path.Match(p.text("KeyPairName"), KeyPair); err == nil && ok {
		list = append(list, object{"KeyPairName": KeyPair})
	}
	return object{"KeyPairs": object{"KeyPair": list}, "TotalCount": len(list)}, nil
}

func (c *Cloud) describeVSwitch(p *parameters) (map[string]any, error) {
	id := p.text("VSwitchId")
	at, ok := vswitches[id]
	if !ok {
		return nil, refuse("InvalidVSwitchId.NotFound", "Specified vswitch does not exist.")
	}
	return object{"VSwitchId": id, "VpcId": at.vpc, "ZoneId": at.zone, "AvailableIpAddressCount": at.free, "Status": "Available"}, nil
}

// stamp is how VPC writes times.
func stamp(t time.Time) string { return strings.Replace(t.Format(time.RFC3339), "+00:00", "Z", 1) }
