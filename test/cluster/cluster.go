// SPDX-License-Identifier: Apache-2.0

// Package cluster starts real Kubernetes for tests: a control plane alone, for
// whatever only talks to an API server, or with nodes that run pods. Programs
// are those of test/kube, and Debian's containerd and runc. Everything is gone
// when the test ends, however it ends.
//
// A control plane needs no root and listens on the loopback address. In the
// namespaces that [testns.Main] makes it also has an address that nodes and
// pods reach; nodes are only there.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
)

// What is fixed in every cluster.
const (
	// ServiceCIDR is the range of Service addresses, KubernetesIP the first.
	ServiceCIDR  = "10.96.0.0/16"
	KubernetesIP = "10.96.0.1"
	// DNS is the address of the cluster's name server and Domain its zone.
	DNS    = "10.96.0.10"
	Domain = "cluster.local"
)

// startTimeout is ten times what a start takes on two idle processors and more,
// since tests of other packages may have them.
const startTimeout = 3 * time.Minute

// ControlPlaneOptions are what a test may want otherwise. Arguments here win
// over those that the package gives.
type ControlPlaneOptions struct {
	APIServer, ControllerManager, Scheduler []string
}

// ControlPlane is etcd, kube-apiserver, kube-controller-manager and
// kube-scheduler in one process.
type ControlPlane struct {
	// User is the administrator.
	*User
	// Dir holds its state, log and kubeconfigs, and those of the nodes.
	Dir string
	// Address is where nodes and pods reach the API server; a loopback address
	// outside of test namespaces.
	Address string
	// Log is the file with what the programs say.
	Log string

	port     *heldPort
	ca       *authority
	programs string
	options  ControlPlaneOptions
	client   *http.Client

	process *os.Process
	stdin   io.Closer
	ended   chan struct{}
}

// StartControlPlane returns when the API server is ready and the controllers
// work.
func StartControlPlane(t testing.TB, o ControlPlaneOptions) *ControlPlane {
	t.Helper()
	c := &ControlPlane{Dir: stand.Dir(t), programs: Programs(t), options: o, Address: "127.0.0.1"}
	c.Log = c.path("controlplane.log")
	listen := "127.0.0.1"
	if testns.Inside() {
		joinNetwork(t)
		c.Address, listen = gateway.String(), "0.0.0.0"
	}
	c.port = holdPort(t, listen)
	c.ca = newAuthority(t, c.path("pki"), []string{"127.0.0.1", c.Address, KubernetesIP, "localhost",
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + Domain})
	c.User = c.NewUser(t, "admin", "system:masters")
	var err error
	if c.client, err = rest.HTTPClientFor(c.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	stand.ShowOnFailure(t, c.Log)
	t.Cleanup(func() { c.Kill() })
	c.Start(t)
	c.await(t, "the controllers to work", func(ctx context.Context) error {
		return c.get(ctx, "/api/v1/namespaces/default/serviceaccounts/default")
	})
	return c
}

// Port is the API server's, on [ControlPlane.Address] and the loopback address.
func (c *ControlPlane) Port() string { return c.port.number }

func (c *ControlPlane) path(name string) string { return filepath.Join(c.Dir, name) }

func (c *ControlPlane) args() []string {
	args := []string{
		"-dir=" + c.Dir, "-listen=" + c.port.address, "-advertise=" + c.Address, "-service-cidr=" + ServiceCIDR,
		// A test's few clients need no queues, which are a tenth of the processor time.
		"-apiserver=--enable-priority-and-fairness=false",
	}
	if testns.Inside() {
		args = append(args, "-dns="+DNS, "-dns-zone="+Domain)
	}
	for flag, values := range map[string][]string{
		"-apiserver": c.options.APIServer, "-controller-manager": c.options.ControllerManager, "-scheduler": c.options.Scheduler,
	} {
		for _, v := range values {
			args = append(args, flag, v)
		}
	}
	return args
}

// Start starts it again, with all it knew, after Kill or Stop, and returns when
// the API server is ready.
func (c *ControlPlane) Start(t testing.TB) {
	t.Helper()
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(c.programs, "controlplane"), c.args()...)
	cmd.Stdout, cmd.Stderr = log, log
	// It lives for a minute: memory is cheaper than a fifth of its processor time.
	cmd.Env = append(os.Environ(), "GOGC=300")
	// The process ends with its standard input, and so with this one.
	if c.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.process, c.ended = cmd.Process, make(chan struct{})
	go func(ended chan struct{}) { cmd.Wait(); close(ended) }(c.ended)
	c.await(t, "the API server to be ready", func(ctx context.Context) error { return c.get(ctx, "/readyz") })
}

// Kill ends it with SIGKILL; whoever connects is refused until Start.
func (c *ControlPlane) Kill() { c.end(syscall.SIGKILL, 0) }

// Stop ends it as an upgrade does: the API server first finishes its calls.
func (c *ControlPlane) Stop() { c.end(syscall.SIGTERM, time.Minute) }

func (c *ControlPlane) end(signal syscall.Signal, grace time.Duration) {
	if c.process == nil {
		return
	}
	c.process.Signal(signal)
	if grace > 0 {
		select {
		case <-c.ended:
		case <-time.After(grace):
			c.process.Kill()
		}
	}
	<-c.ended
	c.stdin.Close()
	c.process = nil
}

// Restart is Kill and Start.
func (c *ControlPlane) Restart(t testing.TB) {
	t.Helper()
	c.Kill()
	c.Start(t)
}

// await repeats a question until it is answered without an error.
func (c *ControlPlane) await(t testing.TB, what string, ask func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		err := ask(ctx)
		if err == nil {
			return
		}
		select {
		case <-c.ended:
			t.Fatalf("the control plane ended while waiting for %s; see %s", what, c.Log)
		case <-ctx.Done():
			t.Fatalf("waited %s for %s: %v", startTimeout, what, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// get asks the API server as administrator.
func (c *ControlPlane) get(ctx context.Context, path string) error {
	_, err := c.read(ctx, path)
	return err
}

func (c *ControlPlane) read(ctx context.Context, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Server+path, nil)
	if err != nil {
		return nil, err
	}
	r, err := c.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", path, r.Status, strings.TrimSpace(string(body)))
	}
	return body, err
}

// heldPort is a port that nobody else gets while the test runs, also while
// nothing listens on it.
type heldPort struct{ address, number string }

// holdPort binds a free port without listening. With SO_REUSEADDR, which Go's
// listeners set as well, another socket may bind it too and listen (ip(7)).
func holdPort(t testing.TB, host string) *heldPort {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	address := &syscall.SockaddrInet4{Addr: [4]byte(net.ParseIP(host).To4())}
	err = errors.Join(syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1), syscall.Bind(fd, address))
	if err != nil {
		t.Fatalf("find a free port: %v", err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	number := fmt.Sprint(name.(*syscall.SockaddrInet4).Port)
	return &heldPort{net.JoinHostPort(host, number), number}
}
