// SPDX-License-Identifier: Apache-2.0

//go:build integration

package docker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/ttrpc"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/directvolume"
	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/poll"
	"github.com/outrigger/outrigger/test/dockerd"
)

// pod is a pod VM in a container that has booted.
type pod struct {
	*testing.T
	id, root string // root is its root file system, as this machine sees it
	address  string
	tls      *tls.Config
}

func bootPod(t *testing.T, e *dockerd.Engine, p *Provider, key string) *pod {
	t.Helper()
	data, config := guestConfig(t)
	i, err := p.CreateInstance(t.Context(), "pod", key, data, provider.InstanceTypeSpec{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := e.Client.ContainerInspect(t.Context(), i.ID, client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b := &pod{t, i.ID, fmt.Sprintf("/proc/%d/root", c.Container.State.Pid), netip.AddrPortFrom(i.IPs[0], forwarderPort).String(), config}
	err = poll.Pace{First: 20 * time.Millisecond, Max: 200 * time.Millisecond}.Until(within(t, bootWait), func() (bool, error) {
		return check(t.Context(), b.address, config) == nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// call asks the pod's agent, by way of the forwarder.
func (b *pod) call(do func(ctx context.Context, c agent.AgentServiceService) error) error {
	conn, err := tls.Dial("tcp", b.address, b.tls)
	if err != nil {
		b.Fatal(err)
	}
	c := ttrpc.NewClient(conn)
	defer c.Close()
	return do(within(b.T, bootWait), agent.NewAgentServiceClient(c))
}

// mount has the guest mount a disk, as for a container, which is none here: the forwarder refuses it after that.
func (b *pod) mount(serial string) (folder string) {
	b.Helper()
	point := filepath.Join(directvolume.GuestFolder, serial)
	err := b.call(func(ctx context.Context, c agent.AgentServiceService) error {
		_, err := c.CreateContainer(ctx, &agent.CreateContainerRequest{ContainerId: "c", Storages: []*agent.Storage{{Driver: directvolume.GuestDriver, Source: serial, Fstype: "ext4", MountPoint: point}}})
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "without an OCI spec") {
		b.Fatalf("mount disk %s: %v", serial, err)
	}
	return b.root + point
}

// end ends the pod, and not its container: its disks are unmounted.
func (b *pod) end() {
	b.Helper()
	_ = b.call(func(ctx context.Context, c agent.AgentServiceService) error {
		_, err := c.DestroySandbox(ctx, &agent.DestroySandboxRequest{})
		return err // there is no sandbox
	})
}

func bytesAt(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Blocks) * st.Bsize
}

func wantFile(t *testing.T, folder string) {
	t.Helper()
	if got, err := os.ReadFile(filepath.Join(folder, "kept")); err != nil || string(got) != "content" {
		t.Errorf("the file has %q, %v", got, err)
	}
}

// TestDiskOfPods: a disk is formatted by the guest that has it first, and the next one has its content, and so has a copy.
func TestDiskOfPods(t *testing.T) {
	e := dockerd.Start(t)
	e.LoadGuest(t)
	c := engineConfig(e)
	c.Image = dockerd.Guest
	p := mustOpen(t, c)
	first, second := bootPod(t, e, p, "first"), bootPod(t, e, p, "second")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	attach := func(diskID, instanceID string) string {
		t.Helper()
		a, err := p.AttachDisk(t.Context(), diskID, instanceID)
		must(err)
		return a.Serial
	}
	tags := map[string]string{provider.TagCluster: "c"}
	d, err := p.CreateDisk(t.Context(), "disk", provider.DiskSpec{Bytes: 1 << 30, Tags: tags})
	must(err)
	serial := attach(d.ID, first.id)
	folder := first.mount(serial)
	small := bytesAt(t, folder)
	kept, err := os.Create(filepath.Join(folder, "kept"))
	must(err)
	_, err = kept.WriteString("content")
	must(errors.Join(err, kept.Sync(), kept.Close()))
	_, err = p.ResizeDisk(t.Context(), d.ID, 3<<30)
	must(err)
	s, err := p.CreateSnapshot(t.Context(), "snapshot", d.ID, tags) // of a disk that is mounted
	must(err)

	// Whatever becomes of the container that holds it.
	if _, err := e.Client.ContainerKill(t.Context(), d.ID+suffixHeld, client.ContainerKillOptions{Signal: "KILL"}); err != nil {
		t.Fatal(err)
	}
	if again := attach(d.ID, first.id); again != serial || loops(serial) != 1 {
		t.Errorf("serial number %s, and then %s; %d loop devices", serial, again, loops(serial))
	}
	if _, err := e.Client.ContainerKill(t.Context(), d.ID+suffixHeld, client.ContainerKillOptions{Signal: "KILL"}); err != nil {
		t.Fatal(err)
	}
	mounted, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := p.DetachDisk(mounted, d.ID, first.id); !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("detach while it is mounted: %v", err)
	}
	if _, err := p.AttachDisk(t.Context(), d.ID, second.id); !errors.Is(err, provider.ErrInUse) {
		t.Errorf("attach to another while it is mounted: %v", err)
	}
	first.end()
	must(p.DetachDisk(t.Context(), d.ID, first.id))

	if again := attach(d.ID, second.id); again != serial {
		t.Errorf("serial number %s, and then %s", serial, again)
	}
	copied, err := p.CreateDisk(t.Context(), "copy", provider.DiskSpec{FromSnapshot: s.ID, Tags: tags})
	must(err)
	folder = second.mount(serial)
	wantFile(t, folder)
	wantFile(t, second.mount(attach(copied.ID, second.id)))
	if grown := bytesAt(t, folder); grown < 5*small/2 {
		t.Errorf("%d bytes after growing from %d", grown, small)
	}
	must(p.DeleteInstance(t.Context(), second.id)) // with both mounted
	must(errors.Join(p.DeleteInstance(t.Context(), first.id), p.DeleteSnapshot(t.Context(), s.ID), p.DeleteDisk(t.Context(), copied.ID), p.DeleteDisk(t.Context(), d.ID)))
	if left, err := leaks(e); err != nil || len(left) > 0 || loops(serial) > 0 {
		t.Errorf("left: %q, %d loop devices, %v", left, loops(serial), err)
	}
}
