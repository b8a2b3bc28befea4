// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/google/go-containerregistry/pkg/name"

	"github.com/outrigger/outrigger/internal/guest/asked"
	"github.com/outrigger/outrigger/internal/guest/hold"
	"github.com/outrigger/outrigger/internal/guest/pull"
	"github.com/outrigger/outrigger/internal/guest/reaper"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/timeline/marks"
	"github.com/outrigger/outrigger/internal/version"
)

// Main is podvm-agent, or its pause process, by the name with which it was started.
func Main() {
	if filepath.Base(os.Args[0]) == PauseName {
		os.Exit(Pause(os.Args[1:]))
	}
	opts, err := parse(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		os.Exit(program.Exit("podvm-agent", os.Stderr, program.UsageError(err)))
	case opts.version:
		fmt.Println("podvm-agent", version.String())
	default:
		run := opts.serve
		if opts.rehearses {
			run = func(ctx context.Context) error { return errors.Join(opts.prefetchImages(ctx), opts.rehearse(ctx)) }
		}
		if err := program.UntilSignal(run); err != nil {
			slog.Error("podvm-agent", "err", err)
			os.Exit(program.ExitError)
		}
	}
}

type options struct {
	socket  string
	level   slog.Level
	version bool
	// rehearses is to pull the images and run a container once, and end.
	rehearses bool
	prefetch  []string
	config    Config
	// began is when this program was started, or released, by uptime.
	began time.Duration
}

func parse(args []string) (*options, error) {
	o := &options{config: Config{ProcSys: "/proc/sys", Provisioned: asked.Folder, Version: version.Version}}
	flags := flag.NewFlagSet("podvm-agent", flag.ContinueOnError)
	flags.StringVar(&o.socket, "socket", DefaultSocket, "unix `path` to serve the Kata agent protocol on")
	flags.StringVar(&o.config.Root, "root", DefaultRoot, "`folder` that stands for /run/kata-containers in requests; images and containers' changes to them go here")
	flags.StringVar(&o.config.StateDir, "state-dir", DefaultStateDir, "`folder` for small state; at most 70 bytes")
	flags.StringVar(&o.config.Runc, "runc", "", "OCI runtime, a `path` or a name in PATH (default: runc, else crun)")
	flags.StringVar(&o.config.PodNetNS, "pod-netns", DefaultPodNetNS, "network namespace `file` of the pod, used if it exists")
	flags.StringVar(&o.config.Images.AuthFile, "auth-file", pull.DefaultAuthFile, "registry credentials, a Docker config.json `file`, read at each pull")
	flags.Func("insecure-registries", "comma-separated `host[:port]` list of registries without TLS; a host without a port stands for all of its ports", func(text string) error {
		o.config.Images.InsecureRegistries = list(text)
		return nil
	})
	flags.StringVar(&o.config.Images.InsecureFile, "insecure-registries-file", pull.DefaultInsecureFile, "`file` with more of them, which process-user-data writes")
	flags.Func("registry-mirrors", "comma-separated `registry=mirror` list; mirrors are asked first, in order", o.setMirrors)
	flags.TextVar(&o.level, "log-level", slog.LevelInfo, "least `level` that is logged: debug, info, warn or error")
	flags.BoolVar(&o.rehearses, "rehearse", false, "set up a network, pull an image and run a container once, all of its own, and end: the first pod starts sooner then")
	flags.Func("prefetch", "comma-separated list of images that -rehearse pulls and keeps", func(text string) error {
		o.prefetch = list(text)
		return nil
	})
	flags.BoolVar(&o.version, "version", false, "print the version and exit")
	err := flags.Parse(args)
	switch {
	case err != nil:
		return nil, err
	case flags.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return o, o.check()
}

func (o *options) check() error {
	// A console socket's name in it must fit into a unix address.
	if len(o.config.StateDir) > 70 {
		return fmt.Errorf("-state-dir %s is longer than 70 bytes", o.config.StateDir)
	}
	for _, f := range []struct{ name, path string }{{"socket", o.socket}, {"root", o.config.Root}, {"state-dir", o.config.StateDir}, {"pod-netns", o.config.PodNetNS}} {
		if !filepath.IsAbs(f.path) {
			return fmt.Errorf("-%s %q is not an absolute path", f.name, f.path)
		}
	}
	return nil
}

func (o *options) setMirrors(text string) error {
	o.config.Images.Mirrors = make(map[string][]string)
	for _, entry := range list(text) {
		registry, mirror, ok := strings.Cut(entry, "=")
		if !ok || registry == "" || mirror == "" {
			return fmt.Errorf("%q is not registry=mirror", entry)
		}
		of, err := name.NewRegistry(registry) // docker.io has another name
		if err != nil {
			return err
		}
		o.config.Images.Mirrors[of.RegistryStr()] = append(o.config.Images.Mirrors[of.RegistryStr()], mirror)
	}
	return nil
}

func list(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

func (o *options) serve(ctx context.Context) error {
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: o.level})))
	if os.Getenv("GOGC") == "" {
		// The heap is a few megabytes; streaming output would collect it
		// hundreds of times a second.
		debug.SetGCPercent(400)
		debug.SetMemoryLimit(64 << 20)
	}
	o.began = marks.ProcessStart()
	if hold.Wait(o.prepare) {
		o.began = marks.Uptime()
	}
	o.config.Log, o.config.Marks = slog.Default(), marks.Beside(o.socket)
	a, err := New(o.config)
	if err != nil {
		return err
	}
	if err := a.serveUnseal(ctx, o.socket); err != nil {
		return err
	}
	listener, err := listen(o.socket)
	if err != nil {
		return err
	}
	return a.Serve(ctx, listener, func() {
		o.config.Marks.Note("agent", o.began, "until it serves")
		slog.Info("serving the agent protocol", "socket", o.socket, "version", version.Version)
		if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
			slog.Warn("tell the service manager", "err", err)
		}
	})
}

// prepare makes what does not depend on the pod. Most of the pause process's start is the
// initialization of Go packages. An agent that is killed before its pod comes leaves it behind.
func (o *options) prepare() {
	r := reaper.New()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go r.Run(ctx) // for a process that ends before it is ready
	pause, err := startPause(r, o.config.StateDir)
	if err == nil {
		o.config.reaper, o.config.pause = r, pause
		o.config.runtime, err = newRuntime(o.config.Runc, o.config.StateDir, r)
	}
	if err != nil {
		slog.Warn("not made in advance", "err", err)
	}
}

func listen(socket string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o711); err != nil {
		return nil, err
	}
	if conn, err := net.Dial("unix", socket); err == nil {
		conn.Close()
		return nil, fmt.Errorf("%s is served by another agent already", socket)
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	return listener, os.Chmod(socket, 0o600)
}
