// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/internal/wholefile"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// machine is a file system with an agent whose commands are noted.
type machine struct {
	*Agent
	ran []string
	// fail returns the error of a command.
	fail func(command string) error
}

func newMachine(t *testing.T) *machine {
	m := &machine{fail: func(string) error { return nil }}
	m.Agent = &Agent{
		Root: t.TempDir(), Log: slog.New(slog.DiscardHandler), Output: io.Discard, Wait: poll.Pace{First: time.Millisecond, Max: 5 * time.Millisecond},
		Run: func(_ context.Context, argv []string) error {
			line := strings.Join(argv, " ")
			m.ran = append(m.ran, line)
			return m.fail(line)
		},
	}
	return m
}

func (m *machine) put(t *testing.T, name, text string) {
	t.Helper()
	at := filepath.Join(m.Root, name)
	err := os.MkdirAll(filepath.Dir(at), 0o700)
	if err == nil {
		err = wholefile.Replace(at, []byte(text), 0o600) // the agent may be looking
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (m *machine) seed(t *testing.T, s Seed, data string) {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	m.put(t, Dir+"/"+UserDataFile, data)
	m.put(t, Dir+"/"+SeedFile, string(text))
}

const config = "#cloud-config\nwrite_files: [{path: /etc/hello, content: hello}]\nruncmd: [[first], [second], [third]]\n"

func TestBootstrapOnce(t *testing.T) {
	m := newMachine(t)
	m.seed(t, seed, config)
	for range 2 {
		state, err := m.Bootstrap(t.Context())
		if err != nil || state.Phase != PhaseDone || state.Done != 4 || state.Total != 4 {
			t.Errorf("%+v, %v", state, err)
		}
	}
	if diff := cmp.Diff([]string{"first", "second", "third"}, m.ran); diff != "" {
		t.Error(diff)
	}
	if got, err := os.ReadFile(filepath.Join(m.Root, "etc/hello")); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := os.Stat(inDir(m.Root, UserDataFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the bootstrap data are still there: %v", err)
	}
}

// TestDataOfADoneMachine go also if the agent was killed between its last write
// into the journal and their removal.
func TestDataOfADoneMachine(t *testing.T) {
	m := newMachine(t)
	m.seed(t, seed, config)
	for range 2 {
		if state, err := m.Bootstrap(t.Context()); err != nil || state.Phase != PhaseDone {
			t.Fatalf("%+v, %v", state, err)
		}
		if _, err := os.Stat(inDir(m.Root, UserDataFile)); !errors.Is(err, os.ErrNotExist) {
			t.Error("the bootstrap data are still there:", err)
		}
		m.put(t, Dir+"/"+UserDataFile, config)
	}
	if want := []string{"first", "second", "third"}; !slices.Equal(m.ran, want) {
		t.Errorf("ran %q, want %q", m.ran, want)
	}
}

// TestFailureIsKept: what has failed is not tried again, and no secret is in
// what is said of it.
func TestFailureIsKept(t *testing.T) {
	m := newMachine(t)
	m.seed(t, seed, config)
	m.fail = func(line string) error {
		if line == "second" {
			return errors.New("exit status 3")
		}
		return nil
	}
	for range 2 {
		state, err := m.Bootstrap(t.Context())
		if err != nil || state.Phase != PhaseFailed || state.Message != "runcmd/1: exit status 3" {
			t.Errorf("%+v, %v", state, err)
		}
	}
	if len(m.ran) != 2 {
		t.Errorf("ran %q", m.ran)
	}
}

func TestBadDataFail(t *testing.T) {
	m := newMachine(t)
	m.seed(t, seed, "no cloud-config")
	state, err := m.Bootstrap(t.Context())
	if err != nil || state.Phase != PhaseFailed || !strings.Contains(state.Message, "#cloud-config") {
		t.Errorf("%+v, %v", state, err)
	}
}

// TestInterruptedAnywhere: whichever step the machine is switched off in, every
// command is run, those that had ended only once.
func TestInterruptedAnywhere(t *testing.T) {
	for _, reset := range []bool{false, true} {
		for _, at := range []string{"first", "second", "third"} {
			t.Run(fmt.Sprint(at, reset), func(t *testing.T) {
				m := newMachine(t)
				m.seed(t, seed, config)
				if reset {
					m.put(t, ConfigDir+"/settings.json", `{"reset": ["reset", "all"]}`)
				}
				ctx, off := context.WithCancel(t.Context())
				m.fail = func(line string) error {
					if line == at {
						off()
						return errors.New("killed")
					}
					return nil
				}
				if state, err := m.Bootstrap(ctx); !errors.Is(err, context.Canceled) || state.Phase != PhaseRunning {
					t.Fatalf("%+v, %v", state, err)
				}
				before := m.ran
				m.ran, m.fail = nil, func(string) error { return nil }
				if state, err := m.Bootstrap(t.Context()); err != nil || state.Phase != PhaseDone {
					t.Fatalf("%+v, %v", state, err)
				}
				want := append([]string{}, []string{"first", "second", "third"}[len(before)-1:]...)
				if reset {
					want = []string{"reset all", "first", "second", "third"}
				}
				if diff := cmp.Diff(want, m.ran); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

// TestImages are waited for, imported before commands, and tried again while
// the container runtime starts.
func TestImages(t *testing.T) {
	m := newMachine(t)
	s := seed
	s.Images = 2
	m.seed(t, s, config)
	m.put(t, ConfigDir+"/settings.json", `{"importImage": ["import"]}`)
	tries := 0
	m.fail = func(line string) error {
		if tries++; tries == 1 {
			return errors.New("not running yet")
		}
		if strings.HasSuffix(line, "0.tar") { // the second comes while the first is imported
			m.put(t, Dir+"/images/1.tar", "")
			m.put(t, Dir+"/images/1.ready", "")
		}
		return nil
	}
	m.put(t, Dir+"/images/0.tar", "")
	m.put(t, Dir+"/images/0.ready", "")
	state, err := m.Bootstrap(t.Context())
	if err != nil || state.Phase != PhaseDone {
		t.Fatalf("%+v, %v", state, err)
	}
	image := func(i int) string { return fmt.Sprintf("import %s/var/lib/node-agent/images/%d.tar", m.Root, i) }
	if diff := cmp.Diff([]string{image(0), image(0), image(1), "first", "second", "third"}, m.ran); diff != "" {
		t.Error(diff)
	}
	if left, _ := filepath.Glob(filepath.Join(m.Root, Dir, "images/*.tar")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestImagesNobodyTakes(t *testing.T) {
	m := newMachine(t)
	s := seed
	s.Images = 1
	m.seed(t, s, config)
	state, err := m.Bootstrap(t.Context())
	if err != nil || state.Phase != PhaseFailed || !strings.Contains(state.Message, "importImage") {
		t.Errorf("%+v, %v", state, err)
	}
}

// TestWaitsForSeed, which comes after the machine has started.
func TestWaitsForSeed(t *testing.T) {
	m := newMachine(t)
	done := make(chan error, 1)
	go func() { _, err := m.Bootstrap(t.Context()); done <- err }()
	m.put(t, Dir+"/other", "")
	m.seed(t, seed, config)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestFiles(t *testing.T) {
	root := t.TempDir()
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for range 2 { // what is done twice is as if it was done once
		for _, f := range []File{
			{Path: "/a", Content: []byte("1"), Mode: 0o600, Owner: fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())},
			{Path: "/a", Content: []byte("2"), Mode: 0o640, Append: true},
			{Path: "/d/e", Mode: 0o700, Dir: true},
			{Path: "/d/l", Target: "../a"},
		} {
			if err := f.write(root); err != nil {
				t.Fatal(err)
			}
		}
		if got := read("d/l"); got != "12" {
			t.Errorf("%q", got)
		}
	}
	if info, err := os.Stat(filepath.Join(root, "a")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info, err)
	}
	if err := (File{Path: "/x", Owner: "nobody-of-this-name", Mode: 0o600}).write(root); err == nil {
		t.Error("a file has the owner who is not there")
	}
}

// TestServices: one that comes later is started when what it needs is there, and
// again when it has ended.
func TestServices(t *testing.T) {
	m := newMachine(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { m.Services(ctx); close(done) }()
	log := filepath.Join(m.Root, "log")
	m.put(t, ConfigDir+"/services/broken.json", "{}")
	service, err := json.Marshal(Service{Command: []string{"/bin/sh", "-c", "echo started >> " + log}, Needs: []string{"/needed"}})
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(m.Root, ConfigDir, "services", "a.json")
	if err := wholefile.Replace(at, service, 0o600); err != nil {
		t.Fatal(err)
	}
	m.put(t, "needed", "")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if text, _ := os.ReadFile(log); strings.Count(string(text), "started") >= 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("not started twice within a minute")
		}
	}
	stop()
	<-done
}

func TestCgroupMounts(t *testing.T) {
	got := cgroupMounts("proc /proc proc rw 0 0\ntmpfs /sys/fs/cgroup tmpfs ro 0 0\ncgroup /sys/fs/cgroup/cpu cgroup ro 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 ro 0 0\n")
	if diff := cmp.Diff([]string{"/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/unified"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestNeeds: a bootstrap begins when what the image wants first is there.
func TestNeeds(t *testing.T) {
	m := newMachine(t)
	m.put(t, ConfigDir+"/settings.json", `{"needs": ["/run/ready"]}`)
	m.seed(t, seed, config)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := m.Bootstrap(ctx); !errors.Is(err, context.DeadlineExceeded) || len(m.ran) > 0 {
		t.Errorf("without the file: %v, ran %q", err, m.ran)
	}
	m.put(t, "/run/ready", "")
	if state, err := m.Bootstrap(t.Context()); err != nil || state.Phase != PhaseDone {
		t.Errorf("with the file: %+v, %v", state, err)
	}
}

// TestOnce: a service that is run once is run until it succeeds, and not again.
func TestOnce(t *testing.T) {
	m := newMachine(t)
	runs, trigger := filepath.Join(m.Root, "runs"), filepath.Join(m.Root, "second")
	script := fmt.Sprintf("echo x >>%s; [ $(wc -l <%s) -ge 2 ] || exit 1; touch %s", runs, runs, trigger)
	once, err := json.Marshal(Service{Command: []string{"/bin/sh", "-c", script}, Once: true})
	if err != nil {
		t.Fatal(err)
	}
	m.put(t, ConfigDir+"/services/once.json", string(once))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() { defer close(done); m.Services(ctx) }()
	err = poll.Pace{First: time.Millisecond, Max: 20 * time.Millisecond}.Until(t.Context(), func() (bool, error) {
		_, err := os.Stat(trigger)
		return err == nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = poll.Sleep(t.Context(), 2*firstPause) // as long as it would take to come back
	cancel()
	<-done
	if text, err := os.ReadFile(runs); err != nil || strings.Count(string(text), "x") != 2 {
		t.Errorf("ran %q, %v", text, err)
	}
}

// TestDelegate: in version 2 of cgroups the machine's processes leave its own
// group, and the controllers are for groups below it.
func TestDelegate(t *testing.T) {
	root := t.TempDir()
	if err := delegate(root); err != nil {
		t.Errorf("version 1: %v", err)
	}
	for name, text := range map[string]string{"cgroup.controllers": "cpuset cpu memory\n", "cgroup.procs": "1\n", "cgroup.subtree_control": ""} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := delegate(root); err != nil {
		t.Fatal(err)
	}
	moved, err := os.ReadFile(filepath.Join(root, "init", "cgroup.procs"))
	if err != nil || string(moved) != "1" {
		t.Errorf("moved %q, %v", moved, err)
	}
	// A file keeps what was written last; the kernel takes each.
	if text, err := os.ReadFile(filepath.Join(root, "cgroup.subtree_control")); err != nil || string(text) != "+memory" {
		t.Errorf("handed on %q, %v", text, err)
	}
}

func TestPrivateOfTheKernelOnly(t *testing.T) {
	for _, at := range []string{"/etc/passwd", "/proc/sys/../1/mem", "/proc/sys"} {
		if errs := keepPrivate(map[string]string{at: "1"}); len(errs) != 1 {
			t.Errorf("%s: %v", at, errs)
		}
	}
	if errs := keepPrivate(map[string]string{"/proc/sys/no/such/setting": "1"}); len(errs) != 0 {
		t.Errorf("what the kernel lacks: %v", errs)
	}
}
