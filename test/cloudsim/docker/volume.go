// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// volume is one that has a name.
type volume struct {
	name    string
	labels  map[string]string
	created time.Time
	files   map[string]*file
}

// file is a sparse one, which has no more data than its head.
type file struct {
	size int64
	head []byte
	// loop is the name of the loop device over it; empty if there is none. Busy says that an instance has it mounted.
	loop string
	busy bool
}

// mounted is a volume in a container.
type mounted struct {
	Type, Source, Target string
	ReadOnly             bool
	VolumeOptions        struct{ Labels map[string]string }
}

// volume returns the one of a name, and makes it if there is none.
func (e *Engine) volume(name string, labels map[string]string) *volume {
	if v := e.findVolume(name); v != nil {
		return v
	}
	v := &volume{name, labels, time.Now(), map[string]*file{}}
	e.volumes = append(e.volumes, v)
	e.World.Add(cloudsim.KindDisk, name, tagsOf(labels))
	return v
}

// AddForeignVolume makes somebody else's volume.
func (e *Engine) AddForeignVolume(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.volumes = append(e.volumes, &volume{name: name, created: time.Now()})
	e.World.AddForeign(cloudsim.KindDisk, name, nil)
}

func (e *Engine) findVolume(name string) *volume {
	for _, v := range e.volumes {
		if v.name == name {
			return v
		}
	}
	return nil
}

func (v *volume) answer() map[string]any {
	return map[string]any{"Name": v.name, "Driver": "local", "Mountpoint": "/var/lib/docker/volumes/" + v.name + "/_data", "CreatedAt": v.created.UTC().Format(time.RFC3339),
		"Labels": v.labels, "Scope": "local", "Options": map[string]string{}}
}

// createVolume returns one that there is already as it is.
func (k *call) createVolume() {
	var in struct {
		Name   string
		Labels map[string]string
	}
	if !k.decode(&in) {
		return
	}
	k.unlocked(func() { time.Sleep(step) })
	k.answer(http.StatusCreated, k.engine.volume(in.Name, in.Labels).answer())
}

func (k *call) inspectVolume() {
	if v := k.engine.findVolume(k.path["name"]); v != nil {
		k.answer(http.StatusOK, v.answer())
		return
	}
	k.fail(http.StatusNotFound, "get %s: no such volume", k.path["name"])
}

func (k *call) listVolumes() {
	filters, ok := k.filters("label")
	if !ok {
		return
	}
	found := []any{}
	for _, v := range k.engine.volumes {
		if has(v.labels, filters["label"]) {
			found = append(found, v.answer())
		}
	}
	k.answer(http.StatusOK, map[string]any{"Volumes": found, "Warnings": []string{}})
}

func (k *call) removeVolume() {
	e, v := k.engine, k.engine.findVolume(k.path["name"])
	if v == nil {
		k.fail(http.StatusNotFound, "get %s: no such volume", k.path["name"])
		return
	}
	for _, c := range e.containers {
		if c.mountsVolume(v.name) {
			k.fail(http.StatusConflict, "remove %s: volume is in use - [%s]", v.name, c.id)
			return
		}
	}
	e.volumes = slices.DeleteFunc(e.volumes, func(other *volume) bool { return other == v })
	e.World.Remove(cloudsim.KindDisk, v.name)
	k.answer(http.StatusNoContent, nil)
}

func (c *container) mountsVolume(name string) bool {
	return slices.ContainsFunc(c.config.HostConfig.Mounts, func(m mounted) bool { return m.Source == name })
}

// kill ends a container; its disk goes with SIGTERM, when nobody has it mounted.
func (k *call) kill() {
	c := k.container()
	switch {
	case c == nil:
	case c.status != "running":
		k.fail(http.StatusConflict, "Cannot kill container: %s: Container %s is not running", k.path["id"], c.id)
	case k.query.Get("signal") == "SIGTERM" && c.holds != nil:
		c.say("ending")
		if !c.holds.busy {
			c.stop(0)
		}
		k.answer(http.StatusNoContent, nil)
	default:
		c.stop(137)
		k.answer(http.StatusNoContent, nil)
	}
}

// unhold ends a loop device, unless it is mounted.
func (c *container) unhold() {
	if c.holds != nil && !c.holds.busy {
		c.holds.loop = ""
	}
	c.holds = nil
}

// diskProgram is what the guest's image has for disks (internal/guest/loopdisk).
var diskProgram = []string{"/init", "--disk"}

// workOnDisk does what that program does.
func (e *Engine) workOnDisk(c *container) {
	args := append(slices.Clone(c.config.Cmd), "", "", "", "")
	at := map[string]*volume{}
	for _, m := range c.config.HostConfig.Mounts {
		at[m.Target] = e.findVolume(m.Source)
	}
	ends := func(code int, format string, args ...any) {
		c.say(format, args...)
		c.stop(code)
	}
	disk := at["/disk"]
	if disk == nil {
		ends(1, "open /disk/%s: no such file or directory", args[1])
		return
	}
	f := disk.files[args[1]]
	switch args[0] {
	case "make":
		bytes, err := strconv.ParseInt(args[2], 10, 64)
		if err != nil {
			ends(1, "%v", err)
			return
		}
		if f == nil {
			f = &file{}
			if args[3] != "" {
				source := at["/source"]
				if source == nil || source.files[args[3]] == nil {
					ends(1, "open /source/%s: no such file or directory", args[3])
					return
				}
				f.size, f.head = source.files[args[3]].size, slices.Clone(source.files[args[3]].head)
			}
			disk.files[args[1]] = f
		}
		f.size = max(f.size, bytes)
		ends(0, "%d", f.size)
	case "hold":
		host := c.config.HostConfig
		switch {
		case f == nil:
			ends(1, "open /disk/%s: no such file or directory", args[1])
		case len(host.Devices) != 1 || host.Devices[0].PathOnHost != "/dev/loop-control" || !slices.Contains(host.DeviceCgroupRules, "b 7:* rwm"):
			ends(1, "open /dev/loop0: operation not permitted")
		case f.loop != "" && f.loop != args[2]:
			ends(3, "in use: %s has it still", f.loop)
		default:
			f.loop, c.holds = args[2], f
			c.say("ready")
		}
	default:
		ends(1, "%q is not make SERIAL BYTES [SOURCE] or hold SERIAL INSTANCE", c.config.Cmd)
	}
}

// disk returns the file of a disk by the name of its volume.
func (e *Engine) disk(name string) (*file, error) {
	if v := e.findVolume(name); v != nil {
		for _, f := range v.files {
			return f, nil
		}
	}
	return nil, fmt.Errorf("no volume %s with a disk", name)
}

// WriteDisk writes the first bytes of a disk by the name of its volume.
func (e *Engine) WriteDisk(name string, data []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	f, err := e.disk(name)
	if err == nil {
		f.head = slices.Clone(data)
	}
	return err
}

// ReadDisk returns the first bytes of a disk.
func (e *Engine) ReadDisk(name string, bytes int) ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f, err := e.disk(name)
	if err != nil {
		return nil, err
	}
	return append(slices.Clone(f.head), make([]byte, bytes)...)[:bytes], nil
}

// MountDisk has the instance of a disk mount or unmount it.
func (e *Engine) MountDisk(name string, is bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	f, err := e.disk(name)
	if err != nil {
		return err
	}
	f.busy = is
	for _, c := range e.containers {
		if c.holds == f && !is && c.console[len(c.console)-1].text == "ending\r\n" {
			c.stop(0)
		}
	}
	return nil
}
