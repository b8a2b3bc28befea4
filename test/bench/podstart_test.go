// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/bench/promises"
	"github.com/outrigger/outrigger/test/stand"
)

var peer = flag.String("peer", "", "command line of another cloud-api-adaptor to measure beside ours, which takes -socket and -pods-dir as upstream's does, such as \"/opt/cloud-api-adaptor libvirt -uri qemu:///system\"; none if it is empty")

// way is one of the ways in which a pod gets its VM.
type way struct {
	name  string
	flags []string
	// pool is the folder of a pool of one VM, which each run finds full.
	pool string

	first, whole []time.Duration
	stages       []stage
}

// stage is a part of a start that overlaps with no other.
type stage struct {
	name string
	// until is the step whose end ends it.
	until string
	took  []time.Duration
}

func stages() []stage {
	return []stage{
		{name: "adaptor, network", until: "record-intent"}, {name: "VM", until: "create-instance"}, {name: "guest", until: "connect"},
		{name: "sandbox", until: "call-create-sandbox"}, {name: "image, container", until: "call-create-container"},
		{name: "start", until: "call-start-container"},
	}
}

// podStart is `outrigger run` as a user sees it, from nothing: with a VM that boots, with one
// that is restored from what an earlier run has saved, and with one that waits in a pool. The
// first two take turns, so that others slow both down alike; a pool has the network of VMs to
// itself.
func podStart(t *testing.T, runs int) measured {
	t.Setenv("QEMU_TEMPLATE_DIR", stand.Dir(t)) // others may have used up the usual one
	boots := &way{name: "VM boots", flags: []string{"--no-template"}, stages: stages()}
	restored := &way{name: "VM is restored", stages: stages()}
	pooled := &way{name: "VM of a pool", pool: stand.Dir(t), stages: stages()}
	restored.run(t) // makes the template
	ways := []*way{boots, restored}
	if *peer != "" {
		ways = append(ways, startPeer(t))
	}
	measure(t, runs, ways...)
	pooled.asks(t, "pool", "create", "--quiet", "--size", "1")
	measure(t, runs, pooled)
	pooled.asks(t, "pool", "rm", "default")
	ways = append(ways, pooled)
	how := "starts adaptor and relay, boots, pulls, runs"
	return measured{
		figures: []promises.Figure{
			{Promise: "first-output", Value: median(boots.first).Seconds(), How: how},
			{What: "`outrigger run` with a VM that boots, whole", Measured: fmt.Sprintf("%.2f s", median(boots.whole).Seconds()), How: "and removes everything"},
			{Promise: "first-output-restored", Value: median(restored.first).Seconds() / median(boots.first).Seconds(),
				How: fmt.Sprintf("%.2f s: starts adaptor and relay, restores, pulls, runs", median(restored.first).Seconds())},
			{What: "`outrigger run` with a VM that is restored, whole", Measured: fmt.Sprintf("%.2f s", median(restored.whole).Seconds()), How: "and removes everything"},
			{Promise: "first-output-pool", Value: median(pooled.first).Seconds() / median(restored.first).Seconds(),
				How: fmt.Sprintf("%.2f s: takes a VM, pulls, runs", median(pooled.first).Seconds())},
			{Promise: "restored-seconds", Value: median(restored.first).Seconds(), How: "median"},
			{Promise: "pool-seconds", Value: median(pooled.first).Seconds(), How: "median"},
			{Promise: "claim-to-ready", Value: pooled.took("VM", "guest").Seconds(), How: "of its timeline"},
			{Promise: "pull-and-start", Value: restored.took("image, container", "start").Seconds(), How: "1.1 MiB, in a VM that is restored"},
		},
		table:    startTable(ways),
		pictures: map[string]string{"start.svg": startPicture(ways)},
	}
}

// startPeer starts the adaptor that the user named, which ends with the test.
func startPeer(t *testing.T) *way {
	dir := stand.Dir(t)
	socket, words := dir+"/peer.sock", strings.Fields(*peer)
	cmd := exec.CommandContext(t.Context(), words[0], append(words[1:], "-socket", socket, "-pods-dir", dir+"/pods")...)
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(os.Interrupt) }, time.Minute
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatalf("-peer: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if conn, err := net.Dial("unix", socket); err == nil {
			conn.Close()
			return &way{name: "peer: VM boots", flags: []string{"--socket", socket}}
		}
		select {
		case err := <-ended:
			t.Fatalf("-peer %q ended: %v\n%s", *peer, err, said.String())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("-peer %q does not listen on %s", *peer, socket)
		}
	}
}

func measure(t *testing.T, runs int, ways ...*way) {
	for range runs {
		for _, w := range ways {
			first, whole := w.run(t)
			w.first, w.whole = append(w.first, first), append(w.whole, whole)
		}
	}
	for range (runs + 2) / 3 {
		for _, w := range ways {
			if len(w.stages) > 0 { // a peer has no timeline
				w.split(t)
			}
		}
	}
}

// took returns the sum of the medians of some stages.
func (w *way) took(stages ...string) (sum time.Duration) {
	for _, s := range w.stages {
		if slices.Contains(stages, s.name) {
			sum += median(s.took)
		}
	}
	return sum
}

func startTable(ways []*way) string {
	var out strings.Builder
	fmt.Fprintf(&out, promises.StartSection+`
From the command to the first byte of the container's output: `+"`outrigger run`"+` starts its daemons, gets a VM, pulls an image
of 1.1 MiB, and runs it. With a pool daemons and VM are there. VMs are emulated (TCG). %d runs of each way; load %.1f.

| | p50 | p90 | p99 |
|---|---|---|---|
`, len(ways[0].first), load())
	for _, w := range ways {
		fmt.Fprintf(&out, "| %s | %.2f s | %.2f s | %.2f s |\n", w.name, percentile(w.first, 50).Seconds(), percentile(w.first, 90).Seconds(), percentile(w.first, 99).Seconds())
	}
	out.WriteString("\n![The same, with the stages of a start](pictures/start.svg)\n\nStages are medians of other runs, from their timelines.\n")
	return out.String()
}

func startPicture(ways []*way) string {
	var bars []promises.Bar
	for _, w := range ways {
		bar := promises.Bar{Name: w.name, Marks: []promises.Mark{{Name: "p50", At: median(w.first).Seconds()}}}
		if p99 := percentile(w.first, 99); p99 > median(w.first)*5/4 { // else they lie on each other
			bar.Marks = append(bar.Marks, promises.Mark{Name: "p99", At: p99.Seconds()})
		}
		for _, s := range w.stages {
			bar.Parts = append(bar.Parts, promises.Part{Name: s.name, Length: median(s.took).Seconds()})
		}
		bars = append(bars, bar)
	}
	return promises.Picture("From `outrigger run` to the first output: stages of its start, and p50 and p99 of the whole", "s", bars)
}

func percentile(values []time.Duration, percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)]
}

// command is one of outrigger's, with folders of its own below root.
func command(t *testing.T, root string, args ...string) *exec.Cmd {
	cmd := exec.Command(stand.Binary(t, "outrigger"), args...)
	cmd.Env = append(os.Environ(), "OUTRIGGER_ROOT="+root+"/root", "QEMU_STATE_DIR="+root+"/state", "QEMU_ACCEL=tcg")
	return cmd
}

// output returns what a command prints.
func output(t *testing.T, root string, args ...string) []byte {
	cmd := command(t, root, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("outrigger %v: %v\n%s", args, err, stderr.String())
	}
	return out
}

// asks returns what a command prints that has the pool's folder.
func (w *way) asks(t *testing.T, args ...string) string {
	return string(output(t, w.pool, args...))
}

// folder returns that of a run: a new one, or that of the pool once its VM waits.
func (w *way) folder(t *testing.T) string {
	if w.pool == "" {
		return stand.Dir(t)
	}
	w.await(t, 1)
	return w.pool
}

// await returns when so many VMs of the pool wait.
func (w *way) await(t *testing.T, ready int) {
	for deadline := time.Now().Add(2 * time.Minute); !strings.Contains(w.asks(t, "pool", "ls", "-o", "json"), fmt.Sprintf(`"ready": %d`, ready)); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the pool is not filled")
		}
	}
}

// run returns the time to the first output, and to the end, when all is removed.
func (w *way) run(t *testing.T) (first, whole time.Duration) {
	cmd := command(t, w.folder(t), slices.Concat([]string{"run", "--quiet"}, w.flags, []string{"oci:" + stand.Binary(t, "demo-image"), "--", "echo", "hello"})...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	first = time.Since(began)
	io.Copy(io.Discard, stdout)
	if err := cmd.Wait(); err != nil || line != "hello\n" {
		t.Fatalf("outrigger run: %v, %q\n%s", err, line, stderr.String())
	}
	return first, time.Since(began)
}

// step is one of a start, as `outrigger timeline` writes it.
type step struct {
	Name                                string
	StartMilliseconds, TookMilliseconds float64
}

// timeline returns the steps of the pod called web.
func timeline(t *testing.T, root string) []step {
	var got struct{ Steps []step }
	if err := json.Unmarshal(output(t, root, "timeline", "web", "-o", "json"), &got); err != nil {
		t.Fatal(err)
	}
	return got.Steps
}

// split adds the stages of one more start.
func (w *way) split(t *testing.T) {
	root := w.folder(t)
	output(t, root, slices.Concat([]string{"run", "--quiet", "--detach", "--name", "web"}, w.flags, []string{"oci:" + stand.Binary(t, "demo-image"), "--", "sleep", "infinity"})...)
	steps := timeline(t, root)
	output(t, root, "rm", "-f", "web")
	last := 0.0
	for i := range w.stages {
		s := &w.stages[i]
		at := last
		for _, step := range steps {
			if step.Name == s.until {
				at = step.StartMilliseconds + step.TookMilliseconds
			}
		}
		if at == last {
			t.Fatalf("the timeline has no %s: %+v", s.until, steps)
		}
		s.took, last = append(s.took, time.Duration((at-last)*float64(time.Millisecond))), at
	}
}
