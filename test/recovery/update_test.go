// SPDX-License-Identifier: Apache-2.0

//go:build integration

package recovery

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/deployed"
	"github.com/outrigger/outrigger/test/tier"
)

// pods is how many run while the adaptor is replaced.
const pods = 10

// counting prints numbers, with a pause in seconds.
func counting(pause string) string {
	return "i=0; while :; do echo $i; i=$((i+1)); sleep " + pause + "; done"
}

// TestAdaptorUpdateUnderTenPods replaces the adaptor as its DaemonSet does, under
// pods in guests.
func TestAdaptorUpdateUnderTenPods(t *testing.T) {
	s := newSite(t, cluster.OutriggerOptions{})
	s.updateAdaptor(t, "0.5")
	s.nothingIsLeft(t)
	s.nodeIsClean(t)
}

// TestAdaptorUpdateUnderTenVMs does the same under pods in VMs of the provider
// qemu, which runs on the node as in its overlay.
func TestAdaptorUpdateUnderTenVMs(t *testing.T) {
	tier.OnlyAll(t)
	deployed.RequirePodVM(t)
	s := newCluster(t)
	s.outrigger = cluster.Install(t, s.ControlPlane, s.node, cluster.OutriggerOptions{
		Provider: "qemu", Settings: map[string]string{"QEMU_ACCEL": "tcg"},
	})
	s.updateAdaptor(t, "1")
	s.nodeIsClean(t)
}

// updateAdaptor: containers go on, sessions stay open, no line of a log is lost,
// and a pod that is made while there is no adaptor waits for the next.
func (s *site) updateAdaptor(t *testing.T, pause string) {
	t.Helper()
	began := time.Now()
	all := s.startWatched(t, pause)
	t.Logf("%d pods with a session each after %s", pods, time.Since(began).Round(time.Second))
	before := s.containers(t)
	for n, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGTERM} {
		echoed(t, all, fmt.Sprintf("before %d", n))
		s.outrigger.Adaptor.Stop(signal)
		late := fmt.Sprintf("late-%d", n)
		must(t, s.create(s.newPod(late, "exec sleep infinity")))
		goOn(t, all)
		echoed(t, all, fmt.Sprintf("without an adaptor %d", n))
		s.outrigger.StartAdaptor(t)
		s.outrigger.AwaitReady(t)
		echoed(t, all, fmt.Sprintf("after %d", n))
		must(t, s.ready(late))
		must(t, s.remove(late))
		must(t, s.gone(late))
		t.Logf("update %d (%s) and a pod that came meanwhile: %s", n+1, signal, time.Since(began).Round(time.Second))
	}
	if out := s.Kubectl(t, "exec", all[0].pod, "--", "echo", "a new session"); out != "a new session\n" {
		t.Errorf("a new session printed %q", out)
	}
	if after := s.containers(t); before != after {
		t.Errorf("containers before:\n%safter:\n%s", before, after)
	}
	lines := 0
	for _, w := range all {
		w.finish(t)
		lines += s.checkLog(t, w)
	}
	t.Logf("3 updates under %d pods: sessions open throughout, %d lines, none lost, no restart", pods, lines)
	for _, w := range all {
		must(t, s.remove(w.pod))
	}
	for _, w := range all {
		must(t, s.gone(w.pod))
	}
}

// containers says of each container which it is and how often it was restarted.
func (s *site) containers(t *testing.T) string {
	t.Helper()
	return s.Kubectl(t, "get", "pods", "-o", "jsonpath={range .items[*]}{.metadata.name} {.status.phase} {range .status.containerStatuses[*]}{.containerID} {.restartCount} {.ready}{end}{\"\\n\"}{end}")
}

// watched is a pod with an open session and an open log.
type watched struct {
	pod     string
	session *session
	log     *output
	follow  *exec.Cmd
}

func (s *site) startWatched(t *testing.T, pause string) []*watched {
	t.Helper()
	var all []*watched
	for n := range pods {
		w := &watched{pod: fmt.Sprintf("counter-%d", n), log: new(output)}
		must(t, s.create(s.newPod(w.pod, counting(pause))))
		all = append(all, w)
	}
	for _, w := range all {
		must(t, s.ready(w.pod))
		w.session = s.openSession(t, w.pod)
		w.follow = s.Command("logs", "--follow", w.pod)
		w.follow.Stdout, w.follow.Stderr = w.log, w.log
		must(t, w.follow.Start())
		t.Cleanup(func() { w.follow.Process.Kill(); w.follow.Wait() })
	}
	return all
}

func echoed(t *testing.T, all []*watched, text string) {
	t.Helper()
	for _, w := range all {
		w.session.echo(t, text)
	}
}

// goOn waits until each log is longer than it is now.
func goOn(t *testing.T, all []*watched) {
	t.Helper()
	var seen []int
	for _, w := range all {
		seen = append(seen, w.log.lines())
	}
	for n, w := range all {
		for deadline := time.Now().Add(patience); w.log.lines() < seen[n]+3; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the log of %s ends with %q", w.pod, w.log.tail())
			}
		}
	}
}

// finish ends the session as whoever types Ctrl-D does. Something is typed before:
// kubectl closes its input under the deadline of the last thing that was written
// (client-go's remotecommand, in Close), so that an input that was silent for
// more than a minute is never closed.
func (w *watched) finish(t *testing.T) {
	t.Helper()
	w.session.echo(t, "the end")
	w.session.stdin.Close()
	if err := w.session.cmd.Wait(); err != nil {
		t.Errorf("the session in %s ended with %v: %s", w.pod, err, &w.session.stderr)
	}
}

// checkLog wants every number once and in order, in what was followed and in
// what kubelet has kept. It returns how many.
func (s *site) checkLog(t *testing.T, w *watched) int {
	t.Helper()
	kept := s.Kubectl(t, "logs", w.pod)
	w.follow.Process.Kill()
	w.follow.Wait()
	for name, text := range map[string]string{"followed": w.log.String(), "kept": kept} {
		text = text[:strings.LastIndex(text, "\n")+1]
		n := 0
		for line := range strings.Lines(text) {
			if line != fmt.Sprintf("%d\n", n) {
				t.Errorf("%s, %s log: line %d is %q", w.pod, name, n, line)
				break
			}
			n++
		}
	}
	return strings.Count(kept, "\n")
}

// session is an open `kubectl exec -i` of cat.
type session struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan string
	stderr bytes.Buffer
}

func (s *site) openSession(t *testing.T, pod string) *session {
	t.Helper()
	x := &session{cmd: s.Command("exec", "-i", pod, "--", "cat"), lines: make(chan string, 1)}
	x.cmd.Stderr = &x.stderr
	stdout, err := x.cmd.StdoutPipe()
	must(t, err)
	x.stdin, err = x.cmd.StdinPipe()
	must(t, err)
	must(t, x.cmd.Start())
	t.Cleanup(func() { x.cmd.Process.Kill() })
	go func() {
		defer close(x.lines)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			x.lines <- scanner.Text()
		}
	}()
	x.echo(t, "hello")
	return x
}

// echo types a line and waits for it to come back.
func (x *session) echo(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(x.stdin, text+"\n"); err != nil {
		t.Fatalf("%v: %v", x.cmd.Args, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	select {
	case line, open := <-x.lines:
		if line != text {
			t.Fatalf("%v answered %q (open: %t), want %q: %s", x.cmd.Args, line, open, text, &x.stderr)
		}
	case <-ctx.Done():
		t.Fatalf("%v does not answer", x.cmd.Args)
	}
}

// output is what a command has written so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func (o *output) lines() int { return strings.Count(o.String(), "\n") }

func (o *output) tail() string {
	text := o.String()
	return text[max(0, len(text)-200):]
}
