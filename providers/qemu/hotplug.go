// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// Every machine has one virtio-scsi controller, and disks come and go on it. A PCI slot of its
// own for each disk would need a root port each in every saved VM, and a guest that lets the
// disk go: QEMU takes a SCSI disk away whatever the guest does, also while it boots.

const (
	// controllerID is the QEMU id of the controller.
	controllerID = "disks"
	// maxDisks is how many an instance can have. The controller has 256 targets.
	maxDisks = 64
	// plugWait is how long QEMU may take to attach or detach a disk: a few milliseconds.
	plugWait = 20 * time.Second
	// lockWait is how long the lock of an image may outlive the QEMU that had it: one that was
	// killed has ended for us when its first thread has.
	lockWait  = 3 * time.Second
	pollImage = 50 * time.Millisecond
	// pollPlug is how often it is looked whether QEMU has let a disk go.
	pollPlug = 2 * time.Millisecond
)

// controllerArguments add the controller and the disks that the machine starts with.
func controllerArguments(disks []string) []string {
	args := []string{"-device", "virtio-scsi-pci,id=" + controllerID}
	for _, id := range disks {
		node, _ := json.Marshal(imageNode(id, diskPath(id)))
		var device []string
		for _, property := range scsiDisk(id) {
			device = append(device, property[0]+"="+property[1])
		}
		args = append(args, "-blockdev", string(node), "-device", strings.Join(device, ","))
	}
	return args
}

// diskPath is where an instance's QEMU finds a disk, from the folder in which it runs.
func diskPath(id string) string {
	return filepath.Join("..", "..", shelf{kind: "disk"}.dir(), id, imageName)
}

// imageNode is what QEMU opens, as the QMP command blockdev-add takes it. The lock on the file
// keeps another QEMU from using it.
func imageNode(name, path string) map[string]any {
	return map[string]any{
		"node-name": name, "driver": "raw", "discard": "unmap",
		"file": map[string]any{"driver": "file", "filename": path, "locking": "on", "discard": "unmap"},
	}
}

// scsiDisk are the properties of the device of a disk. A full file system of the host is an error
// for the guest, as on the scratch disk.
func scsiDisk(id string) [][2]string {
	return [][2]string{
		{"driver", "scsi-hd"}, {"id", id}, {"bus", controllerID + ".0"}, {"drive", id}, {"serial", id}, {"werror", "report"},
	}
}

// withMonitor runs do on the control socket of an instance's QEMU.
func (p *Provider) withMonitor(ctx context.Context, instanceID string, wait time.Duration, do func(context.Context, *monitor) error) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	m, err := dialMonitor(ctx, p.store.folder(instanceID))
	if err != nil {
		return fmt.Errorf("%w: QEMU of instance %s: %w", provider.ErrUnavailable, instanceID, err)
	}
	defer m.close()
	err = do(ctx, m)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: QEMU of instance %s: %w", provider.ErrUnavailable, instanceID, errors.Join(context.Cause(ctx), err))
	}
	return err
}

// plug attaches a disk to a machine that runs, as far as it is not.
func plug(ctx context.Context, m *monitor, id string) error {
	there, err := m.hasDevice(id)
	if err != nil || there {
		return err
	}
	// One who was killed may have opened the image, which can have grown since.
	if err := m.closeNode(ctx, id); err != nil {
		return err
	}
	if err := m.open(id, diskPath(id)); err != nil {
		return err
	}
	device := map[string]string{}
	for _, property := range scsiDisk(id) {
		device[property[0]] = property[1]
	}
	for end := time.Now().Add(lockWait); ; {
		err := openElsewhere(m.call("device_add", device, nil))
		if !errors.Is(err, provider.ErrInUse) || time.Now().After(end) || poll.Sleep(ctx, pollImage) != nil {
			return err
		}
	}
}

// open opens an image.
func (m *monitor) open(name, path string) error {
	return openElsewhere(m.call("blockdev-add", imageNode(name, path), nil))
}

// openElsewhere gives the error that another QEMU has the image open its class
// (block/file-posix.c: Failed to get "write" lock).
func openElsewhere(err error) error {
	if err != nil && strings.Contains(err.Error(), "Failed to get") {
		return fmt.Errorf("%w: %w", provider.ErrInUse, err)
	}
	return err
}

// unplug detaches a disk from a machine that runs, as far as it is there, and
// returns when QEMU has closed its image.
func unplug(ctx context.Context, m *monitor, id string) error {
	if err := stopCopy(ctx, m, id); err != nil {
		return err
	}
	there, err := m.hasDevice(id)
	if err != nil {
		return err
	}
	if there {
		if err := m.call("device_del", map[string]string{"id": id}, nil); err != nil {
			return err
		}
	}
	return m.closeNode(ctx, id)
}

// closeNode closes an image. QEMU says that it is in use until it has let its device go.
func (m *monitor) closeNode(ctx context.Context, name string) error {
	for {
		opened, err := m.hasNode(name)
		if err != nil || !opened {
			return err
		}
		inUse := m.call("blockdev-del", map[string]string{"node-name": name}, nil)
		if inUse == nil {
			return nil
		}
		if err := poll.Sleep(ctx, pollPlug); err != nil {
			return errors.Join(err, inUse)
		}
	}
}

// named is an entry of QEMU's lists: a node of the block layer, or a device.
type named struct {
	Node string `json:"node-name"`
	Name string `json:"name"`
}

func (m *monitor) hasNode(name string) (bool, error) {
	var nodes []named
	err := m.call("query-named-block-nodes", map[string]bool{"flat": true}, &nodes)
	return slices.ContainsFunc(nodes, func(n named) bool { return n.Node == name }), err
}

func (m *monitor) hasDevice(id string) (bool, error) {
	var devices []named
	err := m.call("qom-list", map[string]string{"path": "/machine/peripheral"}, &devices)
	return slices.ContainsFunc(devices, func(n named) bool { return n.Name == id }), err
}
