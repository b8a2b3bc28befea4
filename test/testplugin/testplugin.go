// SPDX-License-Identifier: Apache-2.0

// Package testplugin is a process plugin that behaves badly when it is told
// to. A test's binary becomes it: its TestMain calls [Main] first, and
// [Install] makes a file that is the binary.
package testplugin

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/plugin/pluginpb"
	"github.com/outrigger/outrigger/provider/plugin/wire"
)

// Name is the provider's.
const Name = "bad"

// socketVariable is process.SocketVariable, which this package cannot import:
// that package's tests use it.
const socketVariable = "OUTRIGGER_PLUGIN_SOCKET"

// Behaviour is what the plugin does wrong from its start.
type Behaviour string

// Behaviours.
const (
	Good         Behaviour = "good"
	Silent       Behaviour = "silent"        // never listens
	Exits        Behaviour = "exits"         // at once, with status 3 and a word of why
	Garbage      Behaviour = "garbage"       // on its socket
	Noisy        Behaviour = "noisy"         // garbage and endless lines on its output
	OtherVersion Behaviour = "other-version" // of the contract
	OtherName    Behaviour = "other-name"
	Stubborn     Behaviour = "stubborn"  // ignores SIGTERM and has a child
	Slow         Behaviour = "slow"      // answers after a while
	OnceOnly     Behaviour = "once-only" // fails from its second start on
)

// Config are the settings of the plugin.
type Config struct {
	Size  int64         `flag:"bad-size" env:"BAD_SIZE" default:"1" usage:"size of everything"`
	Token config.Secret `env:"BAD_TOKEN" usage:"a secret"`
}

// Install makes a plugin that behaves so, in a folder of its own, and returns
// its path.
func Install(t testing.TB, name string, b Behaviour) string {
	t.Helper()
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	path := filepath.Join(t.TempDir(), name)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(file, self); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	Behave(t, path, b)
	return path
}

// Behave changes the behaviour from the next start on.
func Behave(t testing.TB, path string, b Behaviour) {
	t.Helper()
	if err := os.WriteFile(path+".behaviour", []byte(b), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Main runs the plugin. It returns only if this process is not a plugin.
func Main() {
	socket := os.Getenv(socketVariable)
	if socket == "" {
		return
	}
	told, err := os.ReadFile(os.Args[0] + ".behaviour")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	run(socket, Behaviour(told))
	os.Exit(0)
}

func run(socket string, b Behaviour) {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	switch b {
	case Silent:
		fmt.Fprintln(os.Stderr, "thinking about it")
		<-terminated
		return
	case Exits:
		exit(3, "no such cloud")
	case OnceOnly:
		onceOnly()
	case Garbage:
		garbage(socket)
		return
	case Noisy:
		noise()
	case Stubborn:
		terminated = stubborn()
	case Slow:
		time.Sleep(200 * time.Millisecond)
	}
	server := serve(socket, b)
	select {
	case <-terminated:
		server.Stop()
	case <-stdinEnd():
	}
}

func exit(code int, words string) {
	fmt.Fprintln(os.Stderr, words)
	os.Exit(code)
}

func onceOnly() {
	marker := os.Args[0] + ".started"
	if _, err := os.Stat(marker); err == nil {
		exit(4, "not again")
	}
	os.WriteFile(marker, nil, 0o600)
}

func stdinEnd() <-chan struct{} {
	end := make(chan struct{})
	go func() {
		io.Copy(io.Discard, os.Stdin)
		close(end)
	}()
	return end
}

func listen(socket string) net.Listener {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		exit(1, err.Error())
	}
	return listener
}

func garbage(socket string) {
	listener := listen(socket)
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		fmt.Fprint(conn, strings.Repeat("HTTP/1.1 418 I'm a teapot\r\n\r\n", 10))
		conn.Close()
	}
}

func noise() {
	fmt.Println("\x00\x1b[31m\xff\xfe garbage")
	fmt.Println(strings.Repeat("long ", 20_000))
	slog.New(slog.NewJSONHandler(os.Stderr, nil)).Warn("half done", "instance", "i-1", "count", 7)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for i := range 1000 {
		fmt.Fprintln(out, "line", i)
	}
}

// stubborn has a child that ends only when it is killed, and writes its number.
func stubborn() chan os.Signal {
	signal.Ignore(syscall.SIGTERM)
	child := exec.Command("/bin/sh", "-c", "trap '' TERM; while :; do read line; sleep 1; done")
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	if err := child.Start(); err != nil {
		exit(1, err.Error())
	}
	os.WriteFile(os.Args[0]+".child", fmt.Append(nil, child.Process.Pid), 0o600)
	return nil
}

func serve(socket string, b Behaviour) *grpc.Server {
	name := Name
	if b == OtherName {
		name = "worse"
	}
	server := grpc.NewServer(wire.ServerOptions()...)
	plugin := wire.NewServer(wire.Options{Name: name, Version: "1.2", Cloud: config.New(name, Open)})
	if b == OtherVersion {
		pluginpb.RegisterProviderServer(server, otherVersion{plugin})
	} else {
		plugin.Register(server)
	}
	go server.Serve(listen(socket))
	return server
}

type otherVersion struct{ *wire.Server }

func (otherVersion) GetInfo(context.Context, *pluginpb.GetInfoRequest) (*pluginpb.GetInfoResponse, error) {
	return &pluginpb.GetInfoResponse{ContractVersion: 99, Name: Name}, nil
}

// Open returns a provider that does in CreateInstance what the pod is called.
func Open(c Config) (provider.Provider, error) { return &cloud{c}, nil }

type cloud struct{ Config }

func (c *cloud) CreateInstance(ctx context.Context, podName, sandboxID string, _ cloudinit.CloudConfigGenerator, _ provider.InstanceTypeSpec) (*provider.Instance, error) {
	switch podName {
	case "crash":
		exit(7, "ouch")
	case "panic": // as an unrecovered one in a goroutine
		fmt.Fprintln(os.Stderr, "panic: out of luck\n\ngoroutine 1 [running]:\nmain.main()")
		os.Exit(2)
	case "hang":
		<-ctx.Done() // its answer may still be in time
		return nil, fmt.Errorf("%w: %w", provider.ErrUnavailable, ctx.Err())
	case "freeze":
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		<-ctx.Done() // it takes a moment to stop
		return nil, ctx.Err()
	case "environment":
		return &provider.Instance{ID: strings.Join(os.Environ(), " | "), Name: strings.Join(os.Args, " ")}, nil
	case "full":
		return nil, fmt.Errorf("%w: try later", provider.ErrCapacity)
	}
	return &provider.Instance{
		ID: "i-" + sandboxID, Name: fmt.Sprintf("size %d token %s", c.Size, c.Token.Reveal()), Key: sandboxID,
		IPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
	}, nil
}

func (c *cloud) DeleteInstance(context.Context, string) error { return nil }
func (c *cloud) Teardown() error                              { return nil }
func (c *cloud) ConfigVerifier() error                        { return nil }
