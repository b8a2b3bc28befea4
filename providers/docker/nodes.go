// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/outrigger/outrigger/provider"
)

// Containers that are machines of Cluster API's kind DockerMachine are not
// instances of this provider: it neither makes nor deletes them. With NodeCluster
// it shows those of one cluster, so that a cloud controller manager knows their
// Nodes, whose providerID is docker:////<name>. Their id is what follows docker://.
const namePrefix = "//"

var containerName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)

// nodeLabels are how makers of machines label those of a cluster, and what the
// machine is there for: kind and Cluster API's own provider, and this project's.
var nodeLabels = []struct{ cluster, role string }{
	{"io.x-k8s.kind.cluster", "io.x-k8s.kind.role"},
	{"infrastructure.outrigger.dev/cluster-key", "infrastructure.outrigger.dev/role"},
}

// isNode reports whether a container is a machine of the cluster, and no load
// balancer of it.
func (p *Provider) isNode(labels map[string]string) bool {
	for _, l := range nodeLabels {
		role := labels[l.role]
		if labels[l.cluster] == p.cfg.NodeCluster && (role == "control-plane" || role == "worker") {
			return true
		}
	}
	return false
}

// nodeByName returns the machine of an id such as //name.
func (p *Provider) nodeByName(ctx context.Context, id string) (*provider.Instance, error) {
	name := strings.TrimPrefix(id, namePrefix)
	switch {
	case p.cfg.NodeCluster == "":
		return nil, fmt.Errorf("%w: containers are not looked up by name: -docker-node-cluster (DOCKER_NODE_CLUSTER) is not set", provider.ErrUnimplemented)
	case !containerName.MatchString(name):
		return nil, fmt.Errorf("%w: %q is not a container's name", provider.ErrNotFound, name)
	}
	if err := p.negotiateVersion(ctx); err != nil {
		return nil, err
	}
	c, err := p.inspect(ctx, name)
	if err != nil {
		return nil, classify(err)
	}
	// An id, or its beginning, finds a container too.
	if c == nil || strings.TrimPrefix(c.Name, "/") != name || !p.isNode(c.Config.Labels) {
		return nil, fmt.Errorf("%w: no machine %s of cluster %s (DOCKER_NODE_CLUSTER) on %s", provider.ErrNotFound, name, p.cfg.NodeCluster, p.cfg.Host)
	}
	answer := p.answer(c)
	return p.node(name, answer), nil
}

// node makes a container's answer that of a machine.
func (p *Provider) node(name string, i *provider.Instance) *provider.Instance {
	i.ID, i.Name, i.Key = namePrefix+name, name, ""
	i.Tags = map[string]string{provider.TagCluster: p.cfg.NodeCluster}
	return i
}

// nodes returns the cluster's machines, if match asks for no other tag.
func (p *Provider) nodes(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
	if p.cfg.NodeCluster == "" || len(match) != 1 || match[provider.TagCluster] != p.cfg.NodeCluster {
		return nil, nil
	}
	var list []provider.Instance
	for _, l := range nodeLabels {
		filter := client.Filters{}.Add("label", l.cluster+"="+p.cfg.NodeCluster)
		result, err := p.engine.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: filter})
		if err != nil {
			return nil, classify(err)
		}
		for _, c := range result.Items {
			if c.Labels[l.cluster] == p.cfg.NodeCluster && p.isNode(c.Labels) && len(c.Names) > 0 {
				i := p.summary(c)
				list = append(list, *p.node(strings.TrimPrefix(c.Names[0], "/"), &i))
			}
		}
	}
	return list, nil
}

// summary returns an instance as a list shows it.
func (p *Provider) summary(c container.Summary) provider.Instance {
	i := instanceOf(c.ID, c.Labels, c.State)
	i.Created = time.Unix(c.Created, 0).UTC()
	if c.NetworkSettings != nil {
		if at := c.NetworkSettings.Networks[p.cfg.Network]; at != nil {
			i.IPs = addresses(at.IPAddress, at.GlobalIPv6Address)
		}
	}
	return i
}
