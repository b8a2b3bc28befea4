// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Stock is what there is before any call.
type Stock struct {
	Images    map[string]Image
	Types     map[string]Type
	Subnets   map[string]Subnet
	Groups    map[string]string // to VPC
	Keys      map[string]bool
	Templates map[string]obj
}

// Image is an AMI.
type Image struct {
	Arch, Root, BootMode, State string
	Size                        int
	// Name and Snapshot are those of an image that was registered here.
	Name, Snapshot string
}

// Type is an instance type.
type Type struct {
	VCPUs, Memory int // MiB
	Arch          string
	SNP           bool
	GPUs          int
	GPUMaker, GPU string
	Zones         []string // none is all
	Xen           bool     // and not Nitro
}

// Subnet is a subnet, of which Net is the first three numbers.
type Subnet struct {
	VPC, Zone, Net string
	// Public says that interfaces get public addresses unless told otherwise.
	Public bool
}

// Ids of the standard stock.
const (
	AMI       = "ami-0123456789abcdef0"
	BIOSAMI   = "ami-0123456789abcdef1"
	ArmAMI    = "ami-0123456789abcdef2"
	SmallAMI  = "ami-0123456789abcdef3" // still being made
	SubnetA   = "subnet-0123456789abcdef0"
	SubnetB   = "subnet-0123456789abcdef1"
	Elsewhere = "subnet-0123456789abcdef2" // another VPC's
	Group     = "sg-0123456789abcdef0"
	Group2    = "sg-0123456789abcdef1"
	GroupOut  = "sg-0123456789abcdef2" // another VPC's
	Key       = "outrigger"
	Template  = "kata"
)

func standardStock() *Stock {
	return &Stock{
		Images: map[string]Image{
			AMI:      {Arch: "x86_64", Root: "/dev/sda1", BootMode: "uefi", State: "available", Size: 8},
			BIOSAMI:  {Arch: "x86_64", Root: "/dev/xvda", BootMode: "legacy-bios", State: "available", Size: 8},
			ArmAMI:   {Arch: "arm64", Root: "/dev/xvda", BootMode: "uefi", State: "available", Size: 8},
			SmallAMI: {Arch: "x86_64", Root: "/dev/sda1", BootMode: "uefi", State: "pending", Size: 8},
		},
		Types: map[string]Type{
			"m6a.large":   {VCPUs: 2, Memory: 8 << 10, Arch: "x86_64", SNP: true},
			"m6a.xlarge":  {VCPUs: 4, Memory: 16 << 10, Arch: "x86_64", SNP: true},
			"c6a.large":   {VCPUs: 2, Memory: 4 << 10, Arch: "x86_64", SNP: true},
			"c6a.xlarge":  {VCPUs: 4, Memory: 8 << 10, Arch: "x86_64", SNP: true},
			"m5.large":    {VCPUs: 2, Memory: 8 << 10, Arch: "x86_64"},
			"m6g.large":   {VCPUs: 2, Memory: 8 << 10, Arch: "arm64"},
			"m4.large":    {VCPUs: 2, Memory: 8 << 10, Arch: "x86_64", Xen: true},
			"g5.xlarge":   {VCPUs: 4, Memory: 16 << 10, Arch: "x86_64", GPUs: 1, GPUMaker: "NVIDIA", GPU: "A10G"},
			"r6a.large":   {VCPUs: 2, Memory: 16 << 10, Arch: "x86_64", SNP: true, Zones: []string{Region + "a"}},
			"m6a.2xlarge": {VCPUs: 8, Memory: 32 << 10, Arch: "x86_64", SNP: true},
		},
		Subnets: map[string]Subnet{
			SubnetA:   {"vpc-0123456789abcdef0", Region + "a", "10.0.1", false},
			SubnetB:   {"vpc-0123456789abcdef0", Region + "b", "10.0.2", true},
			Elsewhere: {"vpc-0123456789abcdef1", Region + "a", "10.1.1", false},
		},
		Groups: map[string]string{Group: "vpc-0123456789abcdef0", Group2: "vpc-0123456789abcdef0", GroupOut: "vpc-0123456789abcdef1"},
		Keys:   map[string]bool{Key: true},
		Templates: map[string]obj{
			Template: {
				"ImageId": AMI, "InstanceType": "m6a.xlarge", "KeyName": Key,
				"NetworkInterfaces": objs{{"DeviceIndex": 0, "SubnetId": SubnetB, "Groups": []string{Group2}}},
				"BlockDeviceMappings": objs{
					{"DeviceName": "/dev/sda1", "Ebs": obj{"VolumeSize": 10, "VolumeType": "gp3", "Encrypted": true, "DeleteOnTermination": false}},
					{"DeviceName": "/dev/sdb", "Ebs": obj{"VolumeSize": 20, "VolumeType": "gp3", "DeleteOnTermination": false}},
				},
			},
		},
	}
}

func (c *Cloud) describeImages(r request) (obj, *failure) {
	filters, f := filtersOf(r, "name")
	if f != nil {
		return nil, f
	}
	ids := r.strings("ImageId")
	if len(ids) == 0 && slices.Equal(r.strings("Owner"), []string{"self"}) {
		ids = slices.Sorted(maps.Keys(c.Stock.Images))
	}
	var list objs
	for _, id := range ids {
		i, ok := c.Stock.Images[id]
		if !ok {
			return nil, fail("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", id)
		}
		if !filters.match(map[string]string{"name": i.Name}) {
			continue
		}
		list = append(list, i.describe(id))
		if i.Snapshot != "" && i.State == "pending" { // it has been seen so
			i.State = "available"
			c.Stock.Images[id] = i
		}
	}
	return obj{"Images": list}, nil
}

func (i Image) describe(id string) obj {
	snapshot := i.Snapshot
	if snapshot == "" {
		snapshot = "snap-0123456789abcdef0"
	}
	return obj{
		"ImageId": id, "Name": i.Name, "Architecture": i.Arch, "RootDeviceName": i.Root, "BootMode": i.BootMode, "State": i.State, "RootDeviceType": "ebs",
		"BlockDeviceMappings": objs{{"DeviceName": i.Root, "Ebs": obj{"VolumeSize": i.Size, "SnapshotId": snapshot, "DeleteOnTermination": true}}},
	}
}

func (c *Cloud) describeSubnets(r request) (obj, *failure) {
	var list objs
	for _, id := range r.strings("SubnetId") {
		s, ok := c.Stock.Subnets[id]
		if !ok {
			return nil, fail("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", id)
		}
		free := 250
		if c.options.MaxFreeAddresses > 0 {
			free = max(0, c.options.MaxFreeAddresses-c.usedIn(id))
		}
		list = append(list, obj{"SubnetId": id, "VpcId": s.VPC, "AvailabilityZone": s.Zone, "AvailableIpAddressCount": free, "State": "available", "MapPublicIpOnLaunch": s.Public})
	}
	return obj{"Subnets": list}, nil
}

func (c *Cloud) describeSecurityGroups(r request) (obj, *failure) {
	var list objs
	for _, id := range r.strings("GroupId") {
		vpc, ok := c.Stock.Groups[id]
		if !ok {
			return nil, fail("InvalidGroup.NotFound", "The security group '%s' does not exist", id)
		}
		list = append(list, obj{"GroupId": id, "VpcId": vpc, "GroupName": "group"})
	}
	return obj{"SecurityGroups": list}, nil
}

func (c *Cloud) describeKeyPairs(r request) (obj, *failure) {
	var list objs
	for _, name := range r.strings("KeyName") {
		if !c.Stock.Keys[name] {
			return nil, fail("InvalidKeyPair.NotFound", "The key pair '%s' does not exist", name)
		}
		list = append(list, obj{"KeyName": name, "KeyPairId": "key-0123456789abcdef0"})
	}
	return obj{"KeyPairs": list}, nil
}

func (c *Cloud) describeTemplates(r request) (obj, *failure) {
	name := r.get("LaunchTemplateName")
	data, ok := c.Stock.Templates[name]
	if !ok {
		return nil, fail("InvalidLaunchTemplateName.NotFoundException", "The specified launch template, with template name %s, does not exist.", name)
	}
	var list objs
	for _, version := range r.strings("LaunchTemplateVersion") {
		if n, err := strconv.Atoi(version); err == nil && n != 1 {
			return nil, fail("InvalidLaunchTemplateId.VersionNotFound", "Could not find the specified version %s for the launch template", version)
		}
		list = append(list, obj{"LaunchTemplateName": name, "VersionNumber": 1, "DefaultVersion": true, "LaunchTemplateData": data})
	}
	return obj{"LaunchTemplateVersions": list}, nil
}

func (c *Cloud) describeAccountAttributes(r request) (obj, *failure) {
	limit := c.options.Addresses
	if limit == 0 {
		limit = 5
	}
	return obj{"AccountAttributes": objs{
		{"AttributeName": "max-instances", "AttributeValues": objs{{"AttributeValue": "20"}}},
		{"AttributeName": "vpc-max-elastic-ips", "AttributeValues": objs{{"AttributeValue": strconv.Itoa(limit)}}},
	}}, nil
}

func (c *Cloud) describeInstanceTypes(r request) (obj, *failure) {
	filters, f := filtersOf(r, "instance-type", "processor-info.supported-architecture", "processor-info.supported-features")
	if f != nil {
		return nil, f
	}
	given := r.strings("InstanceType")
	for _, name := range given {
		if _, ok := c.Stock.Types[name]; !ok {
			return nil, fail("InvalidInstanceType", "The following supplied instance types do not exist: [%s]", name)
		}
	}
	var names []string
	for name, t := range c.Stock.Types {
		features := ""
		if t.SNP {
			features = "amd-sev-snp"
		}
		if filters.match(map[string]string{"instance-type": name, "processor-info.supported-architecture": t.Arch, "processor-info.supported-features": features}) && (len(given) == 0 || slices.Contains(given, name)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	names, next, f := page(c, r, names, 5, 100)
	if f != nil {
		return nil, f
	}
	var list objs
	for _, name := range names {
		list = append(list, c.Stock.Types[name].describe(name))
	}
	return withNext(obj{"InstanceTypes": list}, next), nil
}

func (t Type) describe(name string) obj {
	row := obj{
		"InstanceType": name, "VCpuInfo": obj{"DefaultVCpus": t.VCPUs}, "MemoryInfo": obj{"SizeInMiB": t.Memory},
		"ProcessorInfo": obj{"SupportedArchitectures": []string{t.Arch}}, "Hypervisor": "nitro", "EbsInfo": obj{"NvmeSupport": "required"},
	}
	if t.Xen {
		row["Hypervisor"], row["EbsInfo"] = "xen", obj{"NvmeSupport": "unsupported"}
	}
	if t.SNP {
		row["ProcessorInfo"].(obj)["SupportedFeatures"] = []string{"amd-sev-snp"}
	}
	if t.GPUs > 0 {
		row["GpuInfo"] = obj{"Gpus": objs{{"Name": t.GPU, "Manufacturer": t.GPUMaker, "Count": t.GPUs}}}
	}
	return row
}

// filters are those of a describing call: each has values of which one must
// match; * and ? are wildcards and \ keeps them from being one.
type filters []filter

type filter struct {
	name   string
	values []string
}

func filtersOf(r request, known ...string) (filters, *failure) {
	var list filters
	for _, entry := range r.each("Filter") {
		f := filter{entry.get("Name"), entry.strings("Value")}
		if !strings.HasPrefix(f.name, "tag:") && !slices.Contains(known, f.name) {
			return nil, fail("InvalidParameterValue", "The filter '%s' is invalid", f.name)
		}
		if len(f.values) == 0 || len(f.values) > 200 {
			return nil, fail("InvalidParameterValue", "The filter '%s' has %d values", f.name, len(f.values))
		}
		list = append(list, f)
	}
	return list, nil
}

func (fs filters) match(facts map[string]string) bool {
	for _, f := range fs {
		has, ok := facts[f.name]
		if !ok || !slices.ContainsFunc(f.values, func(pattern string) bool { return wild(pattern, has) }) {
			return false
		}
	}
	return true
}

func wild(pattern, text string) bool {
	switch {
	case pattern == "":
		return text == ""
	case pattern[0] == '*':
		return wild(pattern[1:], text) || text != "" && wild(pattern, text[1:])
	case text == "":
		return false
	case pattern[0] == '?':
		return wild(pattern[1:], text[1:])
	case pattern[0] == '\\' && len(pattern) > 1:
		return pattern[1] == text[0] && wild(pattern[2:], text[1:])
	}
	return pattern[0] == text[0] && wild(pattern[1:], text[1:])
}

// page returns one page of ids and the token of the next.
func page(c *Cloud, r request, ids []string, least, most int) ([]string, string, *failure) {
	size := r.number("MaxResults", 0)
	if size != 0 && (size < least || size > most) {
		return nil, "", fail("InvalidParameterValue", "Value ( %d ) for parameter maxResults is invalid. Expecting a value between %d and %d.", size, least, most)
	}
	start := 0
	if token := r.get("NextToken"); token != "" {
		after, ok := strings.CutPrefix(token, "after ")
		if !ok {
			return nil, "", fail("InvalidNextToken", "The token is not valid")
		}
		start, _ = slices.BinarySearch(ids, after)
		if start < len(ids) && ids[start] == after {
			start++
		}
	}
	ids = ids[start:]
	if c.options.Page > 0 && (size == 0 || size > c.options.Page) {
		size = c.options.Page
	}
	if size == 0 || len(ids) <= size {
		return ids, "", nil
	}
	return ids[:size], "after " + ids[size-1], nil
}

func withNext(answer obj, next string) obj {
	if next != "" {
		answer["NextToken"] = next
	}
	return answer
}
