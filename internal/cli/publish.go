// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/docker/go-connections/nat"
	"github.com/spf13/cobra"
	"k8s.io/utils/lru"

	"github.com/outrigger/outrigger/internal/loadbalancer"
)

// parsePort reads docker's [ADDRESS:][HOSTPORT:]PORT[/tcp|/udp], with ranges.
func parsePort(spec string) ([]nat.PortMapping, error) {
	ports, err := nat.ParsePortSpec(spec)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w; want [ADDRESS:][HOSTPORT:]PORT[/tcp|/udp], such as 8080:80", err)
	case ports[0].Port.Proto() == "sctp":
		return nil, errors.New("only TCP and UDP are passed on")
	}
	return ports, nil
}

// wantedPorts returns those of the request, and for --publish-all those that the image exposes.
func (r *runner) wantedPorts() []nat.PortMapping {
	var ports []nat.PortMapping
	for _, spec := range r.req.Publish {
		some, _ := parsePort(spec) // checked with the request
		ports = append(ports, some...)
	}
	if r.req.PublishAll {
		for _, exposed := range slices.Sorted(maps.Keys(r.image.Config.ExposedPorts)) {
			more, err := parsePort(exposed)
			if err != nil {
				r.progress.say("the image exposes %s: %v", exposed, err)
			}
			ports = append(ports, more...)
		}
	}
	return ports
}

// publish passes ports of this host on to the pod until the runner removes the pod.
func (r *runner) publish(ports []nat.PortMapping) error {
	flag := "--publish"
	if r.req.Pod != nil {
		flag = "hostPort or --publish"
	}
	r.record.Ports = nil
	for _, m := range ports {
		p, err := r.listen(m)
		if err != nil {
			return fmt.Errorf("%s %s: %w", flag, m.String(), err)
		}
		r.ports = append(r.ports, p)
		_, m.Binding.HostPort, _ = net.SplitHostPort(p.Addr().String())
		r.record.Ports = append(r.record.Ports, m)
	}
	return nil
}

// listen takes the first port of the mapping's range that is free.
func (r *runner) listen(m nat.PortMapping) (f forwarder, err error) {
	first, last, err := nat.ParsePortRangeToInt(cmp.Or(m.Binding.HostPort, "0"))
	for port := first; port <= last && err == nil; port++ {
		f, err = forward(m.Port.Proto(), net.ParseIP(m.Binding.HostIP), port, net.ParseIP(r.record.IPs[0]), m.Port.Int())
		switch inUse := errors.Is(err, syscall.EADDRINUSE); {
		case err == nil:
			return f, nil
		case inUse && port == last:
			err = fmt.Errorf("port %s of this host is in use%s: %w", m.Binding.HostPort, r.user(port, m.Port.Proto()), err)
		case inUse:
			err = nil
		}
	}
	return nil, err
}

// forward passes a port of this host on to one of the pod. nil is every address of this host.
func forward(proto string, host net.IP, port int, pod net.IP, podPort int) (forwarder, error) {
	if proto == "udp" {
		front, err := net.ListenUDP("udp", &net.UDPAddr{IP: host, Port: port})
		if err != nil {
			return nil, err
		}
		return forwardUDP(front, &net.UDPAddr{IP: pod, Port: podPort}), nil
	}
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: host, Port: port})
	if err != nil {
		return nil, err
	}
	return forwardTCP(l, &net.TCPAddr{IP: pod, Port: podPort}), nil
}

// user names the pod that has a port of this host.
func (r *runner) user(port int, proto string) string {
	pods, _ := r.node.Pods().List()
	for _, p := range pods {
		for _, m := range p.Ports {
			if p.Live() && p.ID != r.req.ID && m.Port.Proto() == proto && m.Binding.HostPort == strconv.Itoa(port) {
				return " by pod " + p.Name
			}
		}
	}
	return ""
}

// publishedAt returns where this host takes connections to a port of a pod.
func publishedAt(m nat.PortMapping) string {
	return net.JoinHostPort(cmp.Or(m.Binding.HostIP, "0.0.0.0"), m.Binding.HostPort)
}

func (a *App) portCommand() *cobra.Command {
	return &cobra.Command{
		Use: "port POD [PORT[/tcp|/udp]]", Short: "List the ports of this host that are passed on to a pod",
		Args: cobra.RangeArgs(1, 2), ValidArgsFunction: a.podNames,
		RunE: func(_ *cobra.Command, args []string) error {
			_, p, err := a.find(args[0])
			if err != nil {
				return err
			}
			found := len(args) == 1
			for _, m := range p.Ports {
				address := publishedAt(m)
				switch {
				case len(args) == 1:
					fmt.Fprintf(a.Stdout, "%s -> %s\n", m.Port, address)
				case args[1] == string(m.Port) || args[1] == m.Port.Port() && m.Port.Proto() == "tcp":
					fmt.Fprintln(a.Stdout, address)
					found = true
				}
			}
			if !found {
				return fmt.Errorf("pod %s: no port of this host is passed on to %s; give run --publish %s", p.Name, args[1], args[1])
			}
			return nil
		},
	}
}

const (
	// maxSenders is how many senders of datagrams one port knows.
	maxSenders = 1024
	// senderTimeout forgets one without datagrams in either direction; Docker's proxy has the same.
	senderTimeout = 90 * time.Second
	maxDatagram   = 64 << 10
)

// forwarder passes what comes to a port of this host on to a pod until Close.
type forwarder interface {
	Addr() net.Addr
	Close() error
}

// tcpForwarder is the listener of a load balancer with one backend.
type tcpForwarder struct {
	net.Listener
	stop context.CancelFunc
}

// forwardTCP takes over a listener.
func forwardTCP(l net.Listener, pod *net.TCPAddr) forwarder {
	ctx, stop := context.WithCancel(context.Background())
	p := &loadbalancer.Proxy{Log: slog.New(slog.DiscardHandler), CheckEvery: -1}
	p.Use(ctx, []loadbalancer.Backend{{Host: pod.IP.String(), Port: pod.Port}})
	go p.Serve(ctx, l)
	return &tcpForwarder{l, stop}
}

// Close also ends connections.
func (f *tcpForwarder) Close() error {
	f.stop()
	return f.Listener.Close()
}

// udpForwarder passes datagrams on, and replies to where they came from.
type udpForwarder struct {
	*net.UDPConn
	pod *net.UDPAddr
	// senders have a socket to the pod each; the one that was silent longest gives its place.
	senders *lru.Cache
}

// forwardUDP takes over a socket.
func forwardUDP(front *net.UDPConn, pod *net.UDPAddr) *udpForwarder {
	closeIt := func(_ lru.Key, conn any) { conn.(*net.UDPConn).Close() }
	f := &udpForwarder{front, pod, lru.NewWithEvictionFunc(maxSenders, closeIt)}
	go f.run()
	return f
}

func (f *udpForwarder) Addr() net.Addr { return f.LocalAddr() }

func (f *udpForwarder) Close() error {
	defer f.senders.Clear()
	return f.UDPConn.Close()
}

func (f *udpForwarder) run() {
	buf := make([]byte, maxDatagram)
	for {
		n, from, err := f.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // of one datagram
		}
		if conn, err := f.socket(from); err == nil { // a datagram may be lost
			conn.SetReadDeadline(time.Now().Add(senderTimeout))
			conn.Write(buf[:n])
		}
	}
}

// socket returns that of a sender.
func (f *udpForwarder) socket(from netip.AddrPort) (*net.UDPConn, error) {
	if conn, known := f.senders.Get(from); known {
		return conn.(*net.UDPConn), nil
	}
	conn, err := net.DialUDP("udp", nil, f.pod)
	if err == nil {
		f.senders.Add(from, conn)
		go f.replies(from, conn)
	}
	return conn, err
}

func (f *udpForwarder) replies(to netip.AddrPort, conn *net.UDPConn) {
	buf := make([]byte, maxDatagram)
	for {
		n, err := conn.Read(buf)
		switch {
		case err == nil:
			conn.SetReadDeadline(time.Now().Add(senderTimeout))
			f.WriteToUDPAddrPort(buf[:n], to)
		case errors.Is(err, os.ErrDeadlineExceeded):
			f.senders.Remove(to)
			return
		case errors.Is(err, net.ErrClosed):
			return
		} // else nobody in the pod listens yet
	}
}
