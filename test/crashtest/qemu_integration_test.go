// SPDX-License-Identifier: Apache-2.0

//go:build integration

package crashtest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	"github.com/outrigger/outrigger/internal/peerpods/relay"
	relaypb "github.com/outrigger/outrigger/internal/protocol/relay"
	"github.com/outrigger/outrigger/test/crashtest"
	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
	"github.com/outrigger/outrigger/test/tier"
)

func TestMain(m *testing.M) {
	os.Exit(testns.Run(func() int {
		defer func() {
			if dir, err := programs(); err == nil {
				os.RemoveAll(dir)
			}
		}()
		return m.Run()
	}))
}

// programs builds the adaptor with failpoints, and the relay, once.
var programs = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("/var/tmp", "otc")
	if err != nil {
		return "", err
	}
	root := stand.Root()
	build := exec.Command("go", "build", "-tags", "failpoints,grpcnotrace", "-o", dir+"/", "./cmd/cloud-api-adaptor", "./cmd/agent-relay")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	image := os.Getenv("OUTRIGGER_PODVM_DIR")
	if image == "" {
		image = filepath.Join(root, "bin/podvm")
	}
	if _, err := os.Stat(filepath.Join(image, "initrd.cpio")); err != nil {
		return "", fmt.Errorf("%w; run: make podvm", err)
	}
	return dir, os.Symlink(image, dir+"/podvm")
})

// worlds numbers them, so that each has a bridge and a subnet of its own.
var worlds atomic.Int32

// qemuWorld is real QEMU, relay and network.
type qemuWorld struct {
	t                 *testing.T
	dir, netns, bin   string
	number            int32
	otherLinksAtStart int
}

func newQEMUWorld(t *testing.T) crashtest.World {
	testns.RequireRoot(t)
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	w := &qemuWorld{t: t, dir: stand.Dir(t), bin: bin, number: worlds.Add(1)}
	w.netns, _ = stand.PodNetns(t, bin, fmt.Sprintf("crash%d", w.number))
	w.otherLinksAtStart = len(w.podLinks())
	t.Cleanup(w.stopRelay)
	stand.ShowOnFailure(t, w.dir+"/relay.log")
	return w
}

func (w *qemuWorld) Command() *exec.Cmd {
	cmd := exec.Command(w.bin+"/cloud-api-adaptor", "qemu",
		"-socket", w.Socket(), "-pods-dir", w.dir+"/pods",
		"-qemu-state-dir", w.dir+"/qemu", "-qemu-accel", "tcg",
		// Adaptors are alone on their node; these are not.
		"-vxlan-min-id", fmt.Sprint(1000*w.number),
		"-qemu-bridge", fmt.Sprintf("orc%d", w.number),
		"-qemu-subnet", fmt.Sprintf("10.99.%d.0/24", w.number), "-qemu-subnet6", "none")
	cmd.Env = append(os.Environ(), "PROBE_PORT=0")
	return cmd
}

func (w *qemuWorld) Socket() string { return w.dir + "/hypervisor.sock" }
func (w *qemuWorld) Netns() string  { return w.netns }

// Instances counts QEMU processes, whatever the provider has on record.
func (w *qemuWorld) Instances() int {
	n := 0
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		program, _ := os.Readlink(process + "/exe")
		folder, _ := os.Readlink(process + "/cwd")
		line, _ := os.ReadFile(process + "/cmdline")
		if strings.HasPrefix(filepath.Base(program), "qemu-system") && strings.Contains(folder+" "+string(line), w.dir+"/qemu/") {
			n++
		}
	}
	return n
}

func (w *qemuWorld) Leftovers() []string {
	var left []string
	for _, pattern := range []string{"pods/*", "pods/.*", "qemu/instances/*"} {
		found, _ := filepath.Glob(filepath.Join(w.dir, pattern))
		left = append(left, found...)
	}
	if links := w.podLinks(); len(links) != w.otherLinksAtStart {
		left = append(left, "interfaces in the pod's namespace: "+strings.Join(links, " "))
	}
	if client, err := relay.Dial(context.Background(), w.dir+"/relay.sock"); err == nil {
		defer client.Close()
		list, err := client.List(context.Background(), &relaypb.ListRequest{})
		if err != nil || len(list.GetServed()) > 0 {
			left = append(left, fmt.Sprintf("served: %v, %v", list.GetServed(), err))
		}
	}
	return left
}

func (w *qemuWorld) podLinks() []string {
	ns, err := netns.GetFromPath(w.netns)
	if err != nil {
		w.t.Fatal(err)
	}
	defer ns.Close()
	handle, err := netlink.NewHandleAt(ns)
	if err != nil {
		w.t.Fatal(err)
	}
	defer handle.Close()
	links, err := handle.LinkList()
	if err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for _, link := range links {
		names = append(names, link.Attrs().Name)
	}
	return names
}

func (w *qemuWorld) stopRelay() {
	client, err := relay.Dial(context.Background(), w.dir+"/relay.sock")
	if err != nil {
		return
	}
	defer client.Close()
	if list, err := client.List(context.Background(), &relaypb.ListRequest{}); err == nil {
		syscall.Kill(int(list.GetPid()), syscall.SIGKILL)
	}
}

// TestKilledBetweenAnyTwoStepsOnQEMU: in `make test` the boundaries at which a VM
// is there to be found again: new, at work, and on its way out. At the
// others only the record differs, which is the same with VMs that are none
// (TestKilledBetweenAnyTwoSteps).
func TestKilledBetweenAnyTwoStepsOnQEMU(t *testing.T) {
	some := []adaptor.Point{
		{Phase: adaptor.AfterDo, Step: "create-instance"}, {Phase: adaptor.AfterDo, Step: "ready"}, {Phase: adaptor.BeforeUndo, Step: "create-instance"},
	}
	wanted := func(p adaptor.Point) bool { return slices.Contains(some, p) }
	if tier.All() {
		wanted = crashtest.Every
	}
	crashtest.Run(t, newQEMUWorld, wanted)
}
