// SPDX-License-Identifier: Apache-2.0

package adaptor_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/ttrpc"

	"github.com/outrigger/outrigger/internal/adaptor"
	"github.com/outrigger/outrigger/internal/adaptor/adaptortest"
	"github.com/outrigger/outrigger/internal/adaptor/crashtest"
	"github.com/outrigger/outrigger/provider/fake"
)

// childEnv makes the test binary run an adaptor in the folder it names.
const childEnv = "OUTRIGGER_TEST_ADAPTOR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := runChild(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// runChild is an adaptor on a fake cloud, network and relay that live in files.
func runChild(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cloud, err := fake.New(fake.Options{Dir: filepath.Join(dir, "cloud")})
	if err != nil {
		return err
	}
	service, err := adaptor.New(adaptor.Options{
		Provider: cloud, ProviderName: "fake",
		Network: &adaptortest.Network{Dir: filepath.Join(dir, "network")},
		Relay:   &adaptortest.Relay{Dir: filepath.Join(dir, "relay")},
		VNIs:    &adaptortest.VNIs{Min: 555000}, MinVNI: 555000,
		TLS:     adaptor.TLS{Issue: adaptortest.Issue},
		PodsDir: filepath.Join(dir, "pods"),
		// A cloud in a file is consistent at once.
		ListSettle: time.Nanosecond,
		MinBackoff: time.Millisecond,
		Hook:       crashtest.HookFromEnv(),
	})
	if err != nil {
		return err
	}
	if err := service.Recover(ctx); err != nil {
		return err
	}
	socket := filepath.Join(dir, "hypervisor.sock")
	os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		return err
	}
	service.Register(server)
	go server.Serve(ctx, listener)
	<-ctx.Done()
	server.Close()
	return service.Close(context.Background())
}

// fakeWorld is a folder with a fake cloud, network and relay.
type fakeWorld struct {
	t   *testing.T
	dir string
}

func newFakeWorld(t *testing.T) crashtest.World {
	w := fakeWorld{t: t, dir: shortDir(t)}
	for _, name := range []string{"network", "relay", "netns"} {
		if err := os.Mkdir(filepath.Join(w.dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// shortDir is a new folder whose path leaves room for a unix socket in it.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "oa")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (w fakeWorld) Command() *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+w.dir)
	return cmd
}

func (w fakeWorld) Socket() string { return filepath.Join(w.dir, "hypervisor.sock") }
func (w fakeWorld) Netns() string  { return filepath.Join(w.dir, "netns") }

func (w fakeWorld) Instances() int {
	cloud, err := fake.New(fake.Options{Dir: filepath.Join(w.dir, "cloud")})
	if err != nil {
		w.t.Fatal(err)
	}
	leaks, err := cloud.Leaks()
	if err != nil {
		w.t.Fatal(err)
	}
	n := 0
	for _, resource := range leaks {
		if resource.Kind == fake.KindInstance {
			n++
		}
	}
	return n
}

func (w fakeWorld) Leftovers() []string {
	var left []string
	for _, pattern := range []string{"pods/*", "pods/.*", "network/*", "relay/*"} {
		found, err := filepath.Glob(filepath.Join(w.dir, pattern))
		if err != nil {
			w.t.Fatal(err)
		}
		left = append(left, found...)
	}
	return left
}

func TestKilledBetweenAnyTwoSteps(t *testing.T) {
	crashtest.Run(t, newFakeWorld)
}
