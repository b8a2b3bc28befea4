// SPDX-License-Identifier: Apache-2.0

// Package forwarder is the VM's end of the agent channel. It rebuilds the pod's
// network, listens with TLS, and passes the node's calls to the agent. It changes
// only the few calls that need something that only the VM knows.
package forwarder

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/containerd/ttrpc"

	"github.com/outrigger/outrigger/internal/guest/disks"
	"github.com/outrigger/outrigger/internal/guest/kataguest"
	"github.com/outrigger/outrigger/internal/peerpods/apf"
	"github.com/outrigger/outrigger/internal/peerpods/frametunnel"
	"github.com/outrigger/outrigger/internal/peerpods/podnetwork"
	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/outrigger/outrigger/internal/timeline/marks"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// Defaults, as upstream's forwarder has them; DefaultListen also takes IPv6.
const (
	DefaultListen       = ":15150"
	DefaultAgentSocket  = "/run/kata-containers/agent.sock"
	DefaultPodNamespace = "/run/netns/podns"
)

const (
	// agentWait bounds the wait for the agent's first reply.
	agentWait = 150 * time.Second
	// agentPause is the time between two attempts; the agent starts at the same time as
	// the forwarder.
	agentPause = 20 * time.Millisecond
	// checkTimeout bounds one health check.
	checkTimeout = 5 * time.Second
	// unsealTime bounds the opening of a disk's key: less than who wants the disk waits for it, so that the reason is heard.
	unsealTime = time.Minute
	// keepAlive detects a node that is gone within about a minute (tcp(7)).
	keepAlive = 15 * time.Second
)

// Options configure a Forwarder.
type Options struct {
	// Config is what the node sent.
	Config *apf.Config
	// Listen is the address to listen on, host:port.
	Listen string
	// AgentSocket is the agent's unix socket.
	AgentSocket string
	// PodNamespace is the path of the pod's network namespace in the VM.
	PodNamespace string
	// HostInterface is the VM's interface that carries the tunnel; empty means
	// the one with the default route.
	HostInterface string
	// DropDNS removes Dns from CreateSandbox requests, for agents that would overwrite
	// the VM's own resolv.conf with it.
	DropDNS bool
	// Kata, if not nil, says that the agent is Kata's.
	Kata *kataguest.Guest
	// TLS is nil for plain TCP.
	TLS *tls.Config
	// OpenFrames opens the packet socket of an encrypted tunnel; by default package
	// podnetwork does.
	OpenFrames func(podNetns string) (*os.File, error)
	// SetupNetwork rebuilds the pod's interface; by default package podnetwork does.
	// cfg is nil for a sandbox without a network.
	SetupNetwork func(ctx context.Context, podNetns, hostInterface string, cfg *podnetwork.Config) error
	// Marks is where steps of the pod's start are noted.
	Marks marks.Marks
	// Ready, if set, is called with the listener's address when the port is open.
	Ready func(net.Addr)
	// Logger, if nil, is the default one.
	Logger *slog.Logger
}

// Forwarder serves one VM.
type Forwarder struct {
	Options
	log        *slog.Logger
	handshakes *handshakeLimiter
	disks      disks.Disks
	tunnel     tunnel
}

// New checks the options.
func New(o Options) (*Forwarder, error) {
	if o.Config == nil {
		return nil, errors.New("forwarder: no configuration")
	}
	var node netip.Addr
	if network := o.Config.PodNetwork; network != nil {
		if err := network.Validate(); err != nil {
			return nil, fmt.Errorf("apf.json: pod-network: %w", err)
		}
		node = network.WorkerNodeIP.Addr()
	}
	if o.encrypted() {
		if o.TLS == nil {
			return nil, errors.New("apf.json: pod-network: tunnel-type tls needs TLS, which is off")
		}
		o.TLS = o.TLS.Clone()
		o.TLS.NextProtos = []string{frametunnel.Protocol}
	}
	if o.OpenFrames == nil {
		o.OpenFrames = podnetwork.OpenGuestFrames
	}
	if o.SetupNetwork == nil {
		o.SetupNetwork = setupNetwork
	}
	log := cmp.Or(o.Logger, slog.Default()).With("pod", o.Config.PodName, "namespace", o.Config.PodNamespace)
	f := &Forwarder{Options: o, log: log, handshakes: newHandshakeLimiter(node), disks: disks.Disks{Sys: "/sys", Dev: "/dev", Log: log.Info, Marks: o.Marks}}
	f.disks.Unseal = f.unseal
	return f, nil
}

// Run serves until ctx ends. The port opens last, when the network is up and
// the agent answers, so an open port means a VM that is ready.
func (f *Forwarder) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	network := make(chan error, 1)
	go func() { network <- f.setupNetwork(ctx) }()
	if err := f.awaitAgent(ctx); err != nil {
		cancel()
		<-network
		return err
	}
	if err := <-network; err != nil {
		return err
	}
	if f.encrypted() {
		frames, err := f.OpenFrames(f.PodNamespace)
		if err != nil {
			return fmt.Errorf("pod network: %w", err)
		}
		defer frames.Close()
		f.tunnel.frames = frames
	}
	listener, err := f.listen(ctx)
	if err != nil {
		return err
	}
	return f.serve(ctx, listener)
}

func setupNetwork(ctx context.Context, podNetns, hostInterface string, cfg *podnetwork.Config) error {
	if cfg == nil {
		return podnetwork.SetupIsolated(podNetns)
	}
	return podnetwork.SetupGuest(ctx, podNetns, hostInterface, cfg)
}

func (f *Forwarder) setupNetwork(ctx context.Context) error {
	began, uptime := time.Now(), marks.Uptime()
	if err := f.SetupNetwork(ctx, f.PodNamespace, f.HostInterface, f.Config.PodNetwork); err != nil {
		return fmt.Errorf("pod network: %w", err)
	}
	f.log.Info("pod network is up", "took", time.Since(began))
	f.Marks.Note("pod-network", uptime, "")
	return nil
}

// awaitAgent returns when the agent reports that it is serving.
func (f *Forwarder) awaitAgent(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, agentWait)
	defer cancel()
	for {
		err := f.checkAgent(wait)
		if err == nil {
			f.log.Info("agent is serving", "socket", f.AgentSocket)
			return nil
		}
		switch {
		case poll.Sleep(wait, agentPause) == nil:
		case ctx.Err() != nil:
			return ctx.Err()
		default:
			return fmt.Errorf("the agent at %s did not answer within %v: %w", f.AgentSocket, agentWait, err)
		}
	}
}

func (f *Forwarder) checkAgent(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	conn, err := f.dialAgent(ctx)
	if err != nil {
		return err
	}
	client := ttrpc.NewClient(conn)
	defer client.Close()
	res, err := agent.NewHealthClient(client).Check(ctx, &agent.CheckRequest{})
	if err == nil && res.Status != agent.HealthCheckResponse_SERVING {
		err = fmt.Errorf("health is %v", res.Status)
	}
	return err
}

func (f *Forwarder) dialAgent(ctx context.Context) (net.Conn, error) {
	var dialer net.Dialer
	return dialer.DialContext(ctx, "unix", f.AgentSocket)
}

func (f *Forwarder) listen(ctx context.Context) (net.Listener, error) {
	config := net.ListenConfig{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepAlive, Interval: keepAlive, Count: 4}}
	listener, err := config.Listen(ctx, "tcp", f.Listen)
	if err != nil {
		return nil, fmt.Errorf("-listen %s: %w", f.Listen, err)
	}
	f.log.Info("agent-protocol-forwarder is ready", "address", listener.Addr(), "tls", f.TLS != nil)
	if f.Ready != nil {
		f.Ready(listener.Addr())
	}
	return listener, nil
}

func (f *Forwarder) serve(ctx context.Context, listener net.Listener) error {
	var connections sync.WaitGroup
	defer connections.Wait()
	connections.Go(func() { f.disks.Run(ctx) })
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	defer listener.Close()
	for {
		conn, err := listener.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, new(*os.SyscallError)): // a client disconnected, or descriptors ran out (accept(2))
			f.log.Error("accept", "error", err)
			time.Sleep(agentPause)
		case err != nil:
			return fmt.Errorf("accept: %w", err)
		default:
			connections.Go(func() { f.handle(ctx, conn) })
		}
	}
}
