// SPDX-License-Identifier: Apache-2.0

//go:build integration

// Package upstream runs pods with the daemons of the project that our wire formats
// come from, Confidential Containers' cloud-api-adaptor, in place of one of ours. They
// are not here: each test says which variable names the program that it needs.
package upstream

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/peerpods/podclient"
	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
)

func TestMain(m *testing.M) { testns.Main(m) }

// program is one of theirs.
func program(t *testing.T, variable, what string) string {
	t.Helper()
	testns.RequireRoot(t)
	path := os.Getenv(variable)
	if path == "" {
		t.Skipf("%s is not set: build %s of Confidential Containers' cloud-api-adaptor and name it there", variable, what)
	}
	if info, err := os.Stat(path); err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
		t.Fatalf("%s=%s is not a program (%v): give the absolute path of %s", variable, path, err, what)
	}
	return path
}

// megabytes is what goes through the tunnel each way.
const megabytes = 5 << 20

// lifeOfAPod is what a pod has to do whatever daemons carry it.
func lifeOfAPod(t *testing.T, dir, image string) {
	netns, port := stand.PodNetns(t, dir, "pod")
	pod, err := podclient.New(dir+"/hypervisor.sock").Create(t.Context(), podclient.PodSpec{
		Name: "pod", Namespace: "upstream", UID: "11111111-2222-3333-4444-555555555555", Netns: netns, Pause: true,
	})
	if err != nil {
		t.Fatalf("create the pod: %v%s", err, console(err))
	}
	stopped := false
	stop := func() {
		if !stopped {
			stopped = true
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
			defer cancel()
			if err := pod.Stop(ctx); err != nil {
				t.Errorf("stop the pod: %v", err)
			}
		}
	}
	t.Cleanup(stop)
	app := container(t, pod, image, "app", "sh", "-c", "trap 'echo got TERM; exit 7' TERM; while :; do sleep 0.2; done")

	if out, code := exec(t, app.Container, "sh", "-c", "echo out; exit 5"); out != "out\n" || code != 5 {
		t.Errorf("exec answered %q, exit code %d", out, code)
	}
	short := container(t, pod, image, "short", "sh", "-c", "echo hello; exit 3")
	if code, err := short.Wait(t.Context()); err != nil || code != 3 || short.out.String() != "hello\n" {
		t.Errorf("a container answered %q, exit code %d, %v", short.out.String(), code, err)
	}
	tunnel(t, app.Container, port.Gateways[0].String())

	if err := app.Signal(t.Context(), syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if code, err := app.Wait(t.Context()); err != nil || code != 7 {
		t.Errorf("a container that was stopped: exit code %d, %v; want 7", code, err)
	}
	if !strings.Contains(app.out.String(), "got TERM") {
		t.Errorf("it wrote %q", app.out.String())
	}
	stop()
	if left := tunnels(t, netns); left != "" {
		t.Errorf("left in the pod's namespace: %s", left)
	}
}

func console(err error) string {
	if start := (*podclient.StartError)(nil); errors.As(err, &start) {
		return "\nconsole:\n" + string(start.Console)
	}
	return ""
}

type running struct {
	*podclient.Container
	out *bytes.Buffer // read it after Wait
}

func container(t *testing.T, pod *podclient.Pod, image, name string, args ...string) running {
	t.Helper()
	c, err := pod.CreateContainer(t.Context(), podclient.ContainerSpec{Name: name, Image: image, Args: args, Env: []string{"PATH=/bin"}})
	if err != nil {
		t.Fatalf("create container %s: %v", name, err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatalf("start container %s: %v", name, err)
	}
	r := running{c, new(bytes.Buffer)}
	c.Stream(podclient.IO{Stdout: r.out, Stderr: io.Discard})
	return r
}

func exec(t *testing.T, c *podclient.Container, args ...string) (string, int) {
	t.Helper()
	process, err := c.Exec(t.Context(), podclient.ExecSpec{Args: args, Env: []string{"PATH=/bin"}})
	if err != nil {
		t.Fatalf("exec %v: %v", args, err)
	}
	var out bytes.Buffer
	process.Stream(podclient.IO{Stdout: &out, Stderr: io.Discard})
	code, err := process.Wait(t.Context())
	if err != nil {
		t.Fatalf("wait for %v: %v", args, err)
	}
	return out.String(), code
}

// tunnel sends and fetches by TCP between the pod and the node's end of its network.
func tunnel(t *testing.T, c *podclient.Container, gateway string) {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(gateway, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	data := bytes.Repeat([]byte{0}, megabytes)
	want := fmt.Sprintf("%d %x\n", megabytes, sha256.Sum256(data))

	go func() {
		if conn, err := listener.Accept(); err == nil {
			io.Copy(conn, bytes.NewReader(data))
			conn.Close()
		}
	}()
	address := listener.Addr().String()
	if out, code := exec(t, c, "nettool", "receive", address); code != 0 || out != want {
		t.Errorf("the pod fetched %q, exit code %d; want %q", out, code, want)
	}
	received := make(chan string, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			received <- err.Error()
			return
		}
		defer conn.Close()
		hash := sha256.New()
		n, _ := io.Copy(hash, conn)
		received <- fmt.Sprintf("%d %x\n", n, hash.Sum(nil))
	}()
	if out, code := exec(t, c, "nettool", "send", address, fmt.Sprint(megabytes)); code != 0 {
		t.Fatalf("the pod could not send: exit code %d, %s", code, out)
	}
	if got := <-received; got != want {
		t.Errorf("the node received %q, want %q", got, want)
	}
}

// tunnels are the interfaces in the pod's namespace that carry it to its VM.
func tunnels(t *testing.T, netns string) string {
	t.Helper()
	return strings.TrimSpace(stand.Run(t, "nsenter", "--net="+netns, "ip", "-o", "link", "show", "type", "vxlan"))
}

// eventually polls what has no event to wait for.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func noQEMU(t *testing.T, dir string) {
	t.Helper()
	eventually(t, func() error {
		if left := stand.QEMUs(dir); len(left) > 0 {
			return fmt.Errorf("QEMUs still run: %v", left)
		}
		return nil
	})
}
