// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"fmt"
	"hash/crc32"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// kind is a machine type. What each family can be comes from the pages
// "Machine families" and "Confidential VM: supported configurations".
type kind struct {
	name         string
	cpus, memory int
	arch         string
	gpus         int
	gpu          string
	zones        []string
	confidential []string
	state        string
}

var kinds = []kind{
	{name: "e2-micro", cpus: 2, memory: 1024},
	{name: "e2-medium", cpus: 2, memory: 4096},
	{name: "e2-standard-4", cpus: 4, memory: 16384},
	{name: "e2-standard-8", cpus: 8, memory: 32768},
	{name: "n2d-standard-2", cpus: 2, memory: 8192, confidential: []string{"SEV", "SEV_SNP"}},
	{name: "n2d-standard-4", cpus: 4, memory: 16384, confidential: []string{"SEV", "SEV_SNP"}},
	{name: "c3-standard-4", cpus: 4, memory: 16384, zones: Zones[:1], confidential: []string{"TDX"}},
	{name: "c3-standard-8", cpus: 8, memory: 32768, zones: Zones[1:], confidential: []string{"TDX"}},
	{name: "t2a-standard-1", cpus: 1, memory: 4096, arch: "ARM64"},
	{name: "g2-standard-4", cpus: 4, memory: 16384, gpus: 1, gpu: "nvidia-l4"},
	{name: "n1-ultramem-1", cpus: 1, memory: 4096, state: "OBSOLETE"},
}

func kindNamed(name, zone string) *kind {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name && k.in(zone) })
	if i < 0 {
		return nil
	}
	return &kinds[i]
}

func (k kind) in(zone string) bool { return k.zones == nil || slices.Contains(k.zones, zone) }

func (s *Sim) listMachineTypes(c *call) (any, error) {
	var items []map[string]any
	for _, k := range kinds {
		if k.in(c.path["zone"]) {
			items = append(items, s.machineType(k, c.path["zone"]))
		}
	}
	return s.page(c, "compute#machineTypeList", items)
}

func (s *Sim) getMachineType(c *call) (any, error) {
	k := kindNamed(c.path["machineType"], c.path["zone"])
	if k == nil {
		return nil, notFound("projects/" + Project + "/zones/" + c.path["zone"] + "/machineTypes/" + c.path["machineType"])
	}
	return s.machineType(*k, c.path["zone"]), nil
}

func (s *Sim) machineType(k kind, zone string) map[string]any {
	item := map[string]any{
		"kind": "compute#machineType", "id": idOf(k.name), "name": k.name, "guestCpus": k.cpus, "memoryMb": k.memory, "zone": zone,
		"architecture": "X86_64", "selfLink": s.link("zones/%s/machineTypes/%s", zone, k.name), "creationTimestamp": fixedStamp,
		"description": k.name, "maximumPersistentDisks": 128, "maximumPersistentDisksSizeGb": "263168",
	}
	if k.arch != "" {
		item["architecture"] = k.arch
	}
	if k.gpus > 0 {
		item["accelerators"] = []any{map[string]any{"guestAcceleratorType": k.gpu, "guestAcceleratorCount": k.gpus}}
	}
	if k.state != "" {
		item["deprecated"] = map[string]any{"state": k.state}
	}
	return item
}

// fixedStamp is when all was made that was there from the start.
const fixedStamp = "2026-01-02T03:04:05.000-00:00"

// idOf is the number of something that was there from the start.
func idOf(name string) string { return fmt.Sprint(crc32.ChecksumIEEE([]byte(name))) }

// diskImage has a size in gigabytes and what it says of itself.
type diskImage struct {
	size     int
	features []string
}

// images are those from the start.
var images = map[string]diskImage{
	Image:    {2, []string{"UEFI_COMPATIBLE", "SEV_CAPABLE", "SEV_SNP_CAPABLE", "TDX_CAPABLE", "GVNIC"}},
	BigImage: {20, nil},
}

func (s *Sim) getImage(c *call) (any, error) { return s.imageNamed(c.path["image"]) }

func (s *Sim) getFamily(c *call) (any, error) { return s.imageNamed(c.path["family"]) }

func (s *Sim) listImages(c *call) (any, error) {
	var items []map[string]any
	for _, name := range []string{Image, BigImage} {
		image, err := s.imageNamed(name)
		if err != nil {
			return nil, err
		}
		items = append(items, image.(map[string]any))
	}
	return s.page(c, "compute#imageList", items)
}

// image returns one from the start or one that was imported.
func (s *Sim) image(name string) (diskImage, bool) {
	if own := s.imported[name]; own != nil && own["status"] == "READY" {
		return diskImage{2, images[Image].features}, true
	}
	image, ok := images[name]
	return image, ok
}

func (s *Sim) imageNamed(name string) (any, error) {
	image, ok := s.image(name)
	if !ok {
		return nil, notFound("projects/" + Project + "/global/images/" + name)
	}
	var features []any
	for _, feature := range image.features {
		features = append(features, map[string]any{"type": feature})
	}
	return map[string]any{
		"kind": "compute#image", "id": idOf(name), "selfLink": link("global/images/%s", name), "creationTimestamp": fixedStamp,
		"name": name, "status": "READY", "diskSizeGb": strconv.Itoa(image.size), "guestOsFeatures": features, "architecture": "X86_64",
	}, nil
}

// Object is in the store, and holds an image.
const Object = "gs://my-bucket/podvm-gcp-amd64.tar.gz"

// insertImage imports an image from the object store.
func (s *Sim) insertImage(c *call) (any, error) {
	name := text(c.body, "name")
	if _, taken := images[name]; taken || s.imported[name] != nil {
		return nil, refuse(http.StatusConflict, "alreadyExists", "The resource 'projects/%s/global/images/%s' already exists", Project, name)
	}
	source := text(object(c.body, "rawDisk"), "source")
	if !strings.HasPrefix(source, "https://storage.googleapis.com/") || !strings.HasSuffix(source, ".tar.gz") {
		return nil, invalid("resource.rawDisk.source", source, "The source must be a tar.gz in Cloud Storage.")
	}
	image := map[string]any{"id": fmt.Sprint(s.number()), "name": name, "status": "PENDING"}
	s.imported[name] = image
	s.World.Add("image", text(image, "id"), nil)
	op := s.begin(c, "insert", "global", s.link("global/images/%s", name), image["id"])
	s.later(func() { op.resource["progress"] = 50 }, func() {
		if source != strings.Replace(Object, "gs://", "https://storage.googleapis.com/", 1) {
			s.fail(op, cloudsim.Fault{Code: "RESOURCE_NOT_FOUND", Message: "The object " + source + " was not found", Status: http.StatusNotFound})
			return
		}
		image["status"] = "READY"
		s.finish(op)
	})
	return op.resource, nil
}

func (s *Sim) deleteImage(c *call) (any, error) {
	for name, image := range s.imported {
		if image["id"] == c.path["image"] || name == c.path["image"] {
			if image["status"] == "PENDING" && !s.failed(image) {
				return nil, refuse(http.StatusBadRequest, "resourceNotReady", "The resource '%s' is not ready", name)
			}
			delete(s.imported, name)
			s.World.Remove("image", text(image, "id"))
			op := s.begin(c, "delete", "global", s.link("global/images/%s", name), image["id"])
			s.finish(op)
			return op.resource, nil
		}
	}
	return nil, notFound("projects/" + Project + "/global/images/" + c.path["image"])
}

// failed reports whether the insert of an image has ended.
func (s *Sim) failed(image map[string]any) bool {
	for _, o := range s.operations {
		if o.resource["targetId"] == image["id"] && o.done() {
			return true
		}
	}
	return false
}

func (s *Sim) getGlobalOperation(c *call) (any, error) {
	o := s.operations["global/"+c.path["operation"]]
	if o == nil {
		return nil, notFound("operations/" + c.path["operation"])
	}
	return o.resource, nil
}

func (s *Sim) getNetwork(c *call) (any, error) {
	switch name := c.path["network"]; name {
	case Network, OtherNetwork:
		return map[string]any{
			"kind": "compute#network", "id": idOf(name), "name": name, "autoCreateSubnetworks": name == OtherNetwork,
			"selfLink": s.link("global/networks/%s", name), "creationTimestamp": fixedStamp,
		}, nil
	}
	return nil, notFound("projects/" + Project + "/global/networks/" + c.path["network"])
}

func (s *Sim) getSubnetwork(c *call) (any, error) {
	if c.path["region"] != Region || c.path["subnetwork"] != Subnetwork {
		return nil, notFound("projects/" + Project + "/regions/" + c.path["region"] + "/subnetworks/" + c.path["subnetwork"])
	}
	return map[string]any{
		"kind": "compute#subnetwork", "id": idOf(Subnetwork), "name": Subnetwork, "network": s.link("global/networks/%s", Network),
		"selfLink": s.link("regions/%s/subnetworks/%s", Region, Subnetwork), "region": s.link("regions/%s", Region),
		"ipCidrRange": "10.0.0.0/8", "gatewayAddress": "10.0.0.1", "creationTimestamp": fixedStamp,
	}, nil
}

func (s *Sim) getZone(c *call) (any, error) {
	return s.zone(c.path["zone"]), nil
}

func (s *Sim) zone(name string) map[string]any {
	return map[string]any{
		"kind": "compute#zone", "id": idOf(name), "name": name, "status": "UP", "description": name, "creationTimestamp": fixedStamp,
		"selfLink": s.link("zones/%s", name), "region": s.link("regions/%s", Region),
	}
}

func (s *Sim) listZones(c *call) (any, error) {
	var items []map[string]any
	for _, name := range Zones {
		items = append(items, s.zone(name))
	}
	return s.page(c, "compute#zoneList", items)
}

func (s *Sim) listRegions(c *call) (any, error) {
	return s.page(c, "compute#regionList", []map[string]any{s.region()})
}

func (s *Sim) getRegion(c *call) (any, error) {
	if c.path["region"] != Region {
		return nil, notFound("projects/" + Project + "/regions/" + c.path["region"])
	}
	return s.region(), nil
}

func (s *Sim) region() map[string]any {
	var quotas, zones []any
	for _, name := range Zones {
		zones = append(zones, s.link("zones/%s", name))
	}
	for _, metric := range []string{"INSTANCES", "CPUS", "IN_USE_ADDRESSES"} {
		left, limited := s.quotas[metric]
		if !limited {
			left = 1000
		}
		quotas = append(quotas, map[string]any{"metric": metric, "limit": left + 5, "usage": 5})
	}
	return map[string]any{
		"kind": "compute#region", "id": idOf(Region), "name": Region, "status": "UP", "quotas": quotas, "zones": zones,
		"selfLink": s.link("regions/%s", Region), "creationTimestamp": fixedStamp, "description": Region,
	}
}

var diskTypes = []string{"pd-standard", "pd-balanced", "pd-ssd", hyperdisk}

func (s *Sim) getDiskType(c *call) (any, error) {
	if !slices.Contains(diskTypes, c.path["diskType"]) {
		return nil, notFound("projects/" + Project + "/zones/" + c.path["zone"] + "/diskTypes/" + c.path["diskType"])
	}
	zone, name := c.path["zone"], c.path["diskType"]
	return map[string]any{
		"kind": "compute#diskType", "id": idOf(name), "name": name, "zone": s.link("zones/%s", zone), "validDiskSize": fmt.Sprintf("%dGB-%dGB", minGB(name), maxDiskGB),
		"defaultDiskSizeGb": "100", "selfLink": s.link("zones/%s/diskTypes/%s", zone, name), "creationTimestamp": fixedStamp,
	}, nil
}

// managerTags exist in the project, by their namespaced names.
var managerTags = map[string]string{Project + "/env": "test", "tagKeys/281": "tagValues/573"}

// partial returns what follows a collection in any of the forms of a
// reference: in full, from the project on, from the zone on.
func partial(reference, collection string) (string, bool) {
	reference = strings.TrimPrefix(reference, "https://www.googleapis.com"+apiPrefix)
	reference = strings.TrimPrefix(reference, "projects/"+Project+"/")
	name, ok := strings.CutPrefix(reference, collection+"/")
	return name, ok && !strings.Contains(name, "/")
}

func missing(field, value string) error {
	return invalid(field, value, "The referenced resource does not exist, or the URL is malformed.")
}
