// SPDX-License-Identifier: Apache-2.0

//go:build integration

package run

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/peerpods/podclient"
	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// TestContainersOfOnePod walks through what containers can do, in one VM.
func TestContainersOfOnePod(t *testing.T) {
	n := newNode(t)
	p := n.newPod(t, "features")

	t.Run("ExitCode", func(t *testing.T) {
		c, stdout, stderr := p.container(t, "exit", "sh", "-c", "echo out; echo err >&2; exit 3")
		if code, err := c.Wait(t.Context()); err != nil || code != 3 {
			t.Errorf("exit code %d, %v", code, err)
		}
		if stdout.String() != "out\n" || stderr.String() != "err\n" {
			t.Errorf("stdout %q, stderr %q", stdout, stderr)
		}
	})
	t.Run("Timeline", func(t *testing.T) { timelineIsPlausible(t, p) })
	t.Run("Killed", func(t *testing.T) {
		c, stdout, _ := p.container(t, "killed", "sh", "-c", "echo up; sleep 1000000")
		stdout.wait(t, "up\n")
		if err := c.Signal(t.Context(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if code, err := c.Wait(t.Context()); err != nil || code != 137 {
			t.Errorf("exit code %d, %v", code, err)
		}
	})
	t.Run("NotFound", func(t *testing.T) {
		_, err := p.CreateContainer(t.Context(), podclient.ContainerSpec{
			Name: "missing", Image: strings.Replace(n.registry.Ref, "busybox", "nosuch", 1), Args: []string{"true"}})
		if err == nil || !strings.Contains(err.Error(), "nosuch") {
			t.Errorf("an image that does not exist gave %v", err)
		}
	})
	t.Run("Stdin", func(t *testing.T) { stdinComesBack(t, p) })
	t.Run("Hostname", func(t *testing.T) {
		c, stdout, _ := p.container(t, "hostname", "sh", "-c", "hostname; cat /etc/resolv.conf; cat /proc/sys/kernel/osrelease")
		c.Wait(t.Context())
		if !strings.HasPrefix(stdout.String(), "features\nsearch e2e.test\nnameserver "+outsideV4+"\n") {
			t.Errorf("hostname and resolv.conf: %q", stdout)
		}
	})
	t.Run("OOM", func(t *testing.T) {
		c, _, _ := p.containerWith(t, podclient.ContainerSpec{Name: "oom", MemoryBytes: 24 << 20, Args: []string{"tail", "/dev/zero"}}, nil)
		if code, err := c.Wait(t.Context()); err != nil || code != 137 {
			t.Errorf("exit code %d, %v", code, err)
		}
		eventually(t, func() error {
			if !c.OOMKilled() {
				return fmt.Errorf("no OOM event for the container")
			}
			return nil
		})
	})
	t.Run("SharedFiles", func(t *testing.T) {
		volume := []podclient.Mount{{Type: podclient.MountVolume, Source: "shared", Destination: "/data"}}
		first, _, _ := p.containerWith(t, podclient.ContainerSpec{Name: "init", Mounts: volume, Args: []string{"sh", "-c", "echo from-init > /data/file"}}, nil)
		if code, err := first.Wait(t.Context()); err != nil || code != 0 {
			t.Fatalf("init container: exit code %d, %v", code, err)
		}
		second, stdout, _ := p.containerWith(t, podclient.ContainerSpec{Name: "main", Mounts: volume, Args: []string{"cat", "/data/file"}}, nil)
		if code, err := second.Wait(t.Context()); err != nil || code != 0 || stdout.String() != "from-init\n" {
			t.Errorf("main container: exit code %d, %v, %q", code, err, stdout)
		}
	})
	t.Run("PauseAndUpdate", func(t *testing.T) { pauseAndUpdate(t, p) })
	t.Run("GuestPanics", func(t *testing.T) { guestPanics(t, p) }) // the last

	p.stop(t)
	n.wantNothingLeft(t)
}

// guestPanics: a channel without an answer would show it after most of a minute. The
// bound is for a busy machine; an idle one takes 2 s.
func guestPanics(t *testing.T, p *pod) {
	const soon = 20 * time.Second
	c, stdout, _ := p.containerWith(t, podclient.ContainerSpec{
		Name: "panic", Capabilities: []string{"CAP_SYS_ADMIN", "CAP_DAC_OVERRIDE"},
		// The container's own /proc cannot be written there.
		Args: []string{"sh", "-c", "mkdir /p && mount -t proc proc /p && echo up && until [ -e /go ]; do sleep 0.1; done; echo c > /p/sysrq-trigger; echo alive; sleep 1000000"},
	}, nil)
	stdout.wait(t, "up\n")
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go c.Exec(ctx, podclient.ExecSpec{Args: []string{"touch", "/go"}, Env: []string{"PATH=/bin"}}) // may get no answer any more
	code, err := c.Wait(ctx)
	took := time.Since(began)
	t.Logf("noticed after %v: exit code %d, %v", took, code, err)
	if err == nil || took > soon {
		t.Errorf("the panic of the guest was noticed after %v, want %v, with exit code %d, %v; output %q", took, soon, code, err, stdout)
	}
}

// stdinComesBack sends 8 MiB through cat in both directions at once.
func stdinComesBack(t *testing.T, p *pod) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 8<<20/16)
	c, stdout, _ := p.containerWith(t, podclient.ContainerSpec{Name: "cat", Args: []string{"cat"}}, bytes.NewReader(data))
	if code, err := c.Wait(t.Context()); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v", code, err)
	}
	if got := stdout.String(); sha256.Sum256([]byte(got)) != sha256.Sum256(data) {
		t.Errorf("%d bytes came back of %d, or other ones", len(got), len(data))
	}
}

func pauseAndUpdate(t *testing.T, p *pod) {
	c, stdout, _ := p.containerWith(t, podclient.ContainerSpec{Name: "busy", MemoryBytes: 64 << 20, Args: []string{"sh", "-c", "echo up; sleep 1000000"}}, nil)
	stdout.wait(t, "up\n")
	if err := c.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.UpdateResources(t.Context(), &agent.LinuxResources{
		Memory: &agent.LinuxMemory{Limit: 96 << 20, Swap: 96 << 20}, CPU: &agent.LinuxCPU{Quota: 50000, Period: 100000},
	}); err != nil {
		t.Fatal(err)
	}
	if got := mustRun(t, c, "cat", "/sys/fs/cgroup/memory.max"); got != fmt.Sprintln(96<<20) {
		t.Errorf("memory.max is %q after the update", got)
	}
	stats, err := c.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if limit := stats.GetCgroupStats().GetMemoryStats().GetUsage().GetLimit(); limit != 96<<20 {
		t.Errorf("stats show a limit of %d", limit)
	}
	if _, err := c.Stop(t.Context(), 0); err != nil {
		t.Error(err)
	}
}
