// SPDX-License-Identifier: Apache-2.0

//go:build integration

package run

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/console"
	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
	"github.com/outrigger/outrigger/test/tier"
)

// cli runs outrigger with all that it makes in folders of the test.
type cli struct {
	root, state, image string
}

func newCLI(t *testing.T) *cli {
	t.Helper()
	testns.RequireRoot(t)
	dir := stand.Dir(t)
	return &cli{root: dir + "/root", state: dir + "/state", image: "oci:" + stand.Binary(t, "demo-image")}
}

// images is the folder of pulled images.
func (c *cli) images() string { return c.state + "/images" }

func (c *cli) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(stand.Binary(t, "outrigger"), args...)
	cmd.Env = append(os.Environ(), "OUTRIGGER_ROOT="+c.root, "OUTRIGGER_CONFIG=/dev/null", "OUTRIGGER_IMAGE_CACHE="+c.images(), "QEMU_STATE_DIR="+c.state, "QEMU_ACCEL=tcg")
	return cmd
}

// run returns what a command printed and its exit code.
func (c *cli) run(t *testing.T, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := c.command(t, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// wantNothing looks for what outrigger could leave.
func (c *cli) wantNothing(t *testing.T) {
	t.Helper()
	var left []string
	for _, pattern := range []string{c.root, c.state + "/instances/*", c.state + "/net/*", "/run/netns/*", "/run/outrigger/*", "/run/outrigger/netns/*"} {
		found, _ := filepath.Glob(pattern)
		left = append(left, found...)
	}
	for line := range strings.Lines(stand.Run(t, "ip", "-o", "link")) {
		if !strings.Contains(line, " lo:") {
			left = append(left, strings.TrimSpace(line))
		}
	}
	left = append(left, strings.Fields(stand.Run(t, "nft", "list", "tables"))...)
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range paths {
		line, _ := os.ReadFile(p)
		if strings.Contains(string(line), c.root) || strings.Contains(string(line), c.state) {
			left = append(left, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	if len(left) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
}

func TestRunReturnsExitCodes(t *testing.T) {
	c := newCLI(t)
	for _, tc := range []struct {
		name, script, stdout, stderr string
		code                         int
	}{
		{"Three", "echo out; echo err >&2; exit 3", "out\n", "err\n", 3},
		// Nothing in a container can kill its first process but the kernel.
		{"Killed", "echo up; exec tail /dev/zero", "up\n", "", 137},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stdout, stderr, code := c.run(t, "", "run", "--memory", "32MiB", c.image, "--", "sh", "-c", tc.script)
			if code != tc.code || stdout != tc.stdout || !strings.Contains(stderr, tc.stderr) {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
			}
			c.wantNothing(t)
		})
	}
}

func TestRunPassesStdin(t *testing.T) {
	c := newCLI(t)
	stdout, stderr, code := c.run(t, "data\n", "run", "--quiet", "-i", c.image, "--", "cat")
	if code != 0 || stdout != "data\n" || stderr != "" {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	c.wantNothing(t)
}

func TestRunOnATerminal(t *testing.T) {
	c := newCLI(t)
	master, path, err := console.NewPty()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	slave, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	if err := master.Resize(console.WinSize{Height: 24, Width: 80}); err != nil {
		t.Fatal(err)
	}
	cmd := c.command(t, "run", "--quiet", "-it", c.image, "--", "sh", "-c", "stty size; until [ \"$(stty size)\" = '40 120' ]; do sleep 0.1; done; echo resized; read answer; exit $answer")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	shown := newOutput()
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			shown.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	shown.wait(t, "24 80\r\n")
	if err := master.Resize(console.WinSize{Height: 40, Width: 120}); err != nil {
		t.Fatal(err)
	}
	shown.wait(t, "resized\r\n")
	fmt.Fprint(master, "9\r")
	<-ended
	if code := cmd.ProcessState.ExitCode(); code != 9 {
		t.Errorf("exit code %d, want 9; the terminal showed %q", code, shown)
	}
	c.wantNothing(t)
}

// TestDetachedPod lives through the death of the adaptor, and is listed,
// entered, read and removed afterwards.
func TestDetachedPod(t *testing.T) {
	tier.OnlyAll(t) // TestDetachedPodOnLibvirt has the same life
	c := newCLI(t)
	_, stderr, code := c.run(t, "", "run", "--detach", "--name", "web", c.image, "--", "sh", "-c", "echo first; sleep 1000000")
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	c.killAdaptor(t)
	if stdout, stderr, code := c.run(t, "", "ps"); code != 0 || !strings.Contains(stdout, "web") {
		t.Errorf("ps: exit code %d\n%s%s", code, stdout, stderr)
	}
	if stdout, stderr, code := c.run(t, "", "exec", "web", "echo", "second"); code != 0 || stdout != "second\n" {
		t.Errorf("exec: exit code %d, %q\n%s", code, stdout, stderr)
	}
	if stdout, _, code := c.run(t, "", "logs", "web"); code != 0 || stdout != "first\n" {
		t.Errorf("logs: exit code %d, %q", code, stdout)
	}
	if stdout, _, code := c.run(t, "", "console", "web"); code != 0 || !strings.Contains(stdout, "podvm-agent") {
		t.Errorf("console: exit code %d, %q", code, tail(stdout))
	}
	if _, stderr, code := c.run(t, "", "rm", "-f", "web"); code != 0 {
		t.Errorf("rm: exit code %d\n%s", code, stderr)
	}
	c.wantNothing(t)
}

// killAdaptor ends the adaptor that outrigger started, with SIGKILL.
func (c *cli) killAdaptor(t *testing.T) {
	t.Helper()
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range paths {
		line, _ := os.ReadFile(p)
		program, _, _ := strings.Cut(string(line), "\x00")
		if filepath.Base(program) == "cloud-api-adaptor" && strings.Contains(string(line), c.root) {
			var pid int
			fmt.Sscanf(p, "/proc/%d/", &pid)
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("outrigger started no adaptor")
}

func TestRunSaysWhatIsWrong(t *testing.T) {
	c := newCLI(t)
	for _, tc := range []struct {
		name string
		args []string
		want []string
		code int
	}{
		{"UnknownProvider", []string{"run", "--provider", "nocloud", c.image}, []string{"nocloud", "qemu"}, 125},
		{"NoImage", []string{"run", "oci:/nonexistent"}, []string{"/nonexistent"}, 125},
		{"NoSuchCommand", []string{"run", c.image, "--", "nosuch"}, []string{"nosuch"}, 127},
		{"WrongFlag", []string{"run", "--memory", "much", c.image}, []string{"--memory", "much"}, 125},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, stderr, code := c.run(t, "", tc.args...)
			if code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			for _, want := range tc.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("stderr lacks %q:\n%s", want, stderr)
				}
			}
			c.wantNothing(t)
		})
	}
}
