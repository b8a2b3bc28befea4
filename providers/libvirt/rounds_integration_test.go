// SPDX-License-Identifier: Apache-2.0

//go:build integration

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/libvirtd"
	"github.com/outrigger/outrigger/test/tier"
)

// TestRounds: instances one after the other and eight at a time leave nothing.
func TestRounds(t *testing.T) {
	d := start(t, libvirtd.Options{})
	p := connect(t, testConfig(d))
	for round := range tier.Rounds(t, 3, 30) {
		begin := time.Now()
		i := create(t, p, fmt.Sprint("round-", round))
		created := time.Now()
		remove(t, p, i.ID)
		t.Logf("round %d: created in %v, deleted in %v", round, created.Sub(begin), time.Since(created))
	}
	d.WantNothing(t)

	ids := createInParallel(t, p, 8)
	var wg sync.WaitGroup
	for _, id := range ids {
		wg.Go(func() { remove(t, p, id) })
	}
	wg.Wait()
	d.WantNothing(t)
}

// createInParallel returns the ids of instances that share nothing.
func createInParallel(t *testing.T, p *Provider, n int) []string {
	t.Helper()
	instances := make([]*provider.Instance, n)
	var wg sync.WaitGroup
	for n := range instances {
		wg.Go(func() {
			var err error
			if instances[n], err = tryCreate(t.Context(), p, fmt.Sprint("parallel-", n)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var ids []string
	seen := map[string]bool{}
	for _, i := range instances {
		if i == nil {
			continue
		}
		if ids = append(ids, i.ID); seen[i.ID] || seen[i.IPs[0].String()] {
			t.Errorf("two instances have id %s or address %s", i.ID, i.IPs[0])
		}
		seen[i.ID], seen[i.IPs[0].String()] = true, true
	}
	return ids
}

// otherProcess makes the test binary another process, which does what the
// variable names with the provider at the URI in its environment.
const (
	otherProcess = "LIBVIRT_TEST_PROCESS"
	asVictim     = "create and delete for ever"
	asDiskVictim = "take a disk through its life for ever"
	asNobody     = "verify without privileges"
)

func other(d *libvirtd.Daemon, what, uri string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), d.Env()...)
	cmd.Env = append(cmd.Env, otherProcess+"="+what, "LIBVIRT_URI="+uri)
	cmd.Stderr = os.Stderr
	return cmd
}

func runOther(what string) int {
	c := DefaultConfig()
	c.URI, c.Pool, c.Network, c.Volume = os.Getenv("LIBVIRT_URI"), libvirtd.Pool, libvirtd.Network, libvirtd.Volume
	c.Firmware, c.DomainType = firmwareBIOS, typeQEMU
	c.CPUs, c.Memory, c.RootDisk = 1, 96, 0
	if what == asNobody {
		return verifyAsNobody(c)
	}
	p, err := New(c)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("ready")
	if what == asDiskVictim {
		for err == nil {
			err = diskLife(context.Background(), p, instanceID("node"))
		}
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for {
		i, err := tryCreate(context.Background(), p, "sandbox-1")
		if err == nil {
			err = p.DeleteInstance(context.Background(), i.ID)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
}

// verifyAsNobody prints the class and the text of what the provider says.
func verifyAsNobody(c Config) int {
	const nobody = 65534
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	p, err := New(c)
	if err == nil {
		err = p.ConfigVerifier()
	}
	fmt.Printf("%v\n%v\n", provider.Class(err), err)
	return 0
}

// TestMakerKilledAtAnyInstant: whatever a process had done when it was killed,
// the next one finishes or removes.
func TestMakerKilledAtAnyInstant(t *testing.T) {
	d := start(t, libvirtd.Options{})
	p := connect(t, testConfig(d))
	for round := range tier.Rounds(t, 3, 8) {
		killAfter(t, other(d, asVictim, d.URI), time.Duration(round)*75*time.Millisecond)
		i := create(t, p, "sandbox-1")
		if again := create(t, p, "sandbox-1"); again.ID != i.ID {
			t.Errorf("round %d: one key, instances %s and %s", round, i.ID, again.ID)
		}
		if domains := strings.Fields(d.Virsh(t, "list", "--all", "--name")); len(domains) != 1 {
			t.Errorf("round %d: domains %q, want one", round, domains)
		}
		remove(t, p, i.ID)
		d.WantNothing(t)
	}
}

// TestRemainsOfAKilledMaker: they are listed, and deleting them leaves nothing.
func TestRemainsOfAKilledMaker(t *testing.T) {
	d := start(t, libvirtd.Options{})
	p := connect(t, testConfig(d))
	for round := range 6 {
		killAfter(t, other(d, asVictim, d.URI), time.Duration(round)*90*time.Millisecond)
		list, err := p.ListInstances(t.Context(), map[string]string{provider.TagCluster: "test"})
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range list {
			remove(t, p, i.ID)
		}
		d.WantNothing(t)
	}
}

// killAfter runs a victim that long and kills it.
func killAfter(t *testing.T, cmd *exec.Cmd, after time.Duration) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, len("ready\n"))
	if _, err := out.Read(line); err != nil || string(line) != "ready\n" {
		t.Fatalf("the victim says %q, %v", line, err)
	}
	<-time.After(after) // the instant, not a wait
	if err := cmd.Process.Kill(); err != nil {
		t.Fatalf("the victim ended by itself: %v", err)
	}
	cmd.Wait()
}
