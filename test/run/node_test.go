// SPDX-License-Identifier: Apache-2.0

//go:build integration

// Package run proves the main job: pods in VMs of their own, from a container
// runtime's view, on the qemu provider without KVM.
package run

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/localnet"
	"github.com/outrigger/outrigger/internal/peerpods/podclient"
	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
)

func TestMain(m *testing.M) { testns.Main(m) }

// node is one adaptor with a registry for its guests.
type node struct {
	dir      string
	adaptor  *stand.Process
	client   *podclient.Client
	registry *stand.Registry
}

func newNode(t *testing.T, flags ...string) *node {
	t.Helper()
	testns.RequireRoot(t)
	dir := stand.Dir(t)
	return &node{
		dir:      dir,
		registry: stand.StartRegistry(t),
		adaptor:  stand.StartAdaptor(t, dir, flags...),
		client:   podclient.New(dir + "/hypervisor.sock"),
	}
}

// pod is a sandbox with a network of its own.
type pod struct {
	*podclient.Pod
	node *node
	port *localnet.Port
}

// newPod boots a VM; the pod is stopped when the test ends, if it still is.
func (n *node) newPod(t *testing.T, name string) *pod {
	t.Helper()
	netns, port := stand.PodNetns(t, n.dir, name)
	p, err := n.client.Create(t.Context(), podclient.PodSpec{
		Name: name, Namespace: "e2e", Netns: netns, DNS: []string{"search e2e.test", "nameserver " + outsideV4},
	})
	if err != nil {
		t.Fatalf("create pod %s: %v%s", name, err, consoleOf(err))
	}
	result := &pod{Pod: p, node: n, port: port}
	t.Cleanup(func() { result.stop(t) })
	return result
}

func consoleOf(err error) string {
	if start := (*podclient.StartError)(nil); errors.As(err, &start) {
		return "\nconsole:\n" + string(start.Console)
	}
	return ""
}

func (p *pod) stop(t *testing.T) {
	t.Helper()
	// The test's context has ended when this runs as a clean-up.
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Errorf("stop pod: %v", err)
	}
}

// output collects what a process writes, and can be waited on.
type output struct {
	mu      sync.Mutex
	buffer  bytes.Buffer
	changed chan struct{}
}

func newOutput() *output { return &output{changed: make(chan struct{}, 1)} }

func (o *output) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.changed <- struct{}{}:
	default:
	}
	return o.buffer.Write(data)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.String()
}

// wait blocks until the output contains text.
func (o *output) wait(t *testing.T, text string) {
	t.Helper()
	deadline := time.After(3 * time.Minute)
	for !strings.Contains(o.String(), text) {
		select {
		case <-o.changed:
		case <-deadline:
			t.Fatalf("output %q does not contain %q", tail(o.String()), text)
		}
	}
}

func tail(s string) string {
	if len(s) > 2000 {
		return "..." + s[len(s)-2000:]
	}
	return s
}

// container starts a container; its streams go to the outputs.
func (p *pod) container(t *testing.T, name string, args ...string) (*podclient.Container, *output, *output) {
	t.Helper()
	return p.containerWith(t, podclient.ContainerSpec{Name: name, Args: args}, nil)
}

func (p *pod) containerWith(t *testing.T, spec podclient.ContainerSpec, stdin *bytes.Reader) (*podclient.Container, *output, *output) {
	t.Helper()
	spec.Image, spec.Env = cmp.Or(spec.Image, p.node.registry.Ref), append(spec.Env, "PATH=/bin")
	c, err := p.CreateContainer(t.Context(), spec)
	if err != nil {
		t.Fatalf("create container %s: %v", spec.Name, err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatalf("start container %s: %v", spec.Name, err)
	}
	stdout, stderr := newOutput(), newOutput()
	streams := podclient.IO{Stdout: stdout, Stderr: stderr}
	if stdin != nil {
		streams.Stdin = stdin
	}
	c.Stream(streams)
	return c, stdout, stderr
}

// run runs a command in the container to its end.
func run(t *testing.T, c *podclient.Container, args ...string) (string, int) {
	t.Helper()
	process, err := c.Exec(t.Context(), podclient.ExecSpec{Args: args, Env: []string{"PATH=/bin"}})
	if err != nil {
		t.Fatalf("exec %v: %v", args, err)
	}
	out := newOutput()
	process.Stream(podclient.IO{Stdout: out, Stderr: out})
	code, err := process.Wait(t.Context())
	if err != nil {
		t.Fatalf("wait for %v: %v", args, err)
	}
	return out.String(), code
}

// mustRun is run for commands that are to succeed.
func mustRun(t *testing.T, c *podclient.Container, args ...string) string {
	t.Helper()
	out, code := run(t, c, args...)
	if code != 0 {
		t.Fatalf("%v: exit code %d\n%s", args, code, out)
	}
	return out
}

// leftovers returns what pods leave when they should not.
func (n *node) leftovers(t *testing.T) []string {
	t.Helper()
	var left []string
	for _, pattern := range []string{n.dir + "/pods/*", n.dir + "/qemu/instances/*"} {
		found, _ := filepath.Glob(pattern)
		left = append(left, found...)
	}
	for _, command := range [][]string{{"ip", "-o", "link"}, {"nft", "list", "ruleset"}} {
		for line := range strings.Lines(stand.Run(t, command[0], command[1:]...)) {
			// orpod0 is the test's own: it stands for a CNI plugin.
			if strings.Contains(line, "orpod0") {
				continue
			}
			if strings.Contains(line, "vxlan") || strings.Contains(line, "orvm") || strings.Contains(line, "outrigger_") {
				left = append(left, strings.TrimSpace(line))
			}
		}
	}
	for _, pid := range stand.QEMUs(n.dir) {
		left = append(left, fmt.Sprintf("QEMU, process %d", pid))
	}
	return left
}

// eventually polls what has no event to wait for.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (n *node) wantNothingLeft(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		if left := n.leftovers(t); len(left) > 0 {
			return fmt.Errorf("left behind:\n%s", strings.Join(left, "\n"))
		}
		return nil
	})
}
