// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/dockerengine"
	"github.com/outrigger/outrigger/internal/loadbalancer"
	"github.com/outrigger/outrigger/provider"
)

const defaultPort = 6443

// balancer is the load balancer that a cluster should have.
type balancer struct {
	identity
	image string
	net   *clusterNetwork
	addr  addresses
	// port is the load balancer's port in the network, target the API servers' port.
	port, target int
	// publish means that a port of the engine's host is forwarded to it. hostPort is
	// that port, 0 until the engine has chosen one. If hostIP is valid it is the host's
	// address at which others find the port; see listenAt.
	publish  bool
	hostPort int
	hostIP   netip.Addr
	// template is the user's template of the configuration; empty means the built-in one.
	template string
}

// specHash returns a hash of the settings. A container with another hash is replaced.
func (l balancer) specHash() string {
	text := fmt.Sprint(l.image, l.net.id, l.addr.v4, l.port, l.target, l.publish, l.hostPort)
	for _, addr := range []netip.Addr{l.hostIP, l.addr.v6} {
		if addr.IsValid() {
			text += addr.String()
		}
	}
	sum := sha256.Sum256([]byte(text + l.template))
	return hex.EncodeToString(sum[:8])
}

func (b *Backend) imageOf(spec infrav1.DockerClusterSpec) string {
	lb := spec.LoadBalancer
	switch {
	case spec.LoadbalancerImage != "":
		return spec.LoadbalancerImage
	case lb.ImageRepository != "" || lb.ImageTag != "":
		image := strings.TrimSuffix(lb.ImageRepository, "/") + "/haproxy"
		if lb.ImageTag != "" {
			image += ":" + lb.ImageTag
		}
		return strings.TrimPrefix(image, "/")
	}
	return b.cfg.LoadBalancerImage
}

// wanted returns the load balancer that a cluster should have. The cluster's endpoint
// is empty at first and then stored in the object, so that a new load balancer gets
// the same address and port.
//
// If no advertised name of the engine's host is configured, the endpoint is a port of
// the host's own address in the cluster's network, its gateway. Engines drop packets
// from one of their networks to another, but not packets to the host. So the machines,
// the host, and a management cluster in other containers of the engine (kind's) can
// reach the endpoint, and nobody else can.
func (b *Backend) wanted(id identity, n *clusterNetwork, spec infrav1.DockerClusterSpec, target int) balancer {
	id.role = roleLoadBalancer
	l := balancer{identity: id, image: b.imageOf(spec), net: n, addr: n.at(n.reserved()), port: target, target: target}
	endpoint := spec.ControlPlaneEndpoint
	inside, err := netip.ParseAddr(endpoint.Host)
	switch {
	case endpoint.Host == "" && b.cfg.advertised() == "":
		l.publish, l.hostIP = n.host().IsValid(), n.host()
	case endpoint.Host == "":
		l.publish = true
	case err == nil && (inside == n.gateway || inside == n.gateway6):
		l.publish, l.hostIP, l.hostPort = true, inside, int(endpoint.Port)
	case err == nil && n.subnet.Contains(inside):
		l.addr, l.port = n.at(inside), int(endpoint.Port)
	case err == nil && n.subnet6.Contains(inside):
		l.addr.v6, l.port = inside, int(endpoint.Port)
	default:
		l.publish, l.hostPort = true, int(endpoint.Port)
	}
	return l
}

func (b *Backend) endpoint(l balancer) clusterv1.APIEndpoint {
	switch {
	case l.publish && l.hostIP.IsValid():
		return clusterv1.APIEndpoint{Host: l.hostIP.String(), Port: int32(l.hostPort)}
	case l.publish:
		return clusterv1.APIEndpoint{Host: b.cfg.advertised(), Port: int32(l.hostPort)}
	}
	return clusterv1.APIEndpoint{Host: l.addr.first(l.net.families).String(), Port: int32(l.port)}
}

// listenAt returns the host's address that has the published port; the invalid one is
// all. For IPv6 these are all IPv6 addresses: an engine cannot listen at the network's own
// before the kernel has made sure that nobody else has it (RFC 4862, duplicate address
// detection), for which a running container has to be there first, and this one is.
func (l balancer) listenAt() netip.Addr {
	if l.hostIP.Is6() {
		return netip.IPv6Unspecified()
	}
	return l.hostIP
}

// ensureBalancer makes the load balancer, starts it, or replaces one with other
// settings. done is false while its image is pulled.
func (b *Backend) ensureBalancer(ctx context.Context, l *balancer) (done bool, err error) {
	unlock, err := b.locks.Take(ctx, l.cluster)
	if err != nil {
		return false, err
	}
	defer unlock()
	existing, err := b.containerWith(ctx, labelCluster, l.cluster, labelRole, roleLoadBalancer)
	if err != nil {
		return false, err
	}
	if existing != nil && isRemoving(existing.State) {
		if err := b.remove(ctx, existing.ID); err != nil {
			return false, err
		}
		return false, fmt.Errorf("%w: the engine is removing a load balancer", provider.ErrUnavailable)
	}
	if l.publish && l.hostPort == 0 { // the endpoint was not stored yet
		if existing, err = b.choosePort(ctx, l, existing); err != nil || existing == nil {
			return false, err
		}
	}
	if existing != nil && existing.Config.Labels[labelSpec] == l.specHash() {
		return true, b.startBalancer(ctx, existing.ID, existing.State, l)
	}
	if done, err := b.ensureImage(ctx, l.image, b.ownerOf(l.labels())); err != nil || !done {
		return false, err // the old one serves until the new one can be had
	}
	if existing != nil {
		if err := b.remove(ctx, existing.ID); err != nil {
			return false, err
		}
	}
	id, err := b.createBalancer(ctx, *l)
	if err != nil {
		return false, err
	}
	return true, b.startBalancer(ctx, id, nil, l)
}

// isRemoving reports whether a container is being removed, or its removal has failed
// and must be repeated.
func isRemoving(s *container.State) bool {
	return s.Dead || s.Status == container.StateRemoving || s.Status == container.StateDead
}

// choosePort has the engine choose the host port, by starting a container without
// one. The engine would choose again with each start of that container, so the caller
// then replaces it by one with a fixed port. It returns nil while the image is pulled.
func (b *Backend) choosePort(ctx context.Context, l *balancer, existing *container.InspectResponse) (*container.InspectResponse, error) {
	if existing != nil {
		if l.hostPort = portIn(existing.HostConfig.PortBindings); l.hostPort != 0 {
			return existing, nil
		}
	}
	id, state := "", (*container.State)(nil)
	if existing != nil {
		id, state = existing.ID, existing.State
	} else if done, err := b.ensureImage(ctx, l.image, b.ownerOf(l.labels())); err != nil || !done {
		return nil, err
	} else if id, err = b.createBalancer(ctx, *l); err != nil {
		return nil, err
	}
	if err := b.startBalancer(ctx, id, state, l); err != nil {
		return nil, err
	}
	existing, err := b.inspect(ctx, id)
	if err != nil {
		return nil, err
	}
	if existing != nil {
		l.hostPort = portIn(existing.NetworkSettings.Ports)
	}
	if l.hostPort == 0 {
		return nil, fmt.Errorf("%w: the load balancer was removed while the engine chose a port for it", provider.ErrUnavailable)
	}
	return existing, nil
}

// portIn returns the host port of the published port; 0 if there is none or the engine
// has not chosen yet.
func portIn(ports network.PortMap) int {
	for _, bindings := range ports {
		for _, binding := range bindings {
			port, _ := strconv.Atoi(binding.HostPort)
			return port
		}
	}
	return 0
}

// createBalancer makes the container, without any capability.
func (b *Backend) createBalancer(ctx context.Context, l balancer) (string, error) {
	host := &container.HostConfig{
		NetworkMode: container.NetworkMode(l.net.id), RestartPolicy: restart,
		CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"},
		LogConfig: logConfig,
	}
	// Without a StopSignal any signal ends an engine's watch over a container.
	config := &container.Config{Image: l.image, Hostname: l.unique(), StopSignal: "SIGTERM", Labels: with(l.addr.labels(l.labels(), l.net.families), labelPort, strconv.Itoa(l.port), labelSpec, l.specHash(), labelTarget, strconv.Itoa(l.target))}
	if l.template != "" {
		config.Labels[labelTemplate] = "true"
	}
	if port, ok := network.PortFrom(uint16(l.port), network.TCP); ok && l.publish {
		binding := network.PortBinding{HostIP: l.listenAt()}
		if l.hostPort != 0 {
			binding.HostPort = strconv.Itoa(l.hostPort)
		}
		config.ExposedPorts = network.PortSet{port: {}}
		host.PortBindings = network.PortMap{port: {binding}}
	}
	made, err := b.engine.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name: l.unique() + "-lb", Config: config, HostConfig: host, NetworkingConfig: l.net.endpoint(l.addr),
	})
	if err != nil {
		return "", b.explainConflict(ctx, l.unique()+"-lb", l.cluster, fmt.Errorf("make the load balancer: %w", err))
	}
	return made.ID, nil
}

// restart makes the engine start containers again after it or its host restarts. The
// policy is not unless-stopped: an engine regards a container as stopped by hand once
// it was asked to send it a signal, and also if the engine itself was killed while the
// container ran.
var restart = container.RestartPolicy{Name: container.RestartPolicyAlways}

// logConfig limits the logs of a container on the engine's disk.
var logConfig = container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "4m", "max-file": "2"}}

// endpoint connects a container to the network with an address. It uses the network's
// id: names need not be unique.
func (n *clusterNetwork) endpoint(addr addresses, aliases ...string) *network.NetworkingConfig {
	return &network.NetworkingConfig{EndpointsConfig: map[string]*network.EndpointSettings{n.id: {
		NetworkID: n.id, IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: addr.v4, IPv6Address: addr.v6}, Aliases: aliases,
	}}}
}

// explainConflict explains a conflict of names: another process created the container
// first, which the next attempt finds, or the name belongs to somebody else.
func (b *Backend) explainConflict(ctx context.Context, name, cluster string, err error) error {
	if !errdefs.IsConflict(err) {
		return err
	}
	other, looking := b.inspect(ctx, name)
	if looking == nil && other != nil && other.Config.Labels[labelCluster] != cluster {
		return because(ReasonNameTaken, provider.ErrAlreadyExists, "container %s is somebody else's: remove it", name)
	}
	return fmt.Errorf("%w: %w", provider.ErrUnavailable, err)
}

// startBalancer configures and starts a load balancer unless it runs.
func (b *Backend) startBalancer(ctx context.Context, id string, state *container.State, l *balancer) error {
	if state != nil && state.Restarting {
		return because(ReasonBalancerFails, provider.ErrUnavailable, "the load balancer ends with code %d and is started again; docker logs %s-lb says more", state.ExitCode, l.unique())
	}
	if state != nil && state.Running {
		return b.balance(ctx, l.cluster, "")
	}
	// One that has run has its files. An engine that comes back starts it by itself, and one
	// of version 20.10 drops requests to copy into it meanwhile, and can then not remove it.
	if state == nil || state.Status == container.StateCreated {
		if err := b.writeBalancer(ctx, id, l); err != nil {
			return err
		}
	}
	_, err := b.engine.ContainerStart(ctx, id, client.ContainerStartOptions{})
	if err == nil {
		return b.balance(ctx, l.cluster, "")
	}
	if err = classify(fmt.Errorf("start the load balancer: %w", err)); reasonIs(err, ReasonStartInterrupted) {
		if removing := b.remove(ctx, id); removing != nil {
			return fmt.Errorf("%w; and it cannot be removed: %v", err, removing)
		}
	}
	return err
}

func (b *Backend) writeBalancer(ctx context.Context, id string, l *balancer) error {
	list, err := b.backends(ctx, l.cluster, "", l.target)
	if err != nil {
		return err
	}
	text, err := configText(l.template, loadbalancer.Config{Port: l.port, IPv6: l.net.families.begins6(), Backends: list}, l.target)
	if err == nil && l.template != "" {
		err = b.copyIn(ctx, id, append(configFolders, dockerengine.File{Name: templatePath, Mode: 0o644, Data: []byte(l.template)})...)
	}
	if err != nil {
		return err
	}
	return b.configure(ctx, id, text, false)
}

// labelTarget holds the port of API servers. labelTemplate is set if the load balancer
// has a template of its configuration.
const (
	labelTarget   = labelPrefix + "target-port"
	labelTemplate = labelPrefix + "template"
)

// backends returns the machines of a control plane, except for one.
func (b *Backend) backends(ctx context.Context, cluster, without string, target int) ([]loadbalancer.Backend, error) {
	list, err := b.containers(ctx, labelCluster, cluster, labelRole, roleControlPlane)
	if err != nil {
		return nil, err
	}
	var backends []loadbalancer.Backend
	for _, c := range list {
		addresses := addressesIn(c.Labels)
		if c.Labels[labelKey] == without || len(c.Names) == 0 || len(addresses) == 0 {
			continue
		}
		backends = append(backends, loadbalancer.Backend{Name: strings.TrimPrefix(c.Names[0], "/"), Host: addresses[0], Port: target})
	}
	slices.SortFunc(backends, func(a, b loadbalancer.Backend) int { return strings.Compare(a.Name, b.Name) })
	return backends, nil
}

// rebalance updates the backends of a cluster's load balancer, if there is one,
// to the cluster's machines except one that is being deleted.
func (b *Backend) rebalance(ctx context.Context, cluster, without string) error {
	unlock, err := b.locks.Take(ctx, cluster)
	if err != nil {
		return err
	}
	defer unlock()
	return b.balance(ctx, cluster, without)
}

func (b *Backend) balance(ctx context.Context, cluster, without string) error {
	existing, err := b.containerWith(ctx, labelCluster, cluster, labelRole, roleLoadBalancer)
	if err != nil || existing == nil || !existing.State.Running { // startBalancer does it
		return err
	}
	port, _ := strconv.Atoi(existing.Config.Labels[labelPort])
	target, _ := strconv.Atoi(existing.Config.Labels[labelTarget])
	list, err := b.backends(ctx, cluster, without, target)
	if err != nil {
		return err
	}
	var template []byte
	if existing.Config.Labels[labelTemplate] != "" {
		if template, err = b.read(ctx, existing.ID, templatePath); err != nil {
			return err
		}
	}
	own, six := addressesIn(existing.Config.Labels), false
	if len(own) > 0 {
		six = strings.Contains(own[0], ":")
	}
	text, err := configText(string(template), loadbalancer.Config{Port: port, IPv6: six, Backends: list}, target)
	if err != nil {
		return err
	}
	return b.configure(ctx, existing.ID, text, true)
}

// appliedPath is a copy of the configuration that the load balancer last loaded.
// It is written after loading, so that a crash in between is repaired.
const appliedPath = loadbalancer.ConfigPath + ".applied"

// configFolders are the folders of the configuration, which an image may lack. It is
// clipped so that append copies it.
var configFolders = slices.Clip([]dockerengine.File{{Name: "usr/", Mode: 0o755}, {Name: "usr/local/", Mode: 0o755}, {Name: "usr/local/etc/", Mode: 0o755}, {Name: "usr/local/etc/haproxy/", Mode: 0o755}})

// configure writes the configuration if it differs, and reloads it.
func (b *Backend) configure(ctx context.Context, id string, text []byte, running bool) error {
	sum := sha256.Sum256(text)
	mark := hex.EncodeToString(sum[:])
	if running {
		applied, err := b.read(ctx, id, appliedPath)
		if err != nil || string(applied) == mark {
			return err
		}
	}
	if err := b.copyIn(ctx, id, append(configFolders, dockerengine.File{Name: loadbalancer.ConfigPath, Mode: 0o644, Data: text})...); err != nil {
		return err
	}
	if running {
		if _, err := b.engine.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "HUP"}); err != nil && !errdefs.IsConflict(err) && !errdefs.IsNotFound(err) {
			return fmt.Errorf("reload the load balancer's configuration: %w", err)
		}
	}
	return b.copyIn(ctx, id, dockerengine.File{Name: appliedPath, Mode: 0o644, Data: []byte(mark)})
}
