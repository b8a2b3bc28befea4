// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/peerpods/podclient"
	"github.com/outrigger/outrigger/internal/protocol/hypervisor"
	"github.com/outrigger/outrigger/test/bench/promises"
	"github.com/outrigger/outrigger/test/stand"
)

func mib(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

// sizes of what is shipped.
func sizes(t *testing.T, _ int) []promises.Figure {
	adaptor := stand.Binary(t, "cloud-api-adaptor")
	lines := []promises.Figure{
		{Promise: "adaptor-size", Value: float64(size(t, adaptor)) / 1e6, How: "file size"},
		{Promise: "adaptor-static", Value: float64(len(libraries(t, adaptor))), How: "its dynamic section"},
	}
	for _, name := range []string{"agent-relay", "outrigger"} {
		lines = append(lines, promises.Figure{What: "`" + name + "`", Measured: mib(size(t, stand.Binary(t, name))), How: "file size"})
	}
	guest := func(file string) int64 { return size(t, stand.Binary(t, "podvm/"+file)) }
	plain, confidential := guest("initrd.cpio"), guest("confidential/initrd.cpio")
	return append(lines,
		promises.Figure{Promise: "image-size", Value: float64(plain) / (1 << 20), How: "file size"},
		promises.Figure{Promise: "confidential-size", Value: float64(confidential-plain) / (1 << 20), How: "it has " + mib(confidential)},
		promises.Figure{What: "guest image `podvm.qcow2`", Measured: mib(guest("podvm.qcow2")), How: "file size"})
}

func size(t *testing.T, path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func linkage(t *testing.T, path string) string {
	if len(libraries(t, path)) > 0 {
		return ", dynamic"
	}
	return ", static"
}

// libraries returns the shared libraries that a program needs.
func libraries(t *testing.T, path string) []string {
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	names, _ := file.ImportedLibraries() // none without a dynamic section
	return names
}

// memory of an idle adaptor, and what each sandbox adds to it.
func memory(t *testing.T, runs int) []promises.Figure {
	const sandboxes = 200
	var idle, each []int64
	for range runs {
		dir := stand.Dir(t)
		adaptor := stand.StartAdaptor(t, dir)
		client := podclient.New(dir + "/hypervisor.sock")
		if _, err := client.Info(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := rss(t, adaptor.Pid)
		for i := range sandboxes {
			_, err := client.CreateVM(t.Context(), &hypervisor.CreateVMRequest{Id: podclient.NewID(), Annotations: map[string]string{
				"io.kubernetes.cri.sandbox-name": fmt.Sprint("pod-", i), "io.kubernetes.cri.sandbox-namespace": "bench"}})
			if err != nil {
				t.Fatal(err)
			}
		}
		idle, each = append(idle, before), append(each, (rss(t, adaptor.Pid)-before)/sandboxes)
		adaptor.Kill()
	}
	return []promises.Figure{
		{Promise: "adaptor-idle", Value: float64(median(idle)) / (1 << 20), How: "VmRSS"},
		{Promise: "adaptor-sandbox", Value: float64(median(each)) / (1 << 10), How: fmt.Sprintf("VmRSS after CreateVM of %d sandboxes", sandboxes)},
	}
}

// monitorMemory is what each detached pod's monitor has for itself. Most of its
// VmRSS is the program's file, which all of them share and which the kernel may
// drop: it has the size of the program, kubectl-outrigger's part included.
func monitorMemory(t *testing.T, _ int) []promises.Figure {
	cmd := exec.Command(stand.Binary(t, "outrigger"), "monitor")
	stdin, err := cmd.StdinPipe() // it waits for a request
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer stdin.Close()
	own, before := int64(0), int64(-1)
	for own != before {
		time.Sleep(300 * time.Millisecond) // until it grows no more
		before, own = own, status(t, cmd.Process.Pid, "RssAnon:")
	}
	return []promises.Figure{{What: "`outrigger monitor`, of its own", Measured: mib(own), How: "RssAnon; its VmRSS of " + mib(rss(t, cmd.Process.Pid)) + " is mostly the program's file, which monitors share"}}
}

func rss(t *testing.T, pid int) int64 { return status(t, pid, "VmRSS:") }

// status reads a line of /proc/PID/status that is in KiB.
func status(t *testing.T, pid int, line string) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), line)
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// guestBoot measures from the start of QEMU to the first answer of the agent
// through relay and forwarder, in QEMU's CPU time and on the clock: of VMs that boot, and of
// those that are restored from one that was saved.
func guestBoot(t *testing.T, runs int) []promises.Figure {
	cpu, clock := startedVMs(t, runs, "never")
	restoredCPU, restoredClock := startedVMs(t, runs, "auto")
	return []promises.Figure{
		{Promise: "guest-boot", Value: median(cpu).Seconds(), How: "utime + stime of QEMU when StartVM returns"},
		{What: "CreateVM and StartVM of a VM that boots, elapsed", Measured: fmt.Sprintf("%.2f s", median(clock).Seconds())},
		{Promise: "guest-restored", Value: median(restoredCPU).Seconds() / median(cpu).Seconds(), How: fmt.Sprintf("%.2f s of processor time", median(restoredCPU).Seconds())},
		{What: "CreateVM and StartVM of a VM that is restored, elapsed", Measured: fmt.Sprintf("%.2f s", median(restoredClock).Seconds())},
	}
}

func startedVMs(t *testing.T, runs int, templates string) (cpu, clock []time.Duration) {
	dir := stand.Dir(t)
	adaptor := stand.StartAdaptor(t, dir, "-qemu-templates="+templates)
	defer adaptor.Stop(syscall.SIGTERM)
	client := podclient.New(dir + "/hypervisor.sock")
	for n := range runs + 1 {
		began := time.Now()
		pod, err := client.NewPod(podclient.PodSpec{Name: "boot"})
		if err != nil {
			t.Fatal(err)
		}
		if err := pod.CreateVM(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := pod.StartVM(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n > 0 { // the first one may have made the template
			clock, cpu = append(clock, time.Since(began)), append(cpu, qemuCPU(t, dir))
		}
		if err := pod.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return cpu, clock
}

// qemuCPU returns the CPU time of the one QEMU whose files are in dir.
func qemuCPU(t *testing.T, dir string) time.Duration {
	pids := stand.QEMUs(dir)
	if len(pids) != 1 {
		t.Fatalf("%d QEMUs are running", len(pids))
	}
	return cpu(t, pids[0])
}
