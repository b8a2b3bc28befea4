// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/test/bench/promises"
	"github.com/outrigger/outrigger/test/stand"
)

// part is what a process has for itself, in bytes.
type part struct{ guest, code, rest int64 }

// poolVM is what a VM that waits in a pool has for itself: private pages of QEMU, of which
// those that can be executed are translated code.
func poolVM(t *testing.T, _ int) []promises.Figure {
	pool := &way{pool: stand.Dir(t)}
	t.Setenv("QEMU_TEMPLATE_DIR", pool.pool+"/templates")
	pool.asks(t, "pool", "create", "--quiet", "--size", "2")
	defer pool.asks(t, "pool", "rm", "default")
	pool.await(t, 2)
	var guest, code, rest, own []int64
	cwds, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, cwd := range cwds {
		if folder, _ := os.Readlink(cwd); strings.HasPrefix(folder, pool.pool+"/state/instances/") {
			p := private(t, filepath.Dir(cwd))
			guest, code, rest, own = append(guest, p.guest), append(code, p.code), append(rest, p.rest), append(own, p.guest+p.rest)
		}
	}
	if len(own) != 2 || median(guest) == 0 {
		t.Fatalf("%d VMs with %v bytes of their own in the template's memory, want 2", len(own), guest)
	}
	return []promises.Figure{{Promise: "pool-vm-memory", Value: float64(median(own)) / (1 << 20),
		How: fmt.Sprintf("private pages of QEMU's process: the guest's memory %s, QEMU itself %s; translated code %s", mib(median(guest)), mib(median(rest)), mib(median(code)))}}
}

var mapping = regexp.MustCompile(`(?m)^[0-9a-f]+-[0-9a-f]+ (\S+) \S+ \S+ \S+ +(.*)\n(?:[A-Z].*\n)*?Private_Dirty: +(\d+) kB$`)

// private reads smaps (proc_pid_smaps(5)). Clean pages of a file are the page cache's, also when no other process maps them.
func private(t *testing.T, process string) (p part) {
	text, err := os.ReadFile(process + "/smaps")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mapping.FindAllStringSubmatch(string(text), -1) {
		kib, _ := strconv.ParseInt(m[3], 10, 64)
		switch {
		case m[1] == "rwxp":
			p.code += kib << 10
		case strings.HasSuffix(m[2], "/memory"):
			p.guest += kib << 10
		default:
			p.rest += kib << 10
		}
	}
	return p
}
