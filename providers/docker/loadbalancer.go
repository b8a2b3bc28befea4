// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"github.com/outrigger/outrigger/internal/dockerengine"
	"github.com/outrigger/outrigger/internal/loadbalancer"
	"github.com/outrigger/outrigger/provider"
)

// Labels of load balancers. They are not instances, so they lack labelOurs.
const (
	labelBalancer = "outrigger.loadbalancer"
	// labelPorts is a hash of ports, image and network: if they change the container is
	// replaced.
	labelPorts = "outrigger.loadbalancer/for"
)

// balancerFolder is the folder in the container with a configuration file per port.
const balancerFolder = "/etc/cluster-loadbalancer"

const balancerPrefix = "outrigger-lb-"

func balancerName(key string) string { return balancerPrefix + key }

// EnsureLoadBalancer implements provider.LoadBalancerController: a container of
// the program cluster-loadbalancer on the network of the instances.
func (p *Provider) EnsureLoadBalancer(ctx context.Context, spec provider.LoadBalancerSpec) (*provider.LoadBalancer, error) {
	if err := spec.CheckTCP(); err != nil {
		return nil, fmt.Errorf("load balancer: %w", err)
	}
	unlock, err := p.locks.Take(ctx, balancerName(spec.Key))
	if err != nil {
		return nil, fmt.Errorf("load balancer: %w: %w", provider.ErrUnavailable, err)
	}
	defer unlock()
	if err := p.negotiateVersion(ctx); err != nil {
		return nil, fmt.Errorf("load balancer: %w", err)
	}
	var made *provider.LoadBalancer
	err = p.wait.Until(ctx, func() (_ bool, err error) {
		made, err = p.ensureBalancer(ctx, spec)
		if errdefs.IsConflict(err) { // another process makes or removes it
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return nil, fmt.Errorf("load balancer %s: %w", balancerName(spec.Key), classify(err))
	}
	return made, nil
}

func (p *Provider) ensureBalancer(ctx context.Context, spec provider.LoadBalancerSpec) (*provider.LoadBalancer, error) {
	c, err := p.balancer(ctx, spec.Key)
	if err != nil {
		return nil, err
	}
	if c != nil && (c.Config.Labels[labelPorts] != p.balancerFor(spec) || stateOf(c.State.Status) == provider.StateDeleting) {
		if err := p.remove(ctx, c.ID); err != nil {
			return nil, err
		}
		c = nil
	}
	id := ""
	if c != nil {
		id = c.ID
	} else if id, err = p.makeBalancer(ctx, spec); err != nil {
		return nil, err
	}
	if err := p.balance(ctx, id, spec); err != nil {
		return nil, err
	}
	if c == nil || !c.State.Running {
		if _, err := p.engine.ContainerStart(ctx, id, client.ContainerStartOptions{}); err != nil {
			return nil, p.discardUnstarted(ctx, id, err)
		}
	}
	return p.awaitBalancer(ctx, spec.Key)
}

// discardUnstarted removes a load balancer that never ran and cannot be started, so that
// the next attempt makes another. An engine that died during a container's start never
// starts it again.
func (p *Provider) discardUnstarted(ctx context.Context, id string, cause error) error {
	c, err := p.inspect(ctx, id)
	if err == nil && c != nil && c.State.Status == container.StateCreated {
		err = p.remove(ctx, id)
	}
	if err != nil {
		return fmt.Errorf("%w; and it cannot be removed: %v", cause, err)
	}
	return cause
}

// balancer returns the container of a key; nil if there is none.
func (p *Provider) balancer(ctx context.Context, key string) (*container.InspectResponse, error) {
	c, err := p.inspect(ctx, balancerName(key))
	if err == nil && c != nil && c.Config.Labels[labelBalancer] == "" {
		return nil, fmt.Errorf("%w: container %s is somebody else's", provider.ErrAlreadyExists, balancerName(key))
	}
	return c, err
}

// balancerFor returns the value of labelPorts.
func (p *Provider) balancerFor(spec provider.LoadBalancerSpec) string {
	sum := sha256.Sum256([]byte(fmt.Sprint(p.cfg.BalancerImage, p.cfg.Network, balancerPorts(spec))))
	return hex.EncodeToString(sum[:8])
}

func balancerPorts(spec provider.LoadBalancerSpec) []int {
	var ports []int
	for _, port := range spec.Ports {
		ports = append(ports, int(port.Port))
	}
	slices.Sort(ports)
	return ports
}

func balancerFile(port int) string { return path.Join(balancerFolder, strconv.Itoa(port)+".cfg") }

// makeBalancer makes the container. Its only capability is that for ports below 1024. The
// engine starts it again when it restarts.
func (p *Provider) makeBalancer(ctx context.Context, spec provider.LoadBalancerSpec) (string, error) {
	labels := map[string]string{labelBalancer: "1", labelPorts: p.balancerFor(spec)}
	for tag, value := range spec.Tags {
		labels[tagPrefix+tag] = value
	}
	var files []string
	for _, port := range balancerPorts(spec) {
		files = append(files, balancerFile(port))
	}
	made, err := p.engine.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name:   balancerName(spec.Key),
		Config: &container.Config{Image: p.cfg.BalancerImage, Cmd: files, Labels: labels, StopSignal: "SIGTERM"},
		HostConfig: &container.HostConfig{
			NetworkMode: container.NetworkMode(p.cfg.Network), RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyAlways},
			CapDrop: []string{"ALL"}, CapAdd: []string{"NET_BIND_SERVICE"}, SecurityOpt: []string{"no-new-privileges"},
			LogConfig: container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "4m", "max-file": "1"}},
		},
		NetworkingConfig: &network.NetworkingConfig{EndpointsConfig: map[string]*network.EndpointSettings{p.cfg.Network: {}}},
	})
	if errdefs.IsNotFound(err) {
		return "", fmt.Errorf("%w: %w: the engine must have image %q (DOCKER_LOADBALANCER_IMAGE): bring it in with docker load or docker pull", provider.ErrNotFound, err, p.cfg.BalancerImage)
	}
	return made.ID, err
}

// balance writes the configuration files. The program in the container reloads them.
func (p *Provider) balance(ctx context.Context, id string, spec provider.LoadBalancerSpec) error {
	files := []dockerengine.File{{Name: balancerFolder + "/", Mode: 0o755}}
	for _, port := range spec.Ports {
		c := loadbalancer.Config{Port: int(port.Port)}
		for _, b := range spec.Backends {
			c.Backends = append(c.Backends, loadbalancer.Backend{Name: b.Name, Host: b.Addr.String(), Port: int(port.Target)})
		}
		files = append(files, dockerengine.File{Name: balancerFile(c.Port), Mode: 0o644, Data: []byte(c.HAProxy())})
	}
	return dockerengine.CopyIn(ctx, p.engine, id, files...)
}

// awaitBalancer waits for the address.
func (p *Provider) awaitBalancer(ctx context.Context, key string) (answer *provider.LoadBalancer, err error) {
	err = p.wait.Until(ctx, func() (bool, error) {
		c, err := p.balancer(ctx, key)
		switch {
		case err != nil:
			return true, err
		case c == nil:
			return true, fmt.Errorf("%w: it was removed while it was being made", provider.ErrUnavailable)
		case c.State.Restarting || c.State.Status == container.StateExited:
			return true, fmt.Errorf("%w: it ends with code %d; docker logs %s says more", provider.ErrUnavailable, c.State.ExitCode, balancerName(key))
		}
		answer = p.balancerAnswer(c)
		return len(answer.Addrs) > 0, nil
	})
	return answer, err
}

func (p *Provider) balancerAnswer(c *container.InspectResponse) *provider.LoadBalancer {
	b := balancerOf(c.Name, c.Config.Labels)
	if c.NetworkSettings != nil {
		if at := c.NetworkSettings.Networks[p.cfg.Network]; at != nil {
			b.Addrs = addresses(at.IPAddress, at.GlobalIPv6Address)
		}
	}
	return &b
}

// balancerOf returns the load balancer of a container by name and labels. The engine puts
// a / before names.
func balancerOf(name string, labels map[string]string) provider.LoadBalancer {
	key, _ := strings.CutPrefix(strings.TrimPrefix(name, "/"), balancerPrefix)
	return provider.LoadBalancer{Key: key, Tags: tagsIn(labels)}
}

// ListLoadBalancers implements provider.LoadBalancerController.
func (p *Provider) ListLoadBalancers(ctx context.Context, match map[string]string) ([]provider.LoadBalancer, error) {
	if err := p.negotiateVersion(ctx); err != nil {
		return nil, fmt.Errorf("list load balancers: %w", err)
	}
	result, err := p.engine.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", labelBalancer)})
	if err != nil {
		return nil, fmt.Errorf("list load balancers: %w", classify(err))
	}
	var list []provider.LoadBalancer
	for _, c := range result.Items {
		if c.Labels[labelBalancer] == "" || len(c.Names) == 0 || !provider.HasTags(tagsIn(c.Labels), match) {
			continue
		}
		b := balancerOf(c.Names[0], c.Labels)
		if c.NetworkSettings != nil {
			if at := c.NetworkSettings.Networks[p.cfg.Network]; at != nil {
				b.Addrs = addresses(at.IPAddress, at.GlobalIPv6Address)
			}
		}
		list = append(list, b)
	}
	return list, nil
}

// GetLoadBalancer implements provider.LoadBalancerController.
func (p *Provider) GetLoadBalancer(ctx context.Context, key string) (*provider.LoadBalancer, error) {
	if err := p.negotiateVersion(ctx); err != nil {
		return nil, fmt.Errorf("get load balancer: %w", err)
	}
	c, err := p.balancer(ctx, key)
	if err == nil && c == nil {
		err = fmt.Errorf("%w: there is no container %s", provider.ErrNotFound, balancerName(key))
	}
	if err != nil {
		return nil, fmt.Errorf("get load balancer: %w", classify(err))
	}
	return p.balancerAnswer(c), nil
}

// DeleteLoadBalancer implements provider.LoadBalancerController.
func (p *Provider) DeleteLoadBalancer(ctx context.Context, key string) error {
	if err := p.negotiateVersion(ctx); err != nil {
		return fmt.Errorf("delete load balancer: %w", err)
	}
	c, err := p.balancer(ctx, key)
	if err == nil && c != nil {
		err = p.remove(ctx, c.ID)
	}
	if err != nil {
		return fmt.Errorf("delete load balancer %s: %w", balancerName(key), classify(err))
	}
	return nil
}
