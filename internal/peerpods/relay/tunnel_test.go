// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/guest/forwarder"
	"github.com/outrigger/outrigger/internal/peerpods/apf"
	"github.com/outrigger/outrigger/internal/peerpods/frametunnel"
	"github.com/outrigger/outrigger/internal/peerpods/podnetwork"
	"github.com/outrigger/outrigger/internal/peerpods/podtls"
	pb "github.com/outrigger/outrigger/internal/protocol/relay"
)

// framePatience is how long a test waits for a frame.
const framePatience = time.Minute

// link is a pair of sockets that keep the bounds of what is sent, as a packet socket and
// the interface that it is bound to.
func link(t *testing.T) (socket, iface *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	socket, iface = os.NewFile(uintptr(fds[0]), "socket"), os.NewFile(uintptr(fds[1]), "interface")
	t.Cleanup(func() { socket.Close(); iface.Close() })
	return socket, iface
}

// frameVM is a forwarder whose tunnel is encrypted. It can be stopped, and another one
// started in its place.
type frameVM struct {
	chain *chain
	iface *os.File
	stop  func()
}

func (vm *frameVM) start(t *testing.T, listen string) {
	t.Helper()
	bundle := vm.chain.bundle
	config, err := podtls.ServerConfig(podtls.ServerOptions{CertPEM: bundle.ServerCertPEM, KeyPEM: bundle.ServerKeyPEM, ClientCAPEM: bundle.CAPEM})
	if err != nil {
		t.Fatal(err)
	}
	frames, iface := link(t)
	ready := make(chan net.Addr, 1)
	f, err := forwarder.New(forwarder.Options{
		Config: &apf.Config{PodNetwork: &podnetwork.Config{
			PodIP: netip.MustParsePrefix("10.0.0.2/24"), PodHwAddr: "02:00:00:00:00:01", Interface: "eth0", MTU: 1500,
			TunnelType: podnetwork.TunnelTLS, WorkerNodeIP: netip.MustParsePrefix("127.0.0.1/8"),
		}},
		Listen: listen, AgentSocket: vm.chain.agentSocket, PodNamespace: "/run/netns/podns", TLS: config,
		SetupNetwork: func(context.Context, string, string, *podnetwork.Config) error { return nil },
		OpenFrames:   func(string) (*os.File, error) { return frames, nil },
		Ready:        func(a net.Addr) { ready <- a }, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	vm.iface = iface
	vm.stop = func() { cancel(); <-done }
	t.Cleanup(func() { cancel() })
	select {
	case a := <-ready:
		vm.chain.address = a.String()
	case err := <-done:
		t.Fatal(err)
	}
}

// serve has the relay serve the VM with a packet socket whose interface it returns.
func (vm *frameVM) serve(t *testing.T) (iface *os.File, err error) {
	t.Helper()
	frames, iface := link(t)
	request := vm.chain.request()
	request.FramesPath = filepath.Join(filepath.Dir(vm.chain.socket), "frames.sock")
	stop, err := frametunnel.Offer(request.FramesPath, frames)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	response, err := vm.chain.server.Serve(t.Context(), request)
	if err == nil && !response.CarriesFrames {
		t.Error("the relay does not say that it carries frames")
	}
	return iface, err
}

// crosses sends a frame until it arrives: one that is sent while a tunnel has no
// connection may be lost.
func crosses(t *testing.T, from, to *os.File, text string) {
	t.Helper()
	frame := append(make([]byte, 24), text...)
	got := make([]byte, 1<<17)
	for deadline := time.Now().Add(framePatience); time.Now().Before(deadline); {
		if _, err := from.Write(frame); err != nil {
			t.Fatal(err)
		}
		to.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		n, err := to.Read(got)
		if err == nil && bytes.Equal(got[:n], frame) {
			return
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
	}
	t.Fatalf("the frame %q does not arrive", text)
}

func newFrameVM(t *testing.T) *frameVM {
	t.Helper()
	vm := &frameVM{chain: newChain(t)}
	vm.start(t, "127.0.0.1:0")
	return vm
}

func TestFramesCrossTheTunnel(t *testing.T) {
	vm := newFrameVM(t)
	node, err := vm.serve(t)
	if err != nil {
		t.Fatal(err)
	}
	crosses(t, node, vm.iface, "to the pod")
	crosses(t, vm.iface, node, "from the pod")
	conn, err := net.Dial("unix", vm.chain.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := checkHealth(t.Context(), conn); err != nil {
		t.Errorf("calls beside the frames: %v", err)
	}
}

// TestTunnelComesBack: the forwarder, and then the relay, is replaced.
func TestTunnelComesBack(t *testing.T) {
	vm := newFrameVM(t)
	node, err := vm.serve(t)
	if err != nil {
		t.Fatal(err)
	}
	crosses(t, node, vm.iface, "before")
	vm.stop()
	vm.start(t, vm.chain.address)
	crosses(t, node, vm.iface, "another forwarder")
	crosses(t, vm.iface, node, "another forwarder")

	vm.chain.server.Close()
	vm.chain.server = New(slog.New(slog.DiscardHandler))
	t.Cleanup(vm.chain.server.Close)
	if node, err = vm.serve(t); err != nil {
		t.Fatal(err)
	}
	crosses(t, vm.iface, node, "another relay")
	crosses(t, node, vm.iface, "another relay")
}

// TestNewTunnelReplacesTheOld: the VM may not have noticed that the node lost a connection.
func TestNewTunnelReplacesTheOld(t *testing.T) {
	vm := newFrameVM(t)
	first, err := vm.serve(t)
	if err != nil {
		t.Fatal(err)
	}
	crosses(t, vm.iface, first, "first")
	old := vm.chain.server.sandboxes["sandbox"]
	vm.chain.server.forget(old) // as if its process were stopped and its node unreachable
	defer old.close()
	second, err := vm.serve(t)
	if err != nil {
		t.Fatal(err)
	}
	crosses(t, vm.iface, second, "second")
}

// TestNoTunnelInTheClear: a VM whose image knows no encrypted tunnel is refused by name, and
// the relay serves nothing.
func TestNoTunnelInTheClear(t *testing.T) {
	c := newChain(t) // its forwarder agrees on no protocol, as those of other projects and versions
	vm := &frameVM{chain: c}
	_, err := vm.serve(t)
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "knows no encrypted tunnel") || !strings.Contains(err.Error(), "TUNNEL_TYPE") {
		t.Errorf("error %v", err)
	}
	if list, _ := c.server.List(t.Context(), &pb.ListRequest{}); len(list.Served) > 0 {
		t.Errorf("served %v", list.Served)
	}
}

// TestTunnelNeedsTLS: what is not verified is not encrypted to anybody.
func TestTunnelNeedsTLS(t *testing.T) {
	c := newChain(t)
	for name, change := range map[string]func(*pb.ServeRequest){
		"no TLS":       func(r *pb.ServeRequest) { r.Tls = nil },
		"not verified": func(r *pb.ServeRequest) { r.Tls.SkipVerify = true },
	} {
		request := c.request()
		request.FramesPath = "/nonexistent"
		change(request)
		if _, err := c.server.Serve(t.Context(), request); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := forwarder.New(forwarder.Options{Config: &apf.Config{PodNetwork: &podnetwork.Config{
		PodIP: netip.MustParsePrefix("10.0.0.2/24"), PodHwAddr: "02:00:00:00:00:01", Interface: "eth0", MTU: 1500,
		TunnelType: podnetwork.TunnelTLS, WorkerNodeIP: netip.MustParsePrefix("127.0.0.1/8"),
	}}})
	if err == nil {
		t.Error("a forwarder without TLS takes frames")
	}
}

// TestStrangersGetNoTunnel: frames are taken from the pod's node alone.
func TestStrangersGetNoTunnel(t *testing.T) {
	vm := newFrameVM(t)
	node, err := vm.serve(t)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := podtls.NewBundle(serverName, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	request := vm.chain.request()
	request.Tls.CertPem, request.Tls.KeyPem = stranger.ClientCertPEM, stranger.ClientKeyPEM
	target, err := newTarget(request)
	if err != nil {
		t.Fatal(err)
	}
	frames, iface := link(t)
	if conn, err := target.connectFrames(t.Context()); err == nil { // TLS 1.3: the client learns of the refusal when it reads
		if err := frametunnel.Carry(t.Context(), frames, conn); err == nil {
			t.Error("the stranger's connection was taken")
		}
	}
	iface.SetReadDeadline(time.Now())
	if n, err := iface.Read(make([]byte, 1500)); err == nil {
		t.Errorf("the stranger got %d bytes", n)
	}
	crosses(t, vm.iface, node, "still the node's")
}
