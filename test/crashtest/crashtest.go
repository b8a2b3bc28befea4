// SPDX-License-Identifier: Apache-2.0

package crashtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/ttrpc"

	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	adaptorpb "github.com/outrigger/outrigger/internal/protocol/adaptor"
	hypervisorpb "github.com/outrigger/outrigger/internal/protocol/hypervisor"
)

// World is the environment of an adaptor; all of it outlives the adaptor's
// process.
type World interface {
	// Command is a new process of the adaptor, which must hook HookFromEnv.
	// The failpoint is added to its Env.
	Command() *exec.Cmd
	// Socket is where it serves the hypervisor protocol.
	Socket() string
	// Netns is the path of the pod's network namespace, which exists.
	Netns() string
	// Instances returns how many VMs there are.
	Instances() int
	// Leftovers names everything else that is there on behalf of a sandbox:
	// records, sockets, what the relay serves, tunnels.
	Leftovers() []string
}

// Sandbox is the id of the sandbox that every case uses.
const Sandbox = "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00"

// patience is how long a case waits for anything.
const patience = 2 * time.Minute

// Run kills an adaptor at the boundaries of CreateVM, StartVM and StopVM that are
// wanted, and again at those of the clean-up after that, each in a world of its
// own.
func Run(t *testing.T, newWorld func(*testing.T) World, wanted func(adaptor.Point) bool) {
	for _, point := range Points(t) {
		if !wanted(point) {
			continue
		}
		t.Run(point.String(), func(t *testing.T) {
			t.Parallel()
			c := &crash{t: t, world: newWorld(t)}
			c.killAt(point)
			c.expect(after(point))
		})
		if point.Phase != adaptor.BeforeUndo && point.Phase != adaptor.AfterUndo {
			continue
		}
		t.Run("again-"+point.String(), func(t *testing.T) {
			t.Parallel()
			c := &crash{t: t, world: newWorld(t)}
			c.killAt(adaptor.Point{Phase: adaptor.AfterDo, Step: "connect"})
			c.waitKilled(c.start(point.String()))
			c.expect("")
		})
	}
}

// Every wants all boundaries.
func Every(adaptor.Point) bool { return true }

// Points returns every boundary that CreateVM, StartVM and StopVM pass when all goes
// well, in order: those of one sandbox's life in this process.
func Points(t *testing.T) []adaptor.Point {
	t.Helper()
	folder := NewFolder(t)
	options, err := folderOptions(folder.Dir)
	if err != nil {
		t.Fatal(err)
	}
	var points []adaptor.Point
	options.Hook = func(p adaptor.Point) { points = append(points, p) }
	options.StopGrace = patience
	service, err := adaptor.New(options)
	if err != nil {
		t.Fatal(err)
	}
	_, err = service.CreateVM(t.Context(), createRequest(folder.Netns()))
	if err == nil {
		_, err = service.StartVM(t.Context(), &hypervisorpb.StartVMRequest{Id: Sandbox})
	}
	if err == nil {
		_, err = service.StopVM(t.Context(), &hypervisorpb.StopVMRequest{Id: Sandbox})
	}
	if err = errors.Join(err, service.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	return points
}

// after returns the state in which the next process must keep the sandbox; empty if it
// must remove it. Only the record counts: a sandbox is kept unless the record shows a
// StartVM or StopVM that was interrupted.
func after(p adaptor.Point) adaptor.State {
	switch p {
	case adaptor.Point{Phase: adaptor.AfterDo, Step: "record-intent"},
		adaptor.Point{Phase: adaptor.BeforeDo, Step: "claim"},
		adaptor.Point{Phase: adaptor.Begun, Step: "claim"},
		adaptor.Point{Phase: adaptor.AfterDo, Step: "claim"},
		adaptor.Point{Phase: adaptor.BeforeDo, Step: "create-instance"}:
		return adaptor.StateCreated
	case adaptor.Point{Phase: adaptor.AfterDo, Step: "ready"},
		adaptor.Point{Phase: adaptor.BeforeRecord, Step: "stopping"}:
		return adaptor.StateReady
	}
	return ""
}

// crash is one case.
type crash struct {
	t     *testing.T
	world World
}

// process is a running adaptor.
type process struct {
	cmd  *exec.Cmd
	done chan error
	log  *strings.Builder
}

// start runs an adaptor that will end at failpoint; empty means never.
func (c *crash) start(failpoint string) *process {
	c.t.Helper()
	p := &process{cmd: c.world.Command(), done: make(chan error, 1), log: new(strings.Builder)}
	if p.cmd.Env == nil {
		p.cmd.Env = os.Environ()
	}
	p.cmd.Env = append(p.cmd.Env, FailpointEnv+"="+failpoint)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { p.done <- p.cmd.Wait(); close(ended) }()
	c.t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-ended
		if c.t.Failed() {
			c.t.Logf("adaptor with failpoint %q wrote:\n%s", failpoint, p.log)
		}
	})
	return p
}

// killAt takes a sandbox through its whole life until the adaptor ends.
func (c *crash) killAt(point adaptor.Point) {
	c.t.Helper()
	p := c.start(point.String())
	client := c.dial(p)
	defer client.Close()
	hypervisor := hypervisorpb.NewHypervisorClient(client)
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	for _, call := range []func() error{
		func() error { _, err := hypervisor.CreateVM(ctx, createRequest(c.world.Netns())); return err },
		func() error {
			_, err := hypervisor.StartVM(ctx, &hypervisorpb.StartVMRequest{Id: Sandbox})
			return err
		},
		func() error {
			_, err := hypervisor.StopVM(ctx, &hypervisorpb.StopVMRequest{Id: Sandbox})
			return err
		},
	} {
		err := call()
		if errors.Is(err, ttrpc.ErrClosed) {
			break // the adaptor has ended; waitKilled tells whether as it should
		}
		if err != nil {
			c.t.Fatalf("before the failpoint: %v", err)
		}
	}
	c.waitKilled(p)
	if n := c.world.Instances(); n > 1 {
		c.t.Fatalf("%d instances when the adaptor ended, never more than 1", n)
	}
}

func createRequest(netns string) *hypervisorpb.CreateVMRequest {
	return &hypervisorpb.CreateVMRequest{
		Id:                   Sandbox,
		NetworkNamespacePath: netns,
		Annotations: map[string]string{
			"io.kubernetes.cri.sandbox-name":      "crash",
			"io.kubernetes.cri.sandbox-namespace": "default",
		},
	}
}

func (c *crash) waitKilled(p *process) {
	c.t.Helper()
	select {
	case <-p.done:
		status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
			c.t.Fatalf("the adaptor ended with %s, not at its failpoint", p.cmd.ProcessState)
		}
	case <-time.After(patience):
		c.t.Fatal("the adaptor never came to its failpoint")
	}
}

// expect starts the next adaptor and checks what it makes of the sandbox.
func (c *crash) expect(state adaptor.State) {
	c.t.Helper()
	p := c.start("")
	client := c.dial(p)
	defer client.Close()
	hypervisor := hypervisorpb.NewHypervisorClient(client)
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	c.waitState(ctx, client, state)
	instances := 0
	if state == adaptor.StateReady {
		instances = 1
	}
	c.wantInstances(instances)
	if state == adaptor.StateCreated {
		if _, err := hypervisor.StartVM(ctx, &hypervisorpb.StartVMRequest{Id: Sandbox}); err != nil {
			c.t.Fatalf("StartVM of a sandbox that was created before the crash: %v", err)
		}
		c.wantInstances(1)
	}
	if _, err := hypervisor.StopVM(ctx, &hypervisorpb.StopVMRequest{Id: Sandbox}); err != nil {
		c.t.Fatalf("StopVM: %v", err)
	}
	c.waitState(ctx, client, "")
	c.wantInstances(0)
	if left := c.world.Leftovers(); len(left) > 0 {
		c.t.Errorf("left over: %s", strings.Join(left, ", "))
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	if err := <-p.done; err != nil {
		c.t.Errorf("shutdown: %v", err)
	}
}

func (c *crash) wantInstances(want int) {
	c.t.Helper()
	if n := c.world.Instances(); n != want {
		c.t.Fatalf("%d instances, want %d", n, want)
	}
}

// waitState waits until the sandbox is in that state and stays in it; "" means
// gone.
func (c *crash) waitState(ctx context.Context, client *ttrpc.Client, want adaptor.State) {
	c.t.Helper()
	for {
		list, err := adaptorpb.NewAdaptorClient(client).ListSandboxes(ctx, &adaptorpb.ListSandboxesRequest{})
		if err != nil {
			c.t.Fatal(err)
		}
		state, reason := adaptor.State(""), ""
		if len(list.GetSandboxes()) > 0 {
			state = adaptor.State(list.GetSandboxes()[0].GetState())
			reason = list.GetSandboxes()[0].GetLastError()
		}
		if state == want {
			return
		}
		if state != adaptor.StateStopping {
			c.t.Fatalf("the sandbox is in state %q, want %q", state, want)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			c.t.Fatalf("the sandbox stays in state %q, want %q; last error: %s", state, want, reason)
		}
	}
}

// dial waits until the adaptor serves its socket.
func (c *crash) dial(p *process) *ttrpc.Client {
	c.t.Helper()
	deadline := time.After(patience)
	for {
		conn, err := net.Dial("unix", c.world.Socket())
		if err == nil {
			return ttrpc.NewClient(conn)
		}
		select {
		case err := <-p.done:
			c.t.Fatalf("the adaptor ended before it served: %v", err)
		case <-deadline:
			c.t.Fatal(fmt.Errorf("the adaptor does not serve: %w", err))
		case <-time.After(5 * time.Millisecond):
		}
	}
}
