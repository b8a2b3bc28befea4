// SPDX-License-Identifier: Apache-2.0

package crashtest

import (
	"context"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/ttrpc"

	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/test/adaptortest"
)

// Folder is a World in files: a fake cloud, network and relay. Its processes
// are the test binary, which must call Serve when FolderEnv is set.
type Folder struct {
	T   *testing.T
	Dir string
	// Env is added to that of the processes.
	Env []string
}

// FolderEnv names the folder in which the process is to run an adaptor.
const FolderEnv = "OUTRIGGER_TEST_ADAPTOR"

// NewFolder makes one.
func NewFolder(t *testing.T, env ...string) Folder {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "oa") // leaves room for a unix socket in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, name := range []string{"network", "relay", "netns"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return Folder{T: t, Dir: dir, Env: env}
}

// Command implements World.
func (f Folder) Command() *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), FolderEnv+"="+f.Dir), f.Env...)
	return cmd
}

// Socket implements World.
func (f Folder) Socket() string { return filepath.Join(f.Dir, "hypervisor.sock") }

// Netns implements World.
func (f Folder) Netns() string { return filepath.Join(f.Dir, "netns") }

// Instances implements World.
func (f Folder) Instances() int {
	cloud, err := fake.New(fake.Options{Dir: filepath.Join(f.Dir, "cloud")})
	if err != nil {
		f.T.Fatal(err)
	}
	leaks, err := cloud.Leaks()
	if err != nil {
		f.T.Fatal(err)
	}
	n := 0
	for _, resource := range leaks {
		if resource.Kind == fake.KindInstance {
			n++
		}
	}
	return n
}

// Leftovers implements World.
func (f Folder) Leftovers() []string {
	var left []string
	for _, pattern := range []string{"pods/*", "pods/.*", "network/*", "relay/*"} {
		leftovers, err := filepath.Glob(filepath.Join(f.Dir, pattern))
		if err != nil {
			f.T.Fatal(err)
		}
		left = append(left, leftovers...)
	}
	return left
}

// Serve runs an adaptor in a folder until SIGTERM. change, if any, completes its
// options and returns what runs beside it.
func Serve(dir string, change func(*adaptor.Options) (beside func(context.Context), err error)) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	options, err := folderOptions(dir)
	if err != nil {
		return err
	}
	options.Hook = HookFromEnv()
	beside := func(context.Context) {}
	if change != nil {
		if beside, err = change(&options); err != nil {
			return err
		}
	}
	service, err := adaptor.New(options)
	if err != nil {
		return err
	}
	if err := service.Recover(ctx); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() { defer close(done); beside(ctx) }()
	if options.Pool.Size > 0 {
		go service.Run(ctx)
	}
	if err := serve(ctx, service, filepath.Join(dir, "hypervisor.sock")); err != nil {
		return err
	}
	err = service.Close(context.Background())
	<-done
	return err
}

func folderOptions(dir string) (adaptor.Options, error) {
	cloud, err := fake.New(fake.Options{Dir: filepath.Join(dir, "cloud")})
	return adaptor.Options{
		Provider: cloud, ProviderName: "fake",
		Network: &adaptortest.Network{Dir: filepath.Join(dir, "network")},
		Relay:   &adaptortest.Relay{Dir: filepath.Join(dir, "relay")},
		VNIs:    &adaptortest.VNIs{Min: 555000}, MinVNI: 555000,
		TLS:     adaptor.TLS{Issue: adaptortest.Issue},
		PodsDir: filepath.Join(dir, "pods"),
		// A cloud in a file is consistent at once.
		ListSettle: time.Nanosecond,
		MinBackoff: time.Millisecond,
	}, err
}

func serve(ctx context.Context, service *adaptor.Service, socket string) error {
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
	return server.Close()
}
