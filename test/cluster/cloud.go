// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/provider/plugin/wire"
	"github.com/outrigger/outrigger/test/stand"
)

// CloudName is the provider's.
const CloudName = "fake"

// guestNetwork is the part of the nodes' network that guests have.
var guestNetwork = netip.MustParsePrefix("192.168.99.64/26")

// Cloud is provider/fake, with its script of faults and its ledger, whose
// instances are guests: namespaces of this machine in which the programs of the
// pod VM run. A guest starts in the time of a process and takes the memory of
// one; all else of a pod's way is as with a VM. It is served to the other
// programs on Socket, so it lives on whatever becomes of those.
type Cloud struct {
	*fake.Cloud
	Socket string
	// Forwarder is somebody else's program for guests to run in place of our
	// agent-protocol-forwarder.
	Forwarder string

	dir     string
	cgroups cgroups

	mu     sync.Mutex
	guests map[string]*guest // by instance id
}

//go:embed guest.sh
var guestScript string

// StartCloud serves a cloud until the test ends.
func StartCloud(t testing.TB, o fake.Options) *Cloud {
	t.Helper()
	joinNetwork(t)
	c := &Cloud{dir: stand.Dir(t), guests: map[string]*guest{}}
	c.Socket = filepath.Join(c.dir, "provider.sock")
	c.cgroups = makeCgroups(t, c.dir)
	t.Cleanup(func() { c.clear(t) })
	must(t, os.WriteFile(filepath.Join(c.dir, "guest.sh"), []byte(guestScript), 0o600), "write the guests' script")
	must(t, os.Mkdir(filepath.Join(c.dir, "log"), 0o700), "make a folder")
	for _, program := range []string{"process-user-data", "podvm-agent", "agent-protocol-forwarder"} {
		stand.Binary(t, program)
	}
	o.Network, o.Boot, o.Halt = guestNetwork, c.boot, c.halt
	var err error
	c.Cloud, err = fake.New(o)
	must(t, err, "make a cloud")
	c.serve(t)
	return c
}

// Outrigger completes the options of an installation that uses the cloud.
func (c *Cloud) Outrigger(o OutriggerOptions) OutriggerOptions {
	o.Provider, o.Socket = CloudName, c.Socket
	return o
}

func (c *Cloud) serve(t testing.TB) {
	t.Helper()
	l, err := net.Listen("unix", c.Socket)
	must(t, err, "serve the cloud")
	must(t, os.Chmod(c.Socket, 0o600), "serve the cloud")
	provider := wire.NewServer(wire.Options{Name: CloudName, Version: "test", Cloud: fake.NewManager(), Configured: c.Cloud})
	server := grpc.NewServer(wire.ServerOptions()...)
	provider.Register(server)
	ended := make(chan struct{})
	go func() { defer close(ended); server.Serve(l) }()
	t.Cleanup(func() { server.Stop(); <-ended; provider.Close() })
}

// boot is of [fake.Options].
func (c *Cloud) boot(ctx context.Context, request fake.BootRequest) ([]netip.Addr, error) {
	if err := c.halt(ctx, request.Instance); err != nil { // an earlier try
		return nil, err
	}
	g := newGuest(c, request.Instance)
	c.mu.Lock()
	c.guests[request.Instance.ID] = g
	c.mu.Unlock()
	if err := g.start(request.UserData); err != nil {
		return nil, fmt.Errorf("%w: %w", provider.ErrUnavailable, err)
	}
	return nil, ctx.Err()
}

// halt is of [fake.Options].
func (c *Cloud) halt(_ context.Context, instance provider.Instance) error {
	c.mu.Lock()
	g := c.guests[instance.ID]
	c.mu.Unlock()
	if g == nil {
		return nil
	}
	if err := g.end(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.guests, instance.ID)
	return nil
}

// Guests are the names of the instances that run as processes.
func (c *Cloud) Guests() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for _, g := range c.guests {
		names = append(names, g.name)
	}
	return names
}

// Crash ends the guest of an instance as a lost machine does: the cloud still
// has it.
func (c *Cloud) Crash(instanceID string) error {
	c.mu.Lock()
	g := c.guests[instanceID]
	c.mu.Unlock()
	if g == nil {
		return fmt.Errorf("instance %s has no guest", instanceID)
	}
	return g.end()
}

// clear ends what a test has left, and shows the consoles if it has failed.
func (c *Cloud) clear(t testing.TB) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, g := range c.guests {
		errs = append(errs, g.end())
	}
	if err := errors.Join(append(errs, c.cgroups.remove())...); err != nil {
		t.Error(err)
	}
	if !t.Failed() {
		return
	}
	consoles, _ := filepath.Glob(filepath.Join(c.dir, "log", "*"))
	for _, path := range consoles[max(0, len(consoles)-mostConsoles):] {
		text, _ := os.ReadFile(path)
		t.Logf("end of %s:\n%s", path, text[max(0, len(text)-2000):])
	}
}

// mostConsoles bounds what a failed test shows.
const mostConsoles = 5
