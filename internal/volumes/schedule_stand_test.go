// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"k8s.io/mount-utils"
	"k8s.io/utils/exec"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/fake"
)

// schedule is a cluster of two nodes with the driver's three processes.
type schedule struct {
	*testing.T
	random *rand.Rand
	cloud  disks
	faults bool
	kill   func(vm string) // ends a VM as a crash does; nil where the cloud has none
	serial int
	mu     sync.Mutex // of random: adaptors remove in the background
	// wrapped says that the driver stands before another one, which knows no VMs.
	wrapped bool

	controller  *process
	nodes       []*nodeOf
	claims      []*claim
	pods        []*podOf
	attachments []*attachment

	died  map[string]int // processes, by where; and pods that ran, by kind
	story []string
}

// disks is a cloud with instances and disks.
type disks interface {
	provider.Provider
	provider.Lister
	provider.DiskController
}

// nodeOf is a node; its disks are files.
type nodeOf struct {
	*process
	id     string
	dir    string
	mounts *mount.FakeMounter
	inUse  map[*claim]bool
	vms    *vmAdaptor
}

func (n *nodeOf) path(parts ...string) string {
	return filepath.Join(append([]string{n.dir}, parts...)...)
}

func (n *nodeOf) staging(c *claim) string { return n.path("staging", c.name) }
func (n *nodeOf) target(p *podOf) string  { return n.path("pods", p.uid, "volume") }

func onFake(t *testing.T, seed uint64, wrapped bool) *schedule {
	c, err := fake.New(fake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return newSchedule(t, seed, wrapped, func() disks { return c })
}

// newSchedule returns a schedule whose processes, and those that come after them, each connect to a cloud.
func newSchedule(t *testing.T, seed uint64, wrapped bool, connect func() disks) *schedule {
	s := &schedule{T: t, random: rand.New(rand.NewPCG(seed, 0)), cloud: connect(), faults: true, died: map[string]int{}, wrapped: wrapped}
	s.controller = s.start(func(f *fuse) Options { return Options{Provider: &mortalCloud{connect(), f}, Cluster: "c1"} })
	for _, name := range []string{"n1", "n2"} {
		n := &nodeOf{id: s.instance(name, name), dir: filepath.Join(t.TempDir(), name), mounts: mount.NewFakeMounter(nil), inUse: map[*claim]bool{}}
		n.process = s.start(func(f *fuse) Options {
			return Options{Node: &NodeOptions{
				ID: n.id, Records: n.path("records"), Sys: n.path("sys"), Dev: n.path("dev"), Mounts: mount.NewSafeFormatAndMount(&mortalMounts{n.mounts, f}, exec.New()),
			}}
		})
		n.vms = s.newAdaptor(n, connect)
		s.nodes = append(s.nodes, n)
	}
	return s
}

func (s *schedule) instance(name, key string) string {
	i, err := s.cloud.CreateInstance(s.Context(), name, key, cloudinit.Raw("#cloud-config\nwrite_files: []\n"),
		provider.InstanceTypeSpec{Tags: map[string]string{provider.TagCluster: "c1", provider.TagKey: key}})
	if err != nil {
		s.Fatal(err)
	}
	return i.ID
}

// process is one of the driver's, and the next one when it has been killed.
type process struct {
	*Driver
	fuse *fuse
	next func() *Driver
	conn *grpc.ClientConn // of a wrapper
}

func (s *schedule) start(options func(*fuse) Options) *process {
	p := &process{}
	p.next = func() *Driver {
		p.fuse = &fuse{s: s, left: -1}
		o := options(p.fuse)
		o.Log = slog.New(slog.DiscardHandler)
		if s.wrapped {
			o.Wrapped = wrappedDriver(s.T, o)
		}
		o.Workloads = s
		d, err := New(o)
		if err != nil {
			s.Fatal(err)
		}
		if s.wrapped {
			p.conn = connect(s.T, d.server())
		}
		return d
	}
	p.Driver = p.next()
	return p
}

// request makes one request to a process, which may be killed at it.
func request[Q, R any](s *schedule, p *process, name string, method func(context.Context, Q) (R, error), r Q) (R, error) {
	if s.faults && s.random.IntN(4) == 0 {
		p.fuse.left = s.random.IntN(6)
	}
	got, err := ask(s, p, name, method, r)
	s.story = append(s.story, fmt.Sprintf("%s %+v: %v", name, r, err))
	if p.fuse.dead {
		s.died[p.fuse.where]++
		p.Driver = p.next()
		return got, fmt.Errorf("%s: %w", name, errDead)
	}
	return got, err
}

// ask has the driver do it, through the socket if there is one.
func ask[Q, R any](s *schedule, p *process, name string, method func(context.Context, Q) (R, error), r Q) (got R, err error) {
	if !s.wrapped {
		return call(p.Driver, s.Context(), name, method, r)
	}
	got = reflect.New(reflect.TypeFor[R]().Elem()).Interface().(R)
	service := "Controller"
	if strings.HasPrefix(name, "Node") {
		service = "Node"
	}
	return got, p.conn.Invoke(s.Context(), "/csi.v1."+service+"/"+name, r, got)
}

var errDead = errors.New("the process is dead")

// dice returns a number below n.
func (s *schedule) dice(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.IntN(n)
}

// fuse ends a process before or after one of the calls that leave it.
type fuse struct {
	s     *schedule
	mu    sync.Mutex
	left  int    // sides of calls; below 0: it does not burn
	at    string // where it burns as well
	dead  bool
	where string
	died  func() // at that instant; may be nil
}

func (f *fuse) burnt() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead
}

func (f *fuse) step(where string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if (f.left == 0 || f.at == where) && !f.dead {
		f.dead, f.where = true, where
		if f.died != nil {
			f.died()
		}
	}
	f.left--
	if f.dead {
		return errDead
	}
	return nil
}

// around does a call. While there are faults a cloud's reply may be lost.
func (f *fuse) around(name string, call func() error) error {
	if err := f.step("before " + name); err != nil {
		return err
	}
	err := call()
	if dead := f.step("after " + name); dead != nil {
		return dead
	}
	return err
}

// mortalCloud is the cloud as a process sees it.
type mortalCloud struct {
	disks
	fuse *fuse
}

func (c *mortalCloud) call(name string, call func() error) error {
	return c.fuse.around(name, func() error {
		err := call()
		if s := c.fuse.s; s.faults && s.dice(8) == 0 {
			return fmt.Errorf("%w: the reply is lost", provider.ErrUnavailable)
		}
		return err
	})
}

func (c *mortalCloud) CreateDisk(ctx context.Context, key string, spec provider.DiskSpec) (d *provider.Disk, err error) {
	err = c.call("CreateDisk", func() (err error) { d, err = c.disks.CreateDisk(ctx, key, spec); return err })
	return d, err
}

func (c *mortalCloud) GetDisk(ctx context.Context, id string) (d *provider.Disk, err error) {
	err = c.call("GetDisk", func() (err error) { d, err = c.disks.GetDisk(ctx, id); return err })
	return d, err
}

func (c *mortalCloud) DeleteDisk(ctx context.Context, id string) error {
	return c.call("DeleteDisk", func() error { return c.disks.DeleteDisk(ctx, id) })
}

func (c *mortalCloud) AttachDisk(ctx context.Context, id, instance string) (a *provider.Attachment, err error) {
	err = c.call("AttachDisk", func() (err error) { a, err = c.disks.AttachDisk(ctx, id, instance); return err })
	return a, err
}

func (c *mortalCloud) DetachDisk(ctx context.Context, id, instance string) error {
	return c.call("DetachDisk", func() error { return c.disks.DetachDisk(ctx, id, instance) })
}

func (c *mortalCloud) ResizeDisk(ctx context.Context, id string, bytes int64) (d *provider.Disk, err error) {
	err = c.call("ResizeDisk", func() (err error) { d, err = c.disks.ResizeDisk(ctx, id, bytes); return err })
	return d, err
}

// mortalMounts are the mounts of a node as a process sees them.
type mortalMounts struct {
	*mount.FakeMounter
	fuse *fuse
}

func (m *mortalMounts) Mount(source, target, fsType string, options []string) error {
	return m.fuse.around("Mount", func() error { return m.FakeMounter.Mount(source, target, fsType, options) })
}

func (m *mortalMounts) Unmount(target string) error {
	return m.fuse.around("Unmount", func() error { return m.FakeMounter.Unmount(target) })
}

func (m *mortalMounts) List() (list []mount.MountPoint, err error) {
	err = m.fuse.around("List", func() (err error) { list, err = m.FakeMounter.List(); return err })
	return list, err
}

// holder returns the instance that has the disk of a claim.
func (s *schedule) holder(c *claim) string {
	d, err := s.cloud.GetDisk(s.Context(), c.handle)
	if errors.Is(err, provider.ErrNotFound) && c.deleted {
		return "" // the reply to its deletion was lost
	}
	if err != nil {
		s.Fatal(err)
	}
	return d.InstanceID
}

// content is the file that is a claim's disk, 16 MiB for each GiB.
func (s *schedule) content(c *claim) string {
	path := filepath.Join(filepath.Dir(s.nodes[0].dir), c.name)
	d, err := s.cloud.GetDisk(s.Context(), c.handle)
	if err != nil {
		s.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = errors.Join(f.Truncate(d.Bytes>>6), f.Close())
	}
	if err != nil {
		s.Fatal(err)
	}
	return path
}

// plug gives each node the files of the disks that its instance has, and no other.
func (s *schedule) plug() {
	for _, n := range s.nodes {
		if err := errors.Join(os.RemoveAll(n.path("dev")), os.RemoveAll(n.path("sys")), os.MkdirAll(n.path("dev"), 0o755)); err != nil {
			s.Fatal(err)
		}
		for _, c := range s.claims {
			if c.handle == "" || s.holder(c) != n.id {
				continue
			}
			a, err := s.cloud.AttachDisk(s.Context(), c.handle, n.id) // again, for the serial number
			sys := n.path("sys/block", c.name)
			if err == nil {
				err = errors.Join(os.MkdirAll(sys, 0o755), os.WriteFile(filepath.Join(sys, "serial"), []byte(a.Serial), 0o644), os.Link(s.content(c), n.path("dev", c.name)))
			}
			if err != nil {
				s.Fatal(err)
			}
		}
	}
}

// checkFileSystems says that no disk has another file system than before.
func (s *schedule) checkFileSystems() {
	for _, c := range s.claims {
		f, err := os.Open(filepath.Join(filepath.Dir(s.nodes[0].dir), c.name))
		if err != nil {
			continue // no node has had it
		}
		uuid := make([]byte, 16)
		_, err = f.ReadAt(uuid, 1024+0x68) // s_uuid of ext4's superblock
		f.Close()
		if err != nil && !errors.Is(err, io.EOF) {
			s.Fatal(err)
		}
		text := hex.EncodeToString(uuid)
		if c.uuid != "" && c.uuid != text {
			s.Fatalf("%s was formatted again", c.name)
		}
		if text != hex.EncodeToString(make([]byte, 16)) {
			c.uuid = text
		}
	}
}
