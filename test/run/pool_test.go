// SPDX-License-Identifier: Apache-2.0

//go:build integration

package run

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/tier"
)

// poolState is a row of `outrigger pool ls -o json`.
type poolState struct {
	Ready, Starting, Size int
	Hits                  int64
	Error                 string
}

// newPool makes a pool.
func (c *cli) newPool(t *testing.T, size int) {
	t.Helper()
	if _, stderr, code := c.run(t, "", "pool", "create", "warm", "--size", fmt.Sprint(size)); code != 0 {
		t.Fatalf("pool create: exit code %d\n%s", code, stderr)
	}
	t.Cleanup(func() { c.run(t, "", "pool", "rm", "warm") })
}

func (c *cli) pool(t *testing.T) poolState {
	t.Helper()
	var list []poolState
	stdout, stderr, code := c.run(t, "", "pool", "ls", "-o", "json")
	if err := json.Unmarshal([]byte(stdout), &list); err != nil || code != 0 || len(list) != 1 || list[0].Error != "" {
		t.Fatalf("pool ls: %v, exit code %d, %s%s", err, code, stdout, stderr)
	}
	return list[0]
}

// instances returns how many VMs there are.
func (c *cli) instances() int {
	list, _ := filepath.Glob(c.state + "/instances/*/instance.json")
	return len(list)
}

func (c *cli) poolIsFull(t *testing.T, size int) {
	t.Helper()
	eventually(t, func() error {
		if p := c.pool(t); p.Ready != size || c.instances() != size {
			return fmt.Errorf("%+v, %d instances", p, c.instances())
		}
		return nil
	})
}

func (c *cli) exits(t *testing.T, code int) (stderr string) {
	t.Helper()
	stdout, stderr, got := c.run(t, "", "run", "--timeline", c.image, "--", "sh", "-c", fmt.Sprintf("echo out; exit %d", code))
	if got != code || stdout != "out\n" {
		t.Errorf("exit code %d, want %d: %q\n%s", got, code, stdout, stderr)
	}
	return stderr
}

// TestPool: two runs at once get two VMs, the pool makes others, and neither a run nor a
// daemon that is killed leaves anything.
func TestPool(t *testing.T) {
	c := newCLI(t)
	c.newPool(t, 2)
	if _, stderr, code := c.run(t, "", "pool", "create", "warm", "--size", "1"); code != 125 || !strings.Contains(stderr, "already") {
		t.Errorf("a pool of a name that there is: exit code %d, %s", code, stderr)
	}
	if _, stderr, code := c.run(t, "", "pool", "create", "huge", "--size", "900", "--memory", "8GiB"); code != 125 || !strings.Contains(stderr, "this machine has") {
		t.Errorf("a pool that is larger than the machine: exit code %d, %s", code, stderr)
	}
	var runs sync.WaitGroup
	for _, code := range []int{3, 5} {
		runs.Go(func() {
			if stderr := c.exits(t, code); !strings.Contains(stderr, "taking a VM of pool warm") || !strings.Contains(stderr, "hand-over") {
				t.Errorf("a run without a VM of the pool:\n%s", stderr)
			}
		})
	}
	runs.Wait()
	if p := c.pool(t); p.Hits != 2 {
		t.Errorf("two runs have taken %d VMs", p.Hits)
	}
	c.poolIsFull(t, 2)

	cmd := c.command(t, "run", "--quiet", c.image, "--", "sh", "-c", "echo up; sleep 1000000")
	up := newOutput()
	cmd.Stdout = up
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	up.wait(t, "up\n")
	cmd.Process.Kill()
	cmd.Wait()
	c.poolIsFull(t, 2)

	c.killAdaptor(t)
	if stdout, stderr, code := c.run(t, "", "pool", "rm", "warm"); code != 0 || stdout != "warm\n" {
		t.Errorf("pool rm: exit code %d, %s%s", code, stdout, stderr)
	}
	c.wantNothing(t)
}

// TestPoolKilledAtAnyTime kills the pool's daemon, a VM that waits, or a run, while a run comes.
// The next run has its exit code whatever is left of the pool.
func TestPoolKilledAtAnyTime(t *testing.T) {
	tier.OnlyAll(t) // internal/peerpods/adaptor kills at each step
	c := newCLI(t)
	c.newPool(t, 2)
	for i := range tier.Rounds(t, 3, 50) {
		cmd := c.command(t, "run", "--quiet", c.image, "--", "true")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(rand.N(1500 * time.Millisecond)) // any step of the run
		switch i % 3 {
		case 0:
			c.killAdaptor(t)
		case 1:
			cmd.Process.Kill()
		case 2:
			for _, pid := range stand.QEMUs(c.state) {
				syscall.Kill(pid, syscall.SIGKILL)
				break
			}
		}
		cmd.Wait()
		c.pool(t)
		c.exits(t, 7)
		c.poolIsFull(t, 2)
	}
	if _, stderr, code := c.run(t, "", "pool", "rm", "warm"); code != 0 {
		t.Errorf("pool rm: exit code %d\n%s", code, stderr)
	}
	c.wantNothing(t)
}
