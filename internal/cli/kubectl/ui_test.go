// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/cli/kubectl/ui"
	"github.com/outrigger/outrigger/test/pty"
)

// screen is the UI without a terminal.
type screen struct {
	t    *testing.T
	m    *ui.Model
	msgs chan tea.Msg
	quit bool
}

// look opens the UI of a namespace, or of all.
func (f *fakeAPI) look(namespace string, width, height int) *screen {
	return look(f.t, filepath.Join(f.dir, "kubeconfig"), namespace, width, height)
}

func look(t *testing.T, kubeconfig, namespace string, width, height int) *screen {
	t.Helper()
	a := &App{kubeconfig: kubeconfig, system: SystemNamespace, Now: func() time.Time { return now }}
	c, _, err := a.connect()
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{t: t, msgs: make(chan tea.Msg, 1000)}
	s.m = ui.New(ui.Options{Title: "test", Namespace: namespace, Views: viewNames, Open: newBoard(a, c).open}, func(msg tea.Msg) { s.msgs <- msg })
	t.Cleanup(s.m.Close)
	s.m.Init()
	s.m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	return s
}

// text is what is to be seen.
func (s *screen) text() string { return ansi.Strip(s.m.View().Content) }

func (s *screen) update(msg tea.Msg) {
	_, then := s.m.Update(msg)
	if then == nil {
		return
	}
	go func() {
		if msg := then(); msg != nil {
			s.msgs <- msg
		}
	}()
}

// press presses keys, of which those with names are enter, esc and the like.
func (s *screen) press(keys ...string) {
	named := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "down": tea.KeyDown, "backspace": tea.KeyBackspace, "pgdown": tea.KeyPgDown, "end": tea.KeyEnd, "home": tea.KeyHome}
	for _, key := range keys {
		if code, is := named[key]; is {
			s.update(tea.KeyPressMsg{Code: code})
			continue
		}
		for _, r := range key {
			s.update(tea.KeyPressMsg{Code: r, Text: string(r)})
		}
	}
}

// until waits for a screen that has all texts, and returns it.
func (s *screen) until(texts ...string) string {
	s.t.Helper()
	return s.when(func(seen string) bool {
		for _, text := range texts {
			if !strings.Contains(seen, text) {
				return false
			}
		}
		return true
	}, fmt.Sprintf("%q", texts))
}

func (s *screen) when(is func(string) bool, what string) string {
	s.t.Helper()
	deadline := time.After(time.Minute)
	for {
		if seen := s.text(); is(seen) {
			return seen
		}
		select {
		case msg := <-s.msgs:
			if _, s.quit = msg.(tea.QuitMsg); s.quit {
				s.t.Fatalf("it quit before there was %s", what)
			}
			s.update(msg)
		case <-deadline:
			s.t.Fatalf("no %s on the screen:\n%s", what, s.text())
		}
	}
}

// shop is a namespace with two pods in VMs, on two nodes, one of which has failed.
func (f *fakeAPI) shop() {
	f.node("node1", "10")
	f.node("node2", "5")
	f.pod("web", o{"phase": "Running"})
	f.pod("api", o{"phase": "Pending"})["spec"].(o)["nodeName"] = "node2"
	f.pod("plain", o{"phase": "Running"})["spec"].(o)["runtimeClassName"] = ""
	at := func(ms int) string {
		return now.Add(time.Duration(ms)*time.Millisecond - time.Hour).Format("2006-01-02T15:04:05.000000Z")
	}
	f.peerPod("web", o{"phase": "Ready", "instance": o{"id": "i-web", "type": "small"}, "conditions": []any{
		conditionObject("InstanceCreated", "True", "InstanceCreated", ""), conditionObject("Connected", "True", "Connected", ""), conditionObject("Ready", "True", "Ready", "")},
		"steps": []any{o{"name": "claim", "time": at(0)}, o{"name": "create-instance", "startTime": at(0), "time": at(1500)}, o{"name": "kernel", "place": "Guest", "startTime": at(1500), "time": at(2200)}}})
	f.peerPod("api", o{"lastError": o{"class": "quota exceeded", "message": "4 of 4 vCPUs", "step": "create-instance", "time": ago(time.Minute)}})["spec"].(o)["nodeName"] = "node2"
	f.put(api(peerPodGroup, "", "podvmpools", "small"), o{"metadata": o{"name": "small", "creationTimestamp": ago(time.Hour)}, "spec": o{"minReady": 2, "maxReady": 4, "instanceType": "tiny"},
		"status": o{"ready": 1, "starting": 1, "claimed": 3, "hits": 17, "conditions": []any{conditionObject("Ready", "False", "TooFew", "1 of 2 wait")}}})
	pooled := f.peerPod("small-0", o{})
	pooled["spec"].(o)["pool"], pooled["spec"].(o)["podName"], pooled["spec"].(o)["podUID"] = o{"name": "small"}, "", ""
	f.put(core("shop", "events", "e1"), o{"metadata": o{"name": "e1", "namespace": "shop"}, "involvedObject": o{"kind": "Pod", "namespace": "shop", "name": "web", "uid": "uid-web"}, "type": "Warning",
		"reason": "QuotaExceeded", "message": "4 of \x1b]0;owned\a4 \x1b[2Jtoken=abcdefgh12345678 " + strings.Repeat("x", 5000), "count": 3, "lastTimestamp": ago(time.Minute)})
	for path, object := range f.objects {
		if metadata, ok := object.(o)["metadata"].(o); ok && strings.Contains(path, "/peerpods/") {
			metadata["namespace"] = "shop"
		}
	}
	f.put(core(SystemNamespace, "pods", "adaptor-1"), o{"metadata": o{"name": "adaptor-1", "namespace": SystemNamespace}, "spec": o{"nodeName": "node1"},
		"status": o{"phase": "Running", "conditions": []any{o{"type": "Ready", "status": "True"}}}})
}

// TestUIGoesDeeper: from a node to its pods, to the VM with steps and Events, and back.
func TestUIGoesDeeper(t *testing.T) {
	f := newFakeAPI(t)
	f.shop()
	s := f.look("", 160, 40)
	got := s.until("web", "small", "4 of 4 vCPUs")
	wants(t, got, "pods [2]", "all namespaces", "shop       web  Running  node1  i-web  small  Ready")
	wantsNot(t, got, "plain")

	s.press(":nodes", "enter")
	got = s.until("node2", "ready")
	wants(t, got, "NODE   VMS  CAPACITY", "node1  1    10", "node2  1    5")
	s.press("j", "enter")
	wantsNot(t, s.until("nodes > pods of node2 [1]", "api"), "web")
	s.press("esc", "k", "enter", "enter")
	got = s.until("pod of shop/web", "create-instance", "QuotaExceeded")
	wants(t, got, "No problems.", "Instance i-web", "WHERE STEP", "guest kernel", "Events:", "3 times")
	if steps, events := strings.Index(got, "WHERE STEP"), strings.Index(got, "Events:"); steps > events {
		t.Errorf("the steps come after the Events:\n%s", got)
	}
	s.press("esc", "d")
	wantsNot(t, s.until("pod of shop/web", "QuotaExceeded"), "WHERE STEP")
	s.press("esc", "esc")
	s.until("nodes [2]")
	s.press("d")
	s.until("Node node1", "kata.peerpods.io/vm 10")
}

// TestUIViews: each view shows what it is for, and what Enter leads to.
func TestUIViews(t *testing.T) {
	f := newFakeAPI(t)
	f.shop()
	s := f.look("shop", 200, 40)
	s.until("web", "namespace shop")
	s.press(":pools", "enter")
	wants(t, s.until("small", "TooFew: 1 of 2 wait"), "17", "tiny")
	s.press("d")
	s.until("PodVMPool small  not ready")
	s.press("esc", "enter")
	wantsNot(t, s.until("pools > vms of small [1]", "small-0-abc"), "web-abc")
	s.press("enter")
	s.until("PeerPod small-0-abc  Pending")
	s.press(":vms", "enter")
	s.until("vms [3]", "api-abc", "Failed", "quota exceeded: 4 of 4 vCPUs")
	s.press(":ev", "enter")
	s.until("events [1]", "Pod/web", "QuotaExceeded")
	s.press("enter")
	s.until("Warning QuotaExceeded of Pod shop/web, 3 times")
	s.press(":volumes", "enter")
	s.until("unknown view volumes; the views are pods, nodes, vms")
	s.press(":pods a/../b", "enter")
	s.until("unknown view pods a/../b")
	s.press(":po bank", "enter")
	s.until("pods [0]", "namespace bank", "nothing here")
	s.press("0")
	s.until("pods [2]", "all namespaces")
	s.press("?")
	s.until("PgUp PgDn g G", ":events")
}

// TestUIPassesNoSequencesOn: what an Event says steers no terminal, is bounded and has no secrets.
func TestUIPassesNoSequencesOn(t *testing.T) {
	f := newFakeAPI(t)
	f.shop()
	s := f.look("", 160, 40)
	s.until("web")
	for _, step := range []struct{ key, seen string }{{":events", "events [1]"}, {"", "Warning QuotaExceeded of"}, {":pods", "pods [2]"}, {"G", "(3 times)"}} {
		if s.press(step.key, "enter"); step.key == ":pods" {
			s.until(step.seen)
			continue
		}
		s.until(step.seen, "QuotaExceeded")
		drawn := s.m.View().Content
		wantsNot(t, drawn, "\x1b]", "\x1b[2J", "owned\a", "\a", "abcdefgh12345678", strings.Repeat("x", 200))
		wants(t, drawn, "4 of")
		if max := strings.Count(drawn, "\n"); max >= 40 {
			t.Errorf("%d lines", max)
		}
	}
	s.press("esc", ":events", "enter")
	s.until("events [1]")
	s.press("y")
	wantsNot(t, s.until("YAML of"), "\x1b]", "abcdefgh12345678")
}

// TestUIYAML has what support-bundle has of a pod.
func TestUIYAML(t *testing.T) {
	f := newFakeAPI(t)
	f.shop()
	web := f.objects[core("shop", "pods", "web")].(o)
	web["spec"].(o)["containers"] = []any{o{"name": "main", "env": []any{o{"name": "PASSWORD", "value": "open-sesame"}}, "args": []any{"--key=open-sesame"}}}
	s := f.look("shop", 120, 40)
	s.until("web")
	s.press("G", "y")
	wantsNot(t, s.until("YAML of web", "runtimeClassName: kata-remote", "name: PASSWORD", removed), "sesame")
}

// TestUIFilters: rows that have the text remain, Esc brings back all, then goes back.
func TestUIFilters(t *testing.T) {
	f := newFakeAPI(t)
	f.shop()
	s := f.look("", 100, 20)
	s.until("web", "api")
	s.press("/WEBS", "backspace")
	wantsNot(t, s.until("/WEB", "pods /WEB [1]"), "api")
	s.press("enter", "enter")
	s.until("pod of shop/web", "No problems.")
	s.press("/agent", "enter")
	wantsNot(t, s.until("Agent  Ready"), "No problems")
	s.press("esc")
	s.until("No problems.")
	s.press("esc", "esc")
	s.until("pods [2]")
	s.press("/nowhere", "enter")
	s.until("nothing here has nowhere")
}

// TestUIIsLive: what changes is seen, what is deleted goes, and the cursor stays on its pod.
func TestUIIsLive(t *testing.T) {
	f := newFakeAPI(t)
	f.shop()
	s := f.look("shop", 120, 20)
	s.until("web", "api", "small")
	pods := core("shop", "pods")
	s.press("G")
	added := f.pod("aaa", o{"phase": "Pending"})
	go f.emit(pods, "ADDED", added)
	s.until("pods [3]", "aaa")
	s.press("enter")
	s.until("pod of shop/web")
	web := f.objects[core("shop", "pods", "web")].(o)
	go func() {
		f.emit(pods, "DELETED", web)
		f.emit(api(peerPodGroup, "shop", "peerpods"), "DELETED", f.objects[api(peerPodGroup, "shop", "peerpods", "web-abc")])
	}()
	s.until("it is gone")
	s.press("esc")
	wantsNot(t, s.until("pods [2]"), "web")
	f.emit(pods, "ERROR", o{"kind": "Status", "code": 410, "reason": "Expired"}) // it is listed again
	s.until("pods [3]", "web")
}

// TestUIWithoutAnAPIServer: what was read stays, the last line says why it is old, and it is new again afterwards.
func TestUIWithoutAnAPIServer(t *testing.T) {
	f := newFakeAPI(t)
	f.shop()
	s := f.look("", 160, 20)
	s.until("web", "Enter deeper")
	f.down.Store(true)
	f.server.CloseClientConnections()
	s.until("web", "as last read; ", "the API server does not answer")
	s.press("end", "enter") // the keys go on
	s.until("pod of shop/web")
	f.down.Store(false)
	s.press("esc")
	s.until("pods [2]", "Enter deeper")
	go f.emit(core("", "pods"), "DELETED", f.objects[core("shop", "pods", "api")])
	wantsNot(t, s.until("pods [1]", "Enter deeper"), "api")
}

// TestUIWithoutRights: a kind that may not be read is said by name, in the view that needs it.
func TestUIWithoutRights(t *testing.T) {
	f := newFakeAPI(t)
	f.shop()
	f.forbidden[core("", "nodes")] = true
	f.missing = map[string]bool{api(peerPodGroup, "", v1alpha1.PoolResource): true}
	s := f.look("", 160, 20)
	s.until("web", "Enter deeper")
	s.press(":nodes", "enter")
	s.until("nodes: the test says Forbidden", "ask whoever administers")
	s.press(":pools", "enter")
	s.until("the cluster knows no PodVMPools: install Outrigger")
	s.press(":pods", "enter")
	s.until("web", "Enter deeper")
}

// TestUINeedsATerminal says what does not.
func TestUINeedsATerminal(t *testing.T) {
	f := newFakeAPI(t)
	code, _, errs := f.run("ui")
	if code != 1 || len(f.asked) != 0 {
		t.Errorf("exit code %d, %d requests", code, len(f.asked))
	}
	wants(t, errs, "ui needs a terminal", "kubectl outrigger status", "-o json")
}

// TestUIInATerminal is the program as somebody uses it, with keys; at the end the terminal is as it was.
func TestUIInATerminal(t *testing.T) {
	t.Setenv("TERM", "xterm-256color")
	f := newFakeAPI(t)
	f.shop()
	for quit, want := range map[string]int{"q": 0, "\x03": 0, "SIGTERM": exitFailure} {
		t.Run(fmt.Sprintf("%q", quit), func(t *testing.T) {
			keyboard, tty := pty.Open(t)
			pty.SetSize(t, tty, 24, 80)
			before, err := term.GetState(int(tty.Fd()))
			if err != nil {
				t.Fatal(err)
			}
			a := &App{Stdin: tty, Stdout: tty, Stderr: io.Discard, Now: func() time.Time { return now }, Getenv: func(string) string { return "1" }}
			done := make(chan int, 1)
			t.Cleanup(func() { io.WriteString(keyboard, "\x03\x03") }) // of a test that has failed
			go func() {
				done <- a.Run([]string{"--kubeconfig", filepath.Join(f.dir, "kubeconfig"), "ui", "-n", "shop"})
			}()
			seen := readScreen(t, keyboard)
			seen.until("api", "quota", "web")
			io.WriteString(keyboard, "/web\r")
			seen.until("[1]")
			io.WriteString(keyboard, "\r")
			seen.until("i-web", "create-instance", "█")
			if quit == "SIGTERM" {
				syscall.Kill(os.Getpid(), syscall.SIGTERM)
			} else {
				io.WriteString(keyboard, quit)
			}
			seen.until("\x1b[?1049l") // the screen that was there before
			if code := <-done; code != want {
				t.Errorf("exit code %d, and not %d", code, want)
			}
			if after, err := term.GetState(int(tty.Fd())); err != nil || *after != *before {
				t.Errorf("the terminal was not restored: %v", err)
			}
			wants(t, seen.all, "\x1b[?1049h", "\x1b[?25h")
			if colour := regexp.MustCompile(`\x1b\[[0-9;]*3[0-7]m`).FindString(seen.all); colour != "" {
				t.Errorf("NO_COLOR is set, and there is %q", colour)
			}
		})
	}
}

// reader is what a terminal shows, as it is written.
type reader struct {
	t     *testing.T
	parts chan string
	all   string
	seen  int
}

func readScreen(t *testing.T, from io.Reader) *reader {
	r := &reader{t: t, parts: make(chan string, 1000)}
	go func() {
		for buffer := make([]byte, 4096); ; {
			n, err := from.Read(buffer)
			if r.parts <- string(buffer[:n]); err != nil {
				return
			}
		}
	}()
	return r
}

// until waits for texts, in their order.
func (r *reader) until(texts ...string) {
	r.t.Helper()
	deadline := time.After(time.Minute)
	for _, text := range texts {
		for !strings.Contains(r.all[r.seen:], text) {
			select {
			case part := <-r.parts:
				r.all += part
			case <-deadline:
				r.t.Fatalf("no %q on the screen:\n%q", text, r.all[r.seen:])
			}
		}
		r.seen += strings.Index(r.all[r.seen:], text)
	}
}

// BenchmarkPods is what a change of one of 10,000 pods in VMs takes, until the next frame is there.
func BenchmarkPods(b *testing.B) {
	board := newBoard(&App{Now: time.Now, system: SystemNamespace}, nil)
	pods, peerPods := board.pods(""), board.peerPods("")
	pods.items, peerPods.items = map[string]*pod{}, map[string]*v1alpha1.PeerPod{}
	for i := range 10_000 {
		name := fmt.Sprintf("web-%05d", i)
		p, pp := &pod{}, &v1alpha1.PeerPod{}
		p.Metadata.Namespace, p.Metadata.Name, p.Metadata.UID = "shop", name, types.UID(name)
		pp.Namespace, pp.Name, pp.Spec.PodUID = "shop", name, name
		pods.set(p, false)
		peerPods.set(pp, false)
	}
	view := board.podsView("", "")
	for b.Loop() {
		if n := len(view.Rows()); n != 10_000 {
			b.Fatal(n)
		}
	}
}

// TestPodState: as kubectl prints it.
func TestPodState(t *testing.T) {
	state := func(kind, reason string) o {
		return o{"name": "c", "state": o{kind: o{"reason": reason, "exitCode": 3}}}
	}
	running := o{"name": "c", "started": true, "state": o{"running": o{}}}
	for want, status := range map[string]o{
		"Pending":             {"phase": "Pending"},
		"Running":             {"phase": "Running", "containerStatuses": []any{state("terminated", "Completed"), running}},
		"Completed":           {"phase": "Succeeded", "containerStatuses": []any{state("terminated", "Completed")}},
		"ExitCode:3 !":        {"phase": "Failed", "containerStatuses": []any{state("terminated", "")}},
		"CrashLoopBackOff !":  {"phase": "Running", "containerStatuses": []any{state("waiting", "CrashLoopBackOff"), running}},
		"Init:0/2":            {"phase": "Pending", "initContainerStatuses": []any{running, state("waiting", "PodInitializing")}, "containerStatuses": []any{state("waiting", "PodInitializing")}},
		"Init:1/2":            {"phase": "Pending", "initContainerStatuses": []any{state("terminated", "Completed"), running}},
		"Init:ErrImagePull !": {"phase": "Pending", "initContainerStatuses": []any{state("waiting", "ErrImagePull")}},
		"ImagePullBackOff !":  {"phase": "Running", "initContainerStatuses": []any{o{"name": "proxy", "started": true, "state": o{"running": o{}}}}, "containerStatuses": []any{state("waiting", "ImagePullBackOff")}},
		"Evicted !":           {"phase": "Failed", "reason": "Evicted"},
	} {
		text, err := json.Marshal(o{"spec": o{"initContainers": []any{o{"name": "proxy", "restartPolicy": "Always"}}}, "status": status})
		var p pod
		if err = errors.Join(err, json.Unmarshal(text, &p)); err != nil {
			t.Fatal(err)
		}
		got, bad := p.state()
		if bad {
			got += " !"
		}
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
