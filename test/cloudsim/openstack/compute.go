// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/outrigger/outrigger/test/cloudsim"
)

type server struct {
	ID, Name, Status, Task, Zone string
	image, key                   string
	configDrive                  bool
	Metadata                     map[string]string
	flavor                       flavor
	port                         *port
	volume                       string
	userData, console, late      string
	created                      time.Time
}

// json is "Show server details" of the Compute API.
func (s *server) json(c *Cloud, minor int) map[string]any {
	body := map[string]any{
		"id": s.ID, "name": s.Name, "status": s.Status, "metadata": s.Metadata, "created": s.created.UTC().Format(time.RFC3339), "updated": s.created.UTC().Format(time.RFC3339),
		"tenant_id": ProjectID, "OS-EXT-STS:task_state": nil, "OS-EXT-AZ:availability_zone": s.Zone, "flavor": s.flavor.shown(minor),
		"addresses": s.addresses(), "image": "", "key_name": nil, "config_drive": "", "hostId": "", "user_id": "u1",
		"links": []map[string]string{{"rel": "self", "href": c.Server.URL + v2 + "servers/" + s.ID}},
	}
	if s.volume == "" {
		body["image"] = map[string]any{"id": s.image}
	}
	if s.key != "" {
		body["key_name"] = s.key
	}
	if s.configDrive {
		body["config_drive"] = "True"
	}
	if s.Task != "" {
		body["OS-EXT-STS:task_state"] = s.Task
	}
	if s.Status == "ERROR" {
		body["fault"] = map[string]any{"code": 500, "message": s.late, "created": s.created.UTC().Format(time.RFC3339)}
	}
	return body
}

const v2 = "/compute/v2.1/"

func (c *Cloud) computeRoutes() {
	c.computeVersion()
	c.handle("POST "+v2+"servers", "os_compute_api:servers:create", nil, c.createServer)
	c.handle("GET "+v2+"servers/detail", "os_compute_api:servers:detail", []string{"name", "limit", "marker"}, c.listServers)
	c.handle("GET "+v2+"servers/{id}", "os_compute_api:servers:show", nil, func(k *call) {
		if s := c.serverOf(k); s != nil {
			k.answer(http.StatusOK, map[string]any{"server": s.json(c, k.minor)})
		}
	})
	c.handle("DELETE "+v2+"servers/{id}", "os_compute_api:servers:delete", nil, c.deleteServer)
	c.handle("POST "+v2+"servers/{id}/action", "os_compute_api:servers:action", nil, c.serverAction)
	c.handle("GET "+v2+"flavors/detail", "os_compute_api:flavors", []string{"is_public", "limit", "marker"}, func(k *call) {
		page(k, "flavors", flavors, func(f flavor) string { return f.ID }, func(f flavor) map[string]any {
			return map[string]any{"id": f.ID, "name": f.Name, "vcpus": f.VCPUs, "ram": f.RAM, "disk": f.Disk, "swap": "", "rxtx_factor": 1.0}
		})
	})
	c.handle("GET "+v2+"os-availability-zone", "os_compute_api:os-availability-zone:list", nil, func(k *call) {
		var zones []map[string]any
		for _, name := range []string{ZoneA, ZoneB} {
			zones = append(zones, map[string]any{"zoneName": name, "zoneState": map[string]bool{"available": true}, "hosts": nil})
		}
		k.answer(http.StatusOK, map[string]any{"availabilityZoneInfo": zones})
	})
	c.show(v2+"os-keypairs/{id}", "os_compute_api:os-keypairs:show", "keypair", map[string]map[string]any{KeyName: {"name": KeyName}})
}

// newServer is the body of POST /servers (Compute API v2.1, "Create server").
type newServer struct {
	Server struct {
		Name      string            `json:"name"`
		ImageRef  *string           `json:"imageRef"`
		FlavorRef string            `json:"flavorRef"`
		Zone      string            `json:"availability_zone"`
		KeyName   string            `json:"key_name"`
		UserData  string            `json:"user_data"`
		Config    boolean           `json:"config_drive"`
		Metadata  map[string]string `json:"metadata"`
		Networks  []nic             `json:"networks"`
		Groups    []struct {
			Name string `json:"name"`
		} `json:"security_groups"`
		// Files are those of microversions below 2.57.
		Files   []any `json:"personality"`
		Devices []struct {
			Source      string `json:"source_type"`
			UUID        string `json:"uuid"`
			Destination string `json:"destination_type"`
			BootIndex   int    `json:"boot_index"`
			Delete      bool   `json:"delete_on_termination"`
			Size        int    `json:"volume_size"`
			Type        string `json:"volume_type"`
		} `json:"block_device_mapping_v2"`
	} `json:"server"`
}

func (n *newServer) image() string {
	if len(n.Server.Devices) > 0 {
		return n.Server.Devices[0].UUID
	}
	if n.Server.ImageRef != nil {
		return *n.Server.ImageRef
	}
	return ""
}

// metadataKey is Nova's grammar of keys (its schema parameter_types.metadata).
var metadataKey = regexp.MustCompile(`^[a-zA-Z0-9-_:. ]{1,255}$`)

// problem returns what Nova refuses at once, with its status.
func (n *newServer) problem(c *Cloud) (status int, message string) {
	in := n.Server
	switch {
	case in.Name == "" || len(in.Name) > 255:
		return 400, "Invalid input for field/attribute name."
	case len(in.UserData) > 65535:
		// Nova echoes what it refuses.
		return 400, fmt.Sprintf("Invalid input for field/attribute user_data. Value: %s. '%[1]s' is too long", in.UserData)
	case len(in.Metadata) > 128:
		return 403, "Maximum number of metadata items exceeds 128"
	case !slices.ContainsFunc(flavors, func(f flavor) bool { return f.ID == in.FlavorRef }):
		return 400, "Flavor " + in.FlavorRef + " could not be found."
	case n.image() == "":
		return 400, "You must supply a bootable disk"
	case !c.bootable(n.image()):
		return 400, "Can not find requested image"
	case in.Zone != "" && in.Zone != ZoneA && in.Zone != ZoneB:
		return 400, "The requested availability zone is not available"
	case in.KeyName != "" && in.KeyName != KeyName:
		return 400, "Invalid key_name provided."
	case len(in.Networks) != 1:
		return 400, "one network is what this simulator knows"
	}
	for _, group := range in.Groups {
		if group.Name != groupName && group.Name != Group {
			return 400, "Security group " + group.Name + " not found for project " + ProjectID + "."
		}
	}
	if _, err := base64.StdEncoding.DecodeString(in.UserData); err != nil {
		return 400, fmt.Sprintf("Invalid input for field/attribute user_data. Value: %s. '%[1]s' is not a 'base64'", in.UserData)
	}
	for key, value := range in.Metadata {
		if !metadataKey.MatchString(key) {
			return 400, fmt.Sprintf("Invalid input for field/attribute metadata. Value: %v. '%s' does not match any of the regexes: '%s'", in.Metadata, key, metadataKey)
		}
		if len(value) > 255 {
			return 400, fmt.Sprintf("Invalid input for field/attribute %s. Value: %s. '%[2]s' is too long", key, value)
		}
	}
	return in.Networks[0].problem(c)
}

func (c *Cloud) createServer(k *call) {
	var n newServer
	if !k.read(&n) {
		return
	}
	if message := n.newer(k.minor); message != "" {
		k.fail(http.StatusBadRequest, "badRequest", message)
		return
	}
	if status, message := n.problem(c); status != 0 {
		k.fail(status, map[int]string{400: "badRequest", 403: "forbidden", 409: "conflictingRequest"}[status], message)
		return
	}
	in := n.Server
	data, _ := base64.StdEncoding.DecodeString(in.UserData)
	s := &server{ID: newID(), Name: in.Name, Status: "BUILD", Task: "scheduling", Zone: cmp.Or(in.Zone, ZoneA), Metadata: in.Metadata, userData: string(data), late: k.r.Header.Get(lateHeader), created: time.Now()}
	s.flavor = flavors[slices.IndexFunc(flavors, func(f flavor) bool { return f.ID == in.FlavorRef })]
	s.image, s.key, s.configDrive = n.image(), in.KeyName, bool(in.Config)
	s.port = in.Networks[0].attach(c, s.ID)
	c.servers = append(c.servers, s)
	c.World.Add(cloudsim.KindInstance, s.ID, s.Metadata)
	if len(in.Devices) > 0 {
		s.volume = newID()
		c.World.Add(cloudsim.KindDisk, s.volume, nil)
	}
	c.later(s, c.place)
	k.answer(http.StatusAccepted, map[string]any{"server": map[string]any{"id": s.ID, "links": []any{}, "OS-DCF:diskConfig": "MANUAL", "adminPass": "x", "security_groups": []any{}}})
}

// later goes on with a server after a while, if it is still there.
func (c *Cloud) later(s *server, do func(*server)) {
	time.AfterFunc(step, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if slices.Contains(c.servers, s) {
			do(s)
		}
	})
}

// place finds a host, or none.
func (c *Cloud) place(s *server) {
	switch {
	case s.Task != "scheduling":
	case s.late != "":
		s.Status, s.Task = "ERROR", ""
	default:
		s.Task = "spawning"
		c.later(s, c.boot)
	}
}

func (c *Cloud) boot(s *server) {
	if s.Task == "spawning" {
		s.Status, s.Task = "ACTIVE", ""
		s.console += fmt.Sprintf("Booting %s.\n", s.Name)
	}
}

func (c *Cloud) serverOf(k *call) *server {
	i := slices.IndexFunc(c.servers, func(s *server) bool { return s.ID == k.r.PathValue("id") })
	if i < 0 {
		k.fail(http.StatusNotFound, "itemNotFound", "Instance "+k.r.PathValue("id")+" could not be found.")
		return nil
	}
	return c.servers[i]
}

// listServers filters by name, which is a regular expression.
func (c *Cloud) listServers(k *call) {
	name, err := regexp.Compile(k.r.URL.Query().Get("name"))
	if err != nil {
		k.fail(http.StatusBadRequest, "badRequest", "Invalid filter field: name.")
		return
	}
	var list []*server
	for _, s := range c.servers {
		if name.MatchString(s.Name) {
			list = append(list, s)
		}
	}
	page(k, "servers", list, func(s *server) string { return s.ID }, func(s *server) map[string]any { return s.json(c, k.minor) })
}

func (c *Cloud) deleteServer(k *call) {
	if s := c.serverOf(k); s != nil {
		s.Task = "deleting"
		c.World.Deleting(cloudsim.KindInstance, s.ID)
		c.later(s, c.finishDelete)
		k.answer(http.StatusNoContent, nil)
	}
}

// finishDelete takes the server away, its volume, and its port if Nova has made
// that; another is free.
func (c *Cloud) finishDelete(s *server) {
	c.servers = slices.DeleteFunc(c.servers, func(other *server) bool { return other == s })
	c.World.Remove(cloudsim.KindInstance, s.ID)
	if s.volume != "" {
		c.World.Remove(cloudsim.KindDisk, s.volume)
	}
	c.freeVolumes(s)
	s.port.detach(c, s.ID)
}

// serverAction is POST /servers/{id}/action, with one of three.
func (c *Cloud) serverAction(k *call) {
	raw := map[string]any{}
	if !k.read(&raw) {
		return
	}
	s := c.serverOf(k)
	if s == nil || len(raw) != 1 {
		return
	}
	for name, argument := range raw {
		switch name {
		case "os-stop":
			c.change(k, s, "ACTIVE", "powering-off", "SHUTOFF")
		case "os-start":
			c.change(k, s, "SHUTOFF", "powering-on", "ACTIVE")
		case "os-getConsoleOutput":
			options, _ := argument.(map[string]any)
			lines, _ := options["length"].(float64)
			k.answer(http.StatusOK, map[string]string{"output": lastLines(s.console, int(lines))})
		default:
			k.fail(http.StatusBadRequest, "badRequest", "There is no such action: "+name)
		}
	}
}

// change is refused in any other state (Compute API, "Stop server": 409).
func (c *Cloud) change(k *call, s *server, from, task, to string) {
	if s.Status != from || s.Task != "" {
		k.fail(http.StatusConflict, "conflictingRequest", fmt.Sprintf("Cannot do it while the instance is in vm_state %s, task_state %s", s.Status, s.Task))
		return
	}
	s.Task = task
	c.later(s, func(s *server) {
		if s.Task == task {
			s.Status, s.Task = to, ""
		}
	})
	k.answer(http.StatusAccepted, nil)
}

// lastLines is Nova's: what follows the last line feed is a line, also when it
// is empty.
func lastLines(text string, n int) string {
	if n == 0 {
		return ""
	}
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
