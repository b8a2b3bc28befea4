// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"syscall"

	"github.com/docker/go-connections/nat"
	"github.com/spf13/cobra"
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
