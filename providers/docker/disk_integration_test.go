// SPDX-License-Identifier: Apache-2.0

//go:build integration

package docker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"github.com/outrigger/outrigger/internal/blockdevice"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	checked "github.com/outrigger/outrigger/provider/kit/arguments"
	"github.com/outrigger/outrigger/test/csisanity"
	"github.com/outrigger/outrigger/test/dockerd"
	"github.com/outrigger/outrigger/test/tier"
)

// leaks returns what is left of containers and volumes.
func leaks(e *dockerd.Engine) ([]string, error) {
	left, err := e.Containers()
	if err != nil {
		return nil, err
	}
	list, err := e.Client.VolumeList(context.Background(), client.VolumeListOptions{})
	for _, v := range list.Items {
		left = append(left, v.Name)
	}
	return left, err
}

// diskFile opens the file of a disk, where the engine has its volume on this machine.
func diskFile(e *dockerd.Engine, id string) (*os.File, error) {
	v, err := e.Client.VolumeInspect(context.Background(), id, client.VolumeInspectOptions{})
	if err != nil {
		return nil, err
	}
	return os.OpenFile(filepath.Join(v.Volume.Mountpoint, v.Volume.Labels[labelSerial]), os.O_RDWR, 0)
}

func writeDisk(e *dockerd.Engine, id string, data []byte) error {
	file, err := diskFile(e, id)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteAt(data, 0)
	return err
}

func readDisk(e *dockerd.Engine, id string, bytes int) ([]byte, error) {
	file, err := diskFile(e, id)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data := make([]byte, bytes)
	_, err = file.ReadAt(data, 0)
	return data, err
}

// loops returns how many loop devices are over the file of a disk.
func loops(serial string) int {
	found, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	n := 0
	for _, name := range found {
		if file, _ := os.ReadFile(name); strings.Contains(string(file), serial) {
			n++
		}
	}
	return n
}

func TestCSISanityOnDockerd(t *testing.T) {
	tier.OnlyAll(t)
	e := dockerd.Start(t)
	p := mustOpen(t, engineConfig(e))
	node, err := p.CreateInstance(t.Context(), "node", "node", cloudinit.Raw("#cloud-config\n"), provider.InstanceTypeSpec{})
	if err != nil {
		t.Fatal(err)
	}
	csisanity.Run(t, csisanity.Options{Provider: checked.Checked(p), NodeID: node.ID})
	if err := p.DeleteInstance(t.Context(), node.ID); err != nil {
		t.Error(err)
	}
	if left, err := leaks(e); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// TestDisksAfterRestart: an engine that was killed has ended all containers, and with them attachments. They are mended, and what was
// on a disk is there.
func TestDisksAfterRestart(t *testing.T) {
	d := dockerd.StartDaemon(t, dockerd.Options{})
	d.ImportImage(t)
	p := mustOpen(t, engineConfig(d.Engine))
	node, err := p.CreateInstance(t.Context(), "node", "node", cloudinit.Raw("#cloud-config\n"), provider.InstanceTypeSpec{})
	if err != nil {
		t.Fatal(err)
	}
	disk, err := p.CreateDisk(t.Context(), "disk", provider.DiskSpec{Bytes: 1})
	if err == nil {
		err = writeDisk(d.Engine, disk.ID, []byte("data"))
	}
	if err != nil {
		t.Fatal(err)
	}
	a, err := p.AttachDisk(t.Context(), disk.ID, node.ID)
	if err != nil || loops(a.Serial) != 1 {
		t.Fatalf("%d loop devices, %v", loops(a.Serial), err)
	}
	d.Restart(t)
	eventually(t, "the loop device has ended with the engine's containers", func() bool { return loops(a.Serial) == 0 })
	if again, err := p.AttachDisk(t.Context(), disk.ID, node.ID); err != nil || again.Serial != a.Serial || loops(a.Serial) != 1 {
		t.Errorf("%+v, %d loop devices, %v", again, loops(a.Serial), err)
	}
	device := blockdevice.Find("/sys", "/dev", a.Serial)
	data := make([]byte, 4)
	if file, err := os.Open(device[0]); err != nil {
		t.Error(err)
	} else if _, err := file.ReadAt(data, 0); err != nil || string(data) != "data" {
		t.Errorf("%q, %v", data, err)
	} else {
		file.Close()
	}
	if err := errors.Join(p.DeleteInstance(t.Context(), node.ID), p.DeleteDisk(t.Context(), disk.ID)); err != nil {
		t.Error(err)
	}
	if left, err := leaks(d.Engine); err != nil || len(left) > 0 || loops(a.Serial) > 0 {
		t.Errorf("left: %q, %d loop devices, %v", left, loops(a.Serial), err)
	}
}
