// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"fmt"
)

// needed are the permissions of the calls (section "IAM Permissions" on each
// method's page). What an insert needs depends on what it says.
var needed = map[string][]string{
	"compute.instances.get":                 {"compute.instances.get"},
	"compute.instances.aggregatedList":      {"compute.instances.list"},
	"compute.instances.list":                {"compute.instances.list"},
	"compute.instances.delete":              {"compute.instances.delete"},
	"compute.instances.start":               {"compute.instances.start"},
	"compute.instances.stop":                {"compute.instances.stop"},
	"compute.instances.getSerialPortOutput": {"compute.instances.getSerialPortOutput"},
	"compute.disks.aggregatedList":          {"compute.disks.list"},
	"compute.disks.delete":                  {"compute.disks.delete"},
	"compute.disks.get":                     {"compute.disks.get"},
	"compute.disks.resize":                  {"compute.disks.resize"},
	"compute.instances.detachDisk":          {"compute.instances.detachDisk"},
	"compute.snapshots.get":                 {"compute.snapshots.get"},
	"compute.snapshots.list":                {"compute.snapshots.list"},
	"compute.snapshots.delete":              {"compute.snapshots.delete"},
	"compute.machineTypes.list":             {"compute.machineTypes.list"},
	"compute.zoneOperations.get":            {"compute.zoneOperations.get"},
	"compute.zoneOperations.wait":           {"compute.zoneOperations.get"},
	"compute.zoneOperations.list":           {"compute.zoneOperations.list"},
	"compute.images.get":                    {"compute.images.get"},
	"compute.images.list":                   {"compute.images.list"},
	"compute.images.getFromFamily":          {"compute.images.getFromFamily"},
	"compute.images.insert":                 {"compute.images.create"},
	"compute.images.delete":                 {"compute.images.delete"},
	"compute.globalOperations.get":          {"compute.globalOperations.get"},
	"compute.networks.get":                  {"compute.networks.get"},
	"compute.subnetworks.get":               {"compute.subnetworks.get"},
	"compute.machineTypes.get":              {"compute.machineTypes.get"},
	"compute.zones.get":                     {"compute.zones.get"},
	"compute.zones.list":                    {"compute.zones.list"},
	"compute.regions.list":                  {"compute.regions.list"},
	"compute.regions.get":                   {"compute.regions.get"},
	"compute.diskTypes.get":                 {"compute.diskTypes.get"},
}

func permissionsOf(c *call) []string {
	labelled := len(object(c.body, "labels")) > 0
	switch c.method.ID {
	case "compute.instances.insert":
	case "compute.disks.insert":
		return only(map[string]bool{
			"compute.disks.create": true, "compute.disks.setLabels": labelled, "compute.snapshots.useReadOnly": text(c.body, "sourceSnapshot") != "",
			"compute.disks.useReadOnly": text(c.body, "sourceDisk") != "",
		})
	case "compute.disks.createSnapshot":
		return only(map[string]bool{"compute.disks.createSnapshot": true, "compute.snapshots.create": true, "compute.snapshots.setLabels": labelled})
	case "compute.instances.attachDisk":
		return []string{"compute.instances.attachDisk", "compute.disks.use"} // for writing
	default:
		return needed[c.method.ID]
	}
	list := []string{"compute.instances.create", "compute.disks.create", "compute.images.useReadOnly"}
	add := func(wanted bool, names ...string) {
		if wanted {
			list = append(list, names...)
		}
	}
	for _, nic := range objects(c.body, "networkInterfaces") {
		add(text(nic, "subnetwork") != "", "compute.subnetworks.use")
		add(text(nic, "subnetwork") == "", "compute.networks.use")
		add(len(objects(nic, "accessConfigs")) > 0, "compute.subnetworks.useExternalIp")
	}
	for _, disk := range objects(c.body, "disks") {
		add(len(object(object(disk, "initializeParams"), "labels")) > 0, "compute.disks.setLabels")
	}
	add(len(object(c.body, "labels")) > 0, "compute.instances.setLabels")
	add(len(object(c.body, "metadata")) > 0, "compute.instances.setMetadata")
	add(len(object(c.body, "tags")) > 0, "compute.instances.setTags")
	add(len(object(object(c.body, "params"), "resourceManagerTags")) > 0, "compute.instances.createTagBinding")
	return list
}

// only returns the permissions that are needed.
func only(list map[string]bool) (names []string) {
	for name, wanted := range list {
		if wanted {
			names = append(names, name)
		}
	}
	return names
}

// allowed notes the permissions that a call needs and refuses it without them.
func (s *Sim) allowed(c *call) error {
	for _, name := range permissionsOf(c) {
		s.used[name] = true
		if s.lacking[name] {
			return refuse(http.StatusForbidden, "forbidden", "Required '%s' permission for 'projects/%s'", name, Project)
		}
	}
	return nil
}

// servePermissions is projects.testIamPermissions of the Resource Manager.
func (s *Sim) servePermissions(w http.ResponseWriter, r *http.Request) {
	if _, ok := s.principal(r); !ok {
		s.refuse(w, http.StatusUnauthorized, "authError", "Request had invalid authentication credentials.")
		return
	}
	var asked struct {
		Permissions []string `json:"permissions"`
	}
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&asked); err != nil || slices.ContainsFunc(asked.Permissions, func(p string) bool { return strings.Count(p, ".") != 2 }) {
		s.refuse(w, http.StatusBadRequest, "badRequest", "Permission is not valid for this resource.")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	granted := slices.DeleteFunc(asked.Permissions, func(p string) bool { return s.lacking[p] })
	fmt.Fprint(w, toJSON(map[string]any{"permissions": granted}))
}
