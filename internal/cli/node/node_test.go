// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/cli/record"
	"github.com/outrigger/outrigger/internal/procid"
)

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// A lock must hold although each holder removes the file that it is on.
func TestLockExcludesAlthoughTheFolderGoesAway(t *testing.T) {
	n := &Node{Root: filepath.Join(t.TempDir(), "root")}
	var wg sync.WaitGroup
	inside := make(chan struct{}, 1)
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 20 {
				unlock, err := n.Lock(testContext(t))
				if err != nil {
					t.Error(err)
					return
				}
				select {
				case inside <- struct{}{}:
					<-inside
				default:
					t.Error("two hold the lock")
				}
				// Removing the folder gives the lock away, so it comes last.
				if err := removeFiles(n.Root); err != nil {
					t.Error(err)
				}
				unlock()
			}
		}()
	}
	wg.Wait()
	os.RemoveAll(n.Root)
}

// fakeAdaptor is a program that serves -socket, as far as it matters here.
func fakeAdaptor(t *testing.T, body string) string {
	path := filepath.Join(t.TempDir(), "cloud-api-adaptor")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAdaptorThatFailsAtItsStart(t *testing.T) {
	n := &Node{Root: t.TempDir(), Provider: "qemu", AdaptorPath: fakeAdaptor(t, "echo time=now level=INFO; echo 'cloud-api-adaptor: provider qemu: no kernel'; exit 2\n")}
	err := n.EnsureAdaptor(testContext(t))
	if err == nil || err.Error() != "cloud-api-adaptor qemu ended at its start: provider qemu: no kernel" {
		t.Errorf("error %v", err)
	}
}

// TestCallsSayHowLongAVMMayTake: the adaptor's own limit of 5 minutes would make a longer
// --boot-timeout one without effect. What the user gives the adaptor comes later and holds.
func TestCallsSayHowLongAVMMayTake(t *testing.T) {
	n := &Node{Root: t.TempDir(), Provider: "qemu", AdaptorArgs: []string{"-proxy-timeout", "7m"}, AdaptorPath: fakeAdaptor(t, "echo \"$@\"; exit 2\n")}
	if err := n.EnsureAdaptor(testContext(t)); err == nil || !strings.Contains(err.Error(), "-proxy-timeout 24h -proxy-timeout 7m") {
		t.Errorf("the adaptor was started with %v", err)
	}
}

// TestArgumentsOfARunningAdaptor: those that it was not started with would be ignored.
func TestArgumentsOfARunningAdaptor(t *testing.T) {
	n := &Node{Root: t.TempDir(), Provider: "qemu"}
	if err := n.saveDaemons(daemons{Provider: "qemu", Args: []string{"-a"}}); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", n.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	n.AdaptorArgs = []string{"-qemu-templates=never"}
	if err := n.EnsureAdaptor(testContext(t)); err == nil || !strings.Contains(err.Error(), "-qemu-templates=never") {
		t.Errorf("arguments that the running adaptor has not: %v", err)
	}
}

func TestInterruptedStartLeavesNoAdaptor(t *testing.T) {
	n := &Node{Root: t.TempDir(), Provider: "qemu", AdaptorPath: fakeAdaptor(t, "exec sleep 1000\n")}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := n.EnsureAdaptor(ctx); err == nil {
		t.Fatal("no error")
	}
	if id := n.loadDaemons().Adaptor; id.PID == 0 || id.Alive() {
		t.Errorf("adaptor %+v is alive", id)
	}
}

func TestStopIfUnusedStopsOnlyWhatWasStartedHere(t *testing.T) {
	n := &Node{Root: filepath.Join(t.TempDir(), "root"), Provider: "qemu"}
	unlock, err := n.Lock(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	// A record of another boot, whose pid is now somebody else's: ours.
	stale := fmt.Sprintf(`{"adaptor":{"pid":%d,"start":1,"boot":"other"},"provider":"qemu"}`, os.Getpid())
	if err := os.WriteFile(n.adaptorPath(), []byte(stale), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.StopIfUnused(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(n.Root); !os.IsNotExist(err) {
		t.Error("the root folder is left")
	}
}

// TestAPoolKeepsItsAdaptor: its record is what needs it; after that it is pods.
func TestAPoolKeepsItsAdaptor(t *testing.T) {
	n := &Node{Root: filepath.Join(t.TempDir(), "root"), AdaptorPath: fakeAdaptor(t, "exec sleep 1000\n")}
	unlock, err := n.Lock(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	pool := &Pool{Name: "a", Provider: "qemu", AdaptorArgs: []string{"-x"}, Size: 2, MemoryMiB: 768}
	if err := n.AddPool(pool); err != nil {
		t.Fatal(err)
	}
	if err := n.AddPool(pool); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("twice: %v", err)
	}
	of := n.OfPool(pool)
	cmd, _, err := of.spawn(n.AdaptorPath)
	if err != nil {
		t.Fatal(err)
	}
	go cmd.Wait()
	id, err := procid.Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := of.saveDaemons(daemons{Adaptor: id, Provider: "qemu", Args: of.AdaptorArgs}); err != nil {
		t.Fatal(err)
	}
	pod := &record.Pod{ID: "1", Name: "web", Status: record.Running, Pool: "a"}
	for _, step := range []struct {
		what  string
		do    func() error
		alive bool
	}{
		{"a pool", func() error { return nil }, true},
		{"a pod", func() error { return errors.Join(n.Pods().Save(pod), of.ForgetPool()) }, true},
		{"nothing", func() error { return n.Pods().Delete("1") }, false},
	} {
		if err := errors.Join(step.do(), n.StopIfUnused(testContext(t))); err != nil {
			t.Fatal(err)
		}
		if id.Alive() != step.alive {
			t.Errorf("%s is left: the adaptor is alive: %t", step.what, id.Alive())
		}
		if again := n.For(pod); step.what == "a pod" && (again.Provider != "qemu" || !slices.Equal(again.loadDaemons().Args[len(of.AdaptorArgs):], []string{"-pool-size", "0"})) {
			t.Errorf("it is started again as %+v with %q", again, again.loadDaemons().Args)
		}
	}
	if _, err := os.Stat(n.Root); !os.IsNotExist(err) {
		t.Error("the root folder is left")
	}
}
