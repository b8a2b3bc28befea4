// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// container is one. Its states are created, running, exited and removing.
type container struct {
	id, name, status, volume string
	console                  []line
	exitCode                 int
	created, finished        time.Time
	addr                     netip.Addr
	config                   newContainer
	files                    map[string]string
	foreign                  bool
	holds                    *file // that it has a loop device over
}

// line is one of a container's output.
type line struct {
	at   time.Time
	text string
}

func (c *container) say(format string, args ...any) {
	c.console = append(c.console, line{time.Now(), fmt.Sprintf(format, args...) + "\r\n"})
}

// newContainer is the body of ContainerCreate, as far as it matters here.
type newContainer struct {
	Image, Hostname string
	Entrypoint, Cmd []string
	Tty             bool
	Labels          map[string]string
	HostConfig      struct {
		NetworkMode       string
		NanoCpus, Memory  int64
		Privileged        bool
		CapAdd            []string
		LogConfig         struct{ Type string }
		Mounts            []mounted
		Devices           []struct{ PathOnHost, CgroupPermissions string }
		DeviceCgroupRules []string
	}
	NetworkingConfig struct{ EndpointsConfig map[string]any }
}

func (c *container) stop(code int) {
	if c.status == "running" {
		c.status, c.exitCode, c.addr, c.finished = "exited", code, netip.Addr{}, time.Now()
		c.unhold()
	}
}

// find returns a container by id, by name or by the beginning of its id.
func (e *Engine) find(ref string) *container {
	for _, c := range e.containers {
		if c.id == ref || c.name == strings.TrimPrefix(ref, "/") {
			return c
		}
	}
	for _, c := range e.containers {
		if strings.HasPrefix(c.id, ref) {
			return c
		}
	}
	return nil
}

// container returns the one that the path names, or has answered that there is
// none.
func (k *call) container() *container {
	c := k.engine.find(k.path["id"])
	if c == nil {
		k.fail(http.StatusNotFound, "No such container: %s", k.path["id"])
	}
	return c
}

var nameRule = regexp.MustCompile(`^/?[a-zA-Z0-9][a-zA-Z0-9_.-]+$`)

// problem returns what the engine's verification of settings refuses, with its
// status.
func (n *newContainer) problem(name string) (status int, message string) {
	host := n.HostConfig
	_, image := images[n.Image]
	switch {
	case name != "" && !nameRule.MatchString(name):
		return 400, fmt.Sprintf("Invalid container name (%s), only [a-zA-Z0-9][a-zA-Z0-9_.-] are allowed", name)
	case !image:
		return 404, "No such image: " + n.Image
	case len(n.NetworkingConfig.EndpointsConfig) > 1:
		return 400, "Container cannot be connected to network endpoints: more than one"
	case host.NanoCpus < 0 || host.NanoCpus > CPUs*1e9:
		return 400, fmt.Sprintf("Range of CPUs is from 0.01 to %d.00, as there are only %d CPUs available", CPUs, CPUs)
	case host.Memory != 0 && host.Memory < 6<<20:
		return 400, "Minimum memory limit allowed is 6MB"
	}
	for _, name := range host.CapAdd {
		if !slices.Contains(capabilities, strings.TrimPrefix(name, "CAP_")) {
			return 400, fmt.Sprintf("invalid CapAdd: unknown capability: %q", name)
		}
	}
	return 0, ""
}

// capabilities are those of capabilities(7) that are asked for here.
var capabilities = []string{"ALL", "SYS_ADMIN", "NET_ADMIN", "NET_RAW", "SYS_PTRACE", "DAC_READ_SEARCH", "SYS_CHROOT", "MKNOD", "SYS_RESOURCE", "NET_BIND_SERVICE"}

func (k *call) create() {
	e := k.engine
	var in newContainer
	if !k.decode(&in) {
		return
	}
	name := strings.TrimPrefix(k.query.Get("name"), "/")
	if status, message := in.problem(name); status != 0 {
		k.fail(status, "%s", message)
		return
	}
	c := &container{id: newID(), name: name, status: "created", created: time.Now(), config: in, files: map[string]string{}}
	if name == "" {
		c.name = "unnamed_" + c.id[:8]
	}
	if e.names[c.name] {
		k.fail(http.StatusConflict, "Conflict. The container name \"/%s\" is already in use. You have to remove (or rename) that container to be able to reuse that name.", c.name)
		return
	}
	e.names[c.name] = true
	k.unlocked(func() { time.Sleep(step) })
	e.containers = append(e.containers, c)
	e.World.Add(cloudsim.KindInstance, c.id, tagsOf(in.Labels))
	if len(images[in.Image]) > 0 {
		c.volume = newID()
		e.World.Add(cloudsim.KindDisk, c.volume, nil)
	}
	for _, m := range in.HostConfig.Mounts {
		e.volume(m.Source, m.VolumeOptions.Labels) // made if there is none
	}
	k.answer(http.StatusCreated, map[string]any{"Id": c.id, "Warnings": []string{}})
}

// tagPrefix begins the labels that are owner tags.
const tagPrefix = "outrigger.tag/"

func tagsOf(labels map[string]string) map[string]string {
	tags := map[string]string{}
	for name, value := range labels {
		if tag, ok := strings.CutPrefix(name, tagPrefix); ok {
			tags[tag] = value
		}
	}
	return tags
}

func (k *call) start() {
	c := k.container()
	switch {
	case c == nil:
	case c.status == "running":
		k.answer(http.StatusNotModified, nil)
	case c.status == "removing":
		k.fail(http.StatusInternalServerError, "container is marked for removal and cannot be started")
	case networks[c.network()] == "":
		k.fail(http.StatusNotFound, "network %s not found", c.network())
	default:
		k.run(c)
	}
}

func (c *container) network() string {
	if mode := c.config.HostConfig.NetworkMode; mode != "" && mode != "default" {
		return mode
	}
	return Network
}

func (k *call) run(c *container) {
	k.unlocked(func() { time.Sleep(step) })
	switch c.status {
	case "removing":
		k.fail(http.StatusInternalServerError, "container is marked for removal and cannot be started")
		return
	case "created", "exited":
		c.status, c.exitCode = "running", 0
		if c.network() != none {
			c.addr = k.engine.address()
		}
		if slices.Equal(c.config.Entrypoint, diskProgram) {
			k.engine.workOnDisk(c)
		} else {
			c.say("The guest has booted.")
		}
	}
	if c.config.Image == EndingImage {
		c.stop(3)
	}
	k.answer(http.StatusNoContent, nil)
}

func yes(text string) bool { return text == "1" || text == "true" }

func (k *call) remove() {
	c := k.container()
	switch {
	case c == nil:
	case c.status == "removing":
		k.fail(http.StatusConflict, "removal of container %s is already in progress", k.path["id"])
	case c.status == "running" && !yes(k.query.Get("force")):
		k.fail(http.StatusConflict, "You cannot remove a running container %s. Stop the container before attempting removal or force remove", c.id)
	default:
		k.engine.World.Deleting(cloudsim.KindInstance, c.id)
		c.status, c.addr = "removing", netip.Addr{}
		c.unhold()
		k.unlocked(func() { time.Sleep(step) })
		k.engine.gone(c, yes(k.query.Get("v")))
		k.answer(http.StatusNoContent, nil)
	}
}

// gone ends a removal. The container's volume stays unless it was asked for.
func (e *Engine) gone(c *container, volumes bool) {
	e.containers = slices.DeleteFunc(e.containers, func(other *container) bool { return other == c })
	delete(e.names, c.name)
	e.World.Remove(cloudsim.KindInstance, c.id)
	if c.volume != "" && volumes {
		e.World.Remove(cloudsim.KindDisk, c.volume)
	}
}

// extract keeps the archive's files.
func (k *call) extract() {
	c := k.container()
	if c == nil {
		return
	}
	r := tar.NewReader(bytes.NewReader(k.body))
	for {
		head, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			k.fail(http.StatusInternalServerError, "Error processing tar file: %v", err)
			return
		}
		text, err := io.ReadAll(r)
		if err != nil {
			k.fail(http.StatusInternalServerError, "Error processing tar file: %v", err)
			return
		}
		if head.Typeflag == tar.TypeReg {
			c.files[path.Join(k.query.Get("path"), head.Name)] = string(text)
		}
	}
	k.answer(http.StatusOK, nil)
}

// logs sends the terminal's output as it is. Without a terminal the engine
// puts a frame around each piece; nobody asks for that here.
func (k *call) logs() {
	c := k.container()
	switch {
	case c == nil:
	case !c.config.Tty:
		k.fail(http.StatusInternalServerError, "containers without a terminal are not simulated")
	case !yes(k.query.Get("stdout")) && !yes(k.query.Get("stderr")):
		fail(k.out, http.StatusBadRequest, "Bad parameters: you must choose at least one stream")
	default:
		lines := c.console
		if n, err := strconv.Atoi(k.query.Get("tail")); err == nil {
			lines = lines[max(0, len(lines)-n):]
		}
		for _, l := range lines {
			if yes(k.query.Get("timestamps")) {
				_, _ = k.out.Write([]byte(l.at.UTC().Format(time.RFC3339Nano) + " "))
			}
			_, _ = k.out.Write([]byte(l.text))
		}
	}
}

// endpoints are the container's places in networks.
func (c *container) endpoints() map[string]any {
	place := map[string]any{"NetworkID": networks[c.network()], "EndpointID": "", "Gateway": "", "IPAddress": "", "IPPrefixLen": 0, "MacAddress": ""}
	if c.addr.IsValid() {
		place["EndpointID"], place["Gateway"], place["IPAddress"], place["IPPrefixLen"] = c.id, Gateway, c.addr.String(), 16
	}
	return map[string]any{"Networks": map[string]any{c.network(): place}}
}

func (k *call) inspect() {
	c := k.container()
	if c == nil {
		return
	}
	k.answer(http.StatusOK, map[string]any{
		"Id": c.id, "Name": "/" + c.name, "Created": c.created.UTC().Format(time.RFC3339Nano), "Image": imageID, "Driver": "overlay2", "Platform": "linux", "RestartCount": 0,
		"State":  map[string]any{"Status": c.status, "Running": c.status == "running", "Dead": false, "ExitCode": c.exitCode, "Error": "", "FinishedAt": c.finished.UTC().Format(time.RFC3339Nano)},
		"Config": map[string]any{"Image": c.config.Image, "Hostname": c.config.Hostname, "Labels": c.config.Labels, "Tty": c.config.Tty},
		"HostConfig": map[string]any{
			"NetworkMode": c.network(), "NanoCpus": c.config.HostConfig.NanoCpus, "Memory": c.config.HostConfig.Memory, "Privileged": c.config.HostConfig.Privileged, "CapAdd": c.config.HostConfig.CapAdd,
		},
		"NetworkSettings": c.endpoints(), "Mounts": c.mounts(),
	})
}

func (c *container) mounts() []any {
	if c.volume == "" {
		return []any{}
	}
	return []any{map[string]any{"Type": "volume", "Name": c.volume, "Source": "/var/lib/docker/volumes/" + c.volume, "Destination": Volume, "Driver": "local", "RW": true}}
}

// list knows the filter by labels.
func (k *call) list() {
	filters, ok := k.filters("label", "volume")
	if !ok {
		return
	}
	found := []any{}
	for _, c := range k.engine.containers {
		if (c.status == "running" || yes(k.query.Get("all"))) && has(c.config.Labels, filters["label"]) && (len(filters["volume"]) == 0 || slices.ContainsFunc(filters["volume"], c.mountsVolume)) {
			found = append(found, c.summary())
		}
	}
	k.answer(http.StatusOK, found)
}

// filters returns what a list is to be filtered by, or has answered that it cannot.
func (k *call) filters(known ...string) (values map[string][]string, ok bool) {
	filters := map[string]map[string]bool{}
	if text := k.query.Get("filters"); text != "" && json.Unmarshal([]byte(text), &filters) != nil {
		fail(k.out, http.StatusBadRequest, "invalid filter")
		return nil, false
	}
	values = map[string][]string{}
	for name, of := range filters {
		if !slices.Contains(known, name) {
			fail(k.out, http.StatusBadRequest, fmt.Sprintf("invalid filter '%s'", name))
			return nil, false
		}
		values[name] = slices.Collect(maps.Keys(of))
	}
	return values, true
}

func has(labels map[string]string, all []string) bool {
	for _, wanted := range all {
		name, value, valued := strings.Cut(wanted, "=")
		got, there := labels[name]
		if !there || valued && got != value {
			return false
		}
	}
	return true
}

func (c *container) summary() map[string]any {
	settings := c.endpoints()
	return map[string]any{
		"Id": c.id, "Names": []string{"/" + c.name}, "Image": c.config.Image, "ImageID": imageID, "Command": "/init", "Created": c.created.Unix(), "Ports": []any{},
		"Labels": c.config.Labels, "State": c.status, "Status": "Up or not", "HostConfig": map[string]any{"NetworkMode": c.network()},
		"NetworkSettings": settings, "Mounts": c.mounts(),
	}
}
