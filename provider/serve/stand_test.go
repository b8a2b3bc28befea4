// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/provider/plugin/wire"
	"github.com/outrigger/outrigger/provider/serve"
)

// actAs makes the test's own binary the provider's program.
const actAs = "SERVE_TEST_ACT_AS"

func TestMain(m *testing.M) {
	switch os.Getenv(actAs) {
	case "modern":
		serve.Main("modern", modern())
	case "legacy":
		serve.Main("legacy", fake.NewManager())
	}
	goleak.VerifyTestMain(m)
}

// settings are those of a fake cloud in a folder.
type settings struct {
	Dir     string        `flag:"modern-dir" env:"MODERN_DIR" required:"true" usage:"folder of the cloud"`
	Latency time.Duration `flag:"modern-latency" env:"MODERN_LATENCY" default:"0s" usage:"how long every call takes"`
	Size    int64         `flag:"modern-size" default:"5" unit:"MiB" min:"1" usage:"size"`
	Token   config.Secret `env:"MODERN_TOKEN" usage:"API token"`
}

func modern() *config.Manager[settings] {
	return config.New("modern", func(s settings) (provider.Provider, error) {
		slog.Debug("Opened", "inherited", os.Getenv(serve.SocketVariable))
		cloud, err := fake.New(fake.Options{Dir: s.Dir, Latency: s.Latency})
		return chatty{cloud}, err
	})
}

// chatty logs what it begins.
type chatty struct{ *fake.Cloud }

func (c chatty) CreateInstance(ctx context.Context, podName, sandboxID string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
	slog.Info("Creating")
	return c.Cloud.CreateInstance(ctx, podName, sandboxID, cloudConfig, spec)
}

// program is the provider's program while it runs.
type program struct {
	*exec.Cmd
	stdin io.Closer
	// exited is closed at the end, whose code and stderr follow.
	exited chan struct{}
	stderr buffer
}

// buffer may be written and read at the same time.
type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *buffer) lines() []string {
	var lines []string
	for scanner := bufio.NewScanner(strings.NewReader(b.String())); scanner.Scan(); {
		lines = append(lines, scanner.Text())
	}
	return lines
}

func startProgram(t *testing.T, as string, env []string, args ...string) *program {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &program{Cmd: exec.Command(self, args...), exited: make(chan struct{})}
	p.Env = append([]string{actAs + "=" + as, "GOCOVERDIR=" + t.TempDir()}, env...) // for go test -cover
	p.Stderr = &p.stderr
	if p.stdin, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.exited)
		p.Wait()
	}()
	t.Cleanup(func() {
		p.Process.Kill()
		<-p.exited
	})
	return p
}

// code waits for the end.
func (p *program) code(t *testing.T) int {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(time.Minute):
		t.Fatalf("the program does not end: %s", p.stderr.String())
	}
	return p.ProcessState.ExitCode()
}

func (p *program) waitForLog(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(p.stderr.String(), text); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s in the log within 20 s: %s", text, p.stderr.String())
		}
	}
}

// dial waits until the program serves.
func dial(t *testing.T, socket string) (*grpc.ClientConn, wire.About) {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	waitForServer(t, socket)
	about, err := wire.Info(ctx, conn)
	if err != nil {
		t.Fatal(err)
	}
	return conn, about
}

// waitForServer waits until somebody listens: for a moment a new socket is
// there and nobody does.
func waitForServer(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		conn, err := net.Dial("unix", path)
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func waitForFile(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		if _, err := os.Lstat(path); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %s within 20 s", path)
		}
	}
}

// shortDir is a folder whose sockets have short paths.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "serve")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "made")
}

// run is the program's main function in this process.
func run(cloud provider.CloudProvider, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = serve.Run(serve.Options{Name: "modern", Version: "v1.2.3", Cloud: cloud, Args: append([]string{}, args...), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs})
	return code, out.String(), errs.String()
}
