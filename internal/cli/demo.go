// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/spf13/cobra"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/cli/demoimage"
	"github.com/outrigger/outrigger/internal/cli/node"
	"github.com/outrigger/outrigger/internal/peerpods/podclient"
)

func (a *App) demoCommand() *cobra.Command {
	var image string
	cmd := &cobra.Command{
		Use: "demo", Short: "Show a pod in a VM, from boot to removal", Args: cobra.NoArgs,
		Long: `Boot a VM, run a container in it, show its output, an exec and its exit code,
remove everything, and look whether anything stayed on this machine.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
			defer stop()
			return a.demo(ctx, image)
		},
	}
	cmd.Flags().StringVar(&image, "image", "", "IMAGE as for run, with a shell in it (default: the one installed with outrigger, else one made of /bin/busybox)")
	return cmd
}

// demo is the state of one demonstration.
type demo struct {
	app   *App
	ctx   context.Context
	self  string
	root  string
	image string
	pod   string
	fails int
	// templates is where the demo's saved VM is.
	templates string
}

func (a *App) demo(ctx context.Context, image string) (err error) {
	n, err := a.node()
	if err != nil {
		return err
	}
	before, err := lookAround(n.Root)
	if err != nil {
		return fmt.Errorf("look at this machine: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "outrigger-demo")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if image = cmp.Or(image, installedDemoImage(self)); image == "" {
		image = "oci:" + filepath.Join(dir, "image")
		if err := demoimage.Build(filepath.Join(dir, "image"), demoimage.Options{}); err != nil {
			return err
		}
	}
	d := &demo{app: a, ctx: ctx, self: self, root: n.Root, image: image, pod: "demo-" + podclient.NewID()[:6], templates: filepath.Join(dir, "templates")}
	err = d.play()
	d.checkClean(before)
	if err != nil {
		return fmt.Errorf("demo: %w; `outrigger doctor` lists what this machine lacks", err)
	}
	if d.fails > 0 {
		return fmt.Errorf("demo: %d checks failed", d.fails)
	}
	fmt.Fprintln(a.Stdout, "\nAll checks passed.")
	return nil
}

// installedDemoImage returns the image beside this program, or nothing.
func installedDemoImage(self string) string {
	dir := filepath.Join(filepath.Dir(self), demoimage.Folder)
	if _, err := os.Stat(filepath.Join(dir, "index.json")); err != nil {
		return ""
	}
	return "oci:" + dir
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.app.Stdout, format+"\n", args...) }

func (d *demo) check(good bool, format string, args ...any) {
	sign := "ok  "
	if !good {
		sign = "FAIL"
		d.fails++
	}
	d.say("  %s  "+format, append([]any{sign}, args...)...)
}

func (d *demo) play() error {
	host := kernelOf()
	if err := d.foreground(host); err != nil {
		return err
	}
	err := d.background()
	if n, nerr := d.app.node(); nerr == nil { // what an error has left
		if _, ferr := n.Pods().Find(d.pod); ferr == nil {
			d.ctx = context.WithoutCancel(d.ctx)
			d.command("rm", "-f", d.pod)
		}
	}
	return err
}

// foreground shows a container whose output and exit code come back.
func (d *demo) foreground(host string) error {
	d.say("\n1. A container in a VM of its own. This host runs kernel %s.\n", host)
	begun := time.Now()
	out, code, err := d.command("run", d.image, "--", "sh", "-c", `echo "`+demoimage.Greeting+`"; uname -r; exit 3`)
	if err != nil {
		return err
	}
	lines := strings.Fields(out[strings.LastIndexByte(strings.TrimSpace(out), '\n')+1:])
	d.check(strings.Contains(out, demoimage.Greeting), "the container's output came back")
	d.check(len(lines) == 1 && lines[0] != host, "it ran on another kernel: %s", strings.Join(lines, " "))
	d.check(code == 3, "its exit code 3 came back: %d", code)
	d.say("  boot, pull, run and removal took %.1f s", time.Since(begun).Seconds())
	if saved, err := os.ReadDir(d.templates); err == nil && len(saved) > 0 {
		d.say("  the VM was saved when it had booted: the next one is restored from it")
	}
	return nil
}

// background shows a pod that stays, and what can be done with it.
func (d *demo) background() error {
	d.say("\n2. A pod in the background.\n")
	begun := time.Now()
	if _, code, err := d.command("run", "--detach", "--name", d.pod, d.image, "--", "sh", "-c", "echo I am $(hostname); sleep 1000"); err != nil || code != 0 {
		return errors.Join(err, fmt.Errorf("the pod did not start (exit code %d)", code))
	}
	d.say("  it ran after %.1f s", time.Since(begun).Seconds())
	out, _, err := d.command("ps")
	d.check(err == nil && strings.Contains(out, d.pod), "ps lists it")
	out, code, err := d.commandIn("data through stdin\n", "exec", "-i", d.pod, "--", "sh", "-c", "cat; ip addr show eth0 | grep inet; exit 5")
	d.check(err == nil && code == 5 && strings.Contains(out, "data through stdin"), "exec took its stdin and gave exit code 5: %d", code)
	out, _, err = d.command("logs", d.pod)
	d.check(err == nil && strings.TrimSpace(out) == "I am "+d.pod, "logs has its output")
	_, code, err = d.command("rm", "-f", d.pod)
	d.check(err == nil && code == 0, "rm removed it")
	return nil
}

// command runs outrigger as the user would, shows it, and returns its stdout.
func (d *demo) command(args ...string) (string, int, error) { return d.commandIn("", args...) }

func (d *demo) commandIn(stdin string, args ...string) (string, int, error) {
	d.say("$ outrigger %s", quoteArgs(args))
	cmd := exec.CommandContext(d.ctx, d.self, append([]string{"--root", d.root}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) } // it removes its pod
	var out bytes.Buffer
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Stdout = io.MultiWriter(&out, d.app.Stdout)
	cmd.Stderr = d.app.Stderr
	cmd.Env = append(os.Environ(), "QEMU_TEMPLATE_DIR="+d.templates)
	if d.app.socket != "" {
		cmd.Env = append(cmd.Env, "REMOTE_HYPERVISOR_ENDPOINT="+d.app.socket)
	}
	err := cmd.Run()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok && ended.ExitCode() != exitFailure && d.ctx.Err() == nil {
		err = nil
	}
	return out.String(), cmd.ProcessState.ExitCode(), err
}

func quoteArgs(args []string) string {
	var quoted []string
	for _, arg := range args {
		if strings.ContainsAny(arg, " ;$'\"") {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		quoted = append(quoted, arg)
	}
	return strings.Join(quoted, " ")
}

func kernelOf() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// surroundings are what a pod may leave on this machine, by kind.
type surroundings map[string]map[string]bool

// kinds in the order in which they are listed.
var kinds = []string{"process", "network interface", "network namespace", "nftables table", "forwarding setting", "file or socket"}

// lookAround lists them. root is where our state lies.
func lookAround(root string) (surroundings, error) {
	s := surroundings{}
	for _, k := range kinds {
		s[k] = map[string]bool{}
	}
	s.processes(root)
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("network interfaces: %w", err)
	}
	for _, l := range links {
		s["network interface"][l.Attrs().Name] = true
	}
	s.tables()
	for _, file := range []string{"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"} {
		if data, err := os.ReadFile(file); err == nil {
			s["forwarding setting"][file+"="+strings.TrimSpace(string(data))] = true
		}
	}
	s.files("network namespace", "/run/netns", 1)
	s.files("network namespace", "/run/outrigger/netns", 1)
	s.files("file or socket", root, 3)
	s.files("file or socket", filepath.Dir(node.DefaultRoot)+"/peerpod", 3)
	s.files("file or socket", "/var/lib/outrigger", 3)
	return s, nil
}

// processes lists ours: by the name of the program, or by our root folder among
// the arguments. Zombies hold nothing.
func (s surroundings) processes(root string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		cmdline, _ := os.ReadFile(dir + "/cmdline")
		args := strings.Split(string(cmdline), "\x00")
		if err != nil || pid == os.Getpid() || pid == os.Getppid() || args[0] == "" {
			continue
		}
		name := filepath.Base(args[0])
		ours := name == "cloud-api-adaptor" || name == "agent-relay" || strings.HasPrefix(name, "qemu-system-") ||
			name == "outrigger" && len(args) > 1 && args[1] == "monitor" || strings.Contains(string(cmdline), root+"/")
		if ours {
			s["process"][fmt.Sprintf("%s (%d)", name, pid)] = true
		}
	}
}

func (s surroundings) tables() {
	conn, err := nftables.New()
	if err != nil {
		return // without nftables there are none
	}
	tables, _ := conn.ListTables()
	for _, t := range tables {
		s["nftables table"][fmt.Sprintf("%d %s", t.Family, t.Name)] = true
	}
}

func (s surroundings) files(kind, dir string, depth int) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	s[kind][dir] = true
	for _, e := range entries {
		s[kind][filepath.Join(dir, e.Name())] = true
		if e.IsDir() && depth > 1 {
			s.files(kind, filepath.Join(dir, e.Name()), depth-1)
		}
	}
}

// since returns what of a kind was not there before.
func (s surroundings) since(before surroundings, kind string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s[kind])), func(name string) bool { return before[kind][name] })
}

// settleTime is how long processes that are ending may take.
const settleTime = 10 * time.Second

// checkClean reports each kind whether anything stayed.
func (d *demo) checkClean(before surroundings) {
	d.say("\n3. What is left on this machine?\n")
	left, some := map[string][]string{}, true
	for end := time.Now().Add(settleTime); some && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		now, err := lookAround(d.root)
		if err != nil {
			d.check(false, "look at this machine: %v", err)
			return
		}
		some = false
		for _, k := range kinds {
			left[k] = now.since(before, k)
			some = some || len(left[k]) > 0
		}
	}
	for _, k := range kinds {
		if left := left[k]; len(left) == 0 {
			d.check(true, "no %s", k)
		} else {
			d.check(false, "%s: %s", k, strings.Join(left, ", "))
		}
	}
}
