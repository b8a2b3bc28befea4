// SPDX-License-Identifier: Apache-2.0

package process_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/plugin/pluginfile"
	"github.com/outrigger/outrigger/provider/plugin/process"
	"github.com/outrigger/outrigger/provider/plugin/wire"
	"github.com/outrigger/outrigger/test/testplugin"
)

// hostVariable makes the test's binary a host of the plugin it names.
const hostVariable = "TEST_HOST_OF"

func TestMain(m *testing.M) {
	testplugin.Main()
	if path := os.Getenv(hostVariable); path != "" {
		host(path)
	}
	os.Exit(m.Run())
}

// plugin is a supervised plugin of a test.
type plugin struct {
	*process.Supervisor
	path string
	log  *testplugin.Log
	temp string
}

// options are those of every test; they leave time for a busy machine.
func options(t *testing.T, path string) (process.Options, *testplugin.Log, string) {
	t.Helper()
	f, err := pluginfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sealed, err := pluginfile.Seal(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	log, temp := &testplugin.Log{}, t.TempDir()
	return process.Options{
		Name: testplugin.Name, Path: path, Program: sealed, Log: slog.New(slog.NewTextHandler(log, nil)),
		Getenv: func(name string) string {
			return map[string]string{"TMPDIR": temp, "PATH": "/usr/bin:/bin", "BAD_TOKEN": "hush"}[name]
		},
		Ready: 30 * time.Second, Wait: 30 * time.Second,
	}, log, temp
}

func start(t *testing.T, b testplugin.Behaviour, change func(*process.Options)) *plugin {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	path := testplugin.Install(t, testplugin.Name, b)
	o, log, temp := options(t, path)
	if change != nil {
		change(&o)
	}
	s, _, err := process.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	p := &plugin{s, path, log, temp}
	t.Cleanup(func() { p.close(t) })
	return p
}

// close ends the plugin and looks for what it leaves.
func (p *plugin) close(t *testing.T) {
	t.Helper()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(p.temp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if t.Failed() {
		t.Log(p.log)
	}
}

// info makes a call over the connection of now.
func (p *plugin) info(ctx context.Context) error {
	conn, explain, err := p.Conn(ctx)
	if err != nil {
		return err
	}
	if _, err = wire.Info(ctx, conn); err != nil {
		return explain(err)
	}
	return nil
}

func TestEachBadStartIsOneClearError(t *testing.T) {
	for _, tc := range []struct {
		behaviour testplugin.Behaviour
		class     error
		words     []string
	}{
		{testplugin.Silent, provider.ErrUnavailable, []string{"did not answer on its socket", "thinking about it"}},
		{testplugin.Exits, provider.ErrUnavailable, []string{"did not start", "exit status 3", "no such cloud"}},
		{testplugin.Garbage, provider.ErrInvalidArgument, []string{"does not speak the provider contract"}},
		{testplugin.OtherVersion, provider.ErrInvalidArgument, []string{"speaks version 99", "this program speaks 1"}},
		{testplugin.OtherName, provider.ErrInvalidArgument, []string{`"worse"`, `"bad"`, "CLOUD_PROVIDER=worse"}},
	} {
		t.Run(string(tc.behaviour), func(t *testing.T) {
			defer goleak.VerifyNone(t)
			o, _, temp := options(t, testplugin.Install(t, testplugin.Name, tc.behaviour))
			if tc.behaviour == testplugin.Silent {
				o.Ready = 2 * time.Second
			}
			_, _, err := process.Start(t.Context(), o)
			if !errors.Is(err, tc.class) {
				t.Errorf("not %v: %v", tc.class, err)
			}
			for _, words := range append(tc.words, o.Path) {
				if !strings.Contains(fmt.Sprint(err), words) {
					t.Errorf("does not say %q: %v", words, err)
				}
			}
			if left, _ := os.ReadDir(temp); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestNotAProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(path, []byte("\x7fELF and nothing more"), 0o755); err != nil {
		t.Fatal(err)
	}
	o, _, temp := options(t, path)
	_, _, err := process.Start(t.Context(), o)
	if !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), "architecture") {
		t.Error(err)
	}
	if left, _ := os.ReadDir(temp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestStartGivenUp(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	o, _, _ := options(t, testplugin.Install(t, testplugin.Name, testplugin.Silent))
	if _, _, err := process.Start(ctx, o); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestScript(t *testing.T) {
	target := testplugin.Install(t, testplugin.Name, testplugin.Good)
	script := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(script, fmt.Appendf(nil, "#!/bin/sh\nexec %s\n", target), 0o755); err != nil {
		t.Fatal(err)
	}
	o, _, _ := options(t, script)
	s, about, err := process.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if about.Name != testplugin.Name || about.Version != "1.2" {
		t.Errorf("%+v", about)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestSlowStart(t *testing.T) {
	p := start(t, testplugin.Slow, nil)
	if err := p.info(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestRestartsAtOnce(t *testing.T) {
	p := start(t, testplugin.Good, nil)
	first := p.Pid()
	killed := time.Now()
	syscall.Kill(first, syscall.SIGKILL)
	p.until(t, func() bool { return p.Pid() != first && p.Pid() != 0 })
	if err := p.info(t.Context()); err != nil {
		t.Error(err)
	}
	t.Logf("answers again after %s", time.Since(killed))
	for _, words := range []string{"signal: killed", "starting it again", "runs again"} {
		if !strings.Contains(p.log.String(), words) {
			t.Errorf("the log does not say %q", words)
		}
	}
}

func (p *plugin) until(t *testing.T, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("waited without result; log:\n%s", p.log)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestFrozenIsKilled(t *testing.T) {
	p := start(t, testplugin.Good, func(o *process.Options) { o.Alive, o.Ready = 50*time.Millisecond, 2*time.Second })
	first := p.Pid()
	syscall.Kill(first, syscall.SIGSTOP)
	p.until(t, func() bool { return p.Pid() != first && p.Pid() != 0 })
	if !strings.Contains(p.log.String(), "it did not answer within 2s and was killed") {
		t.Error("the log does not say why")
	}
}

func TestDownSaysWhy(t *testing.T) {
	p := start(t, testplugin.OnceOnly, func(o *process.Options) { o.Wait = 300 * time.Millisecond })
	syscall.Kill(p.Pid(), syscall.SIGKILL)
	p.until(t, func() bool { return strings.Contains(p.log.String(), "not again") })
	err := p.info(t.Context())
	for _, words := range []string{"is being restarted", "exit status 4", "not again"} {
		if !strings.Contains(fmt.Sprint(err), words) {
			t.Errorf("does not say %q: %v", words, err)
		}
	}
	if !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("class: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.info(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// host starts a plugin, prints its process id and waits to be killed.
func host(path string) {
	f, err := pluginfile.Open(path)
	if err != nil {
		panic(err)
	}
	sealed, err := pluginfile.Seal(f, nil)
	if err != nil {
		panic(err)
	}
	s, _, err := process.Start(context.Background(), process.Options{Name: testplugin.Name, Path: path, Program: sealed})
	if err != nil {
		panic(err)
	}
	fmt.Println(s.Pid())
	select {}
}

func TestDiesWithItsHost(t *testing.T) {
	path := testplugin.Install(t, testplugin.Name, testplugin.Stubborn) // it does not look at its input
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), hostVariable+"="+path, "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	_, err = fmt.Fscan(out, &pid)
	cmd.Process.Kill()
	cmd.Wait()
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for running(pid) {
		if time.Now().After(deadline) {
			t.Fatal("the plugin outlives its host")
		}
		time.Sleep(time.Millisecond)
	}
	if text, err := os.ReadFile(path + ".child"); err == nil { // its child is its own affair
		child, _ := strconv.Atoi(string(text))
		syscall.Kill(child, syscall.SIGKILL)
	}
}

func TestLongTemporaryFolder(t *testing.T) {
	o, _, temp := options(t, testplugin.Install(t, testplugin.Name, testplugin.Good))
	long := filepath.Join(temp, strings.Repeat("x", 100))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	o.Getenv = func(name string) string { return map[string]string{"TMPDIR": long}[name] }
	_, _, err := process.Start(t.Context(), o)
	if !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), "TMPDIR") {
		t.Error(err)
	}
	if left, _ := os.ReadDir(long); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestCloseKillsTheGroup(t *testing.T) {
	p := start(t, testplugin.Stubborn, func(o *process.Options) { o.Grace = 50 * time.Millisecond })
	leader := p.Pid()
	text, err := os.ReadFile(p.path + ".child")
	if err != nil {
		t.Fatal(err)
	}
	child, _ := strconv.Atoi(string(text))
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	for _, pid := range []int{leader, child} {
		p.until(t, func() bool { return !running(pid) })
	}
	if _, _, err := p.Conn(t.Context()); !errors.Is(err, provider.ErrUnavailable) || !strings.Contains(err.Error(), "was stopped") {
		t.Errorf("after Close: %v", err)
	}
}

// running reports whether the process exists and is not a zombie, which an
// orphan stays where nobody reaps.
func running(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func TestLogIsMerged(t *testing.T) {
	p := start(t, testplugin.Noisy, func(o *process.Options) { o.LogLines = 100 })
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	log := p.log.String()
	for _, words := range []string{
		"garbage", "long long", "(cut)",
		`level=WARN msg="half done" plugin=bad count=7 instance=i-1`,
		"lines of the provider plugin were dropped",
	} {
		if !strings.Contains(log, words) {
			t.Errorf("the log does not say %q", words)
		}
	}
	if lines := strings.Count(log, "\n"); lines > 400 {
		t.Errorf("%d lines", lines)
	}
	if strings.ContainsAny(log, "\x00\x1b") {
		t.Error("control characters in the log")
	}
}
