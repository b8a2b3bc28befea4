// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/outrigger/outrigger/internal/dockerengine"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
	"github.com/outrigger/outrigger/provider/kit/keylock"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// Provider makes containers on one engine.
type Provider struct {
	cfg    Config
	engine *client.Client
	locks  keylock.Locks
	// met is set once the engine has reported the version of its API.
	met atomic.Bool
	// wait is how often it looks whether something is done.
	wait poll.Pace
}

// New checks cfg. An engine that is unreachable must not keep this process from
// starting; ConfigVerifier asks it.
func New(cfg Config) (*Provider, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	engine, err := client.New(dockerengine.Options(cfg.Host, cfg.APIVersion, cfg.TLSVerify, cfg.CertPath)...)
	if err != nil {
		return nil, fmt.Errorf("%w: -docker-host (DOCKER_HOST) and -docker-cert-path (DOCKER_CERT_PATH): %w", provider.ErrInvalidArgument, err)
	}
	return &Provider{cfg: cfg, engine: engine, wait: poll.Pace{First: 20 * time.Millisecond, Max: 500 * time.Millisecond}}, nil
}

// negotiateVersion agrees with the engine on a version of the API, once. Docker's client
// would do so by itself, and where the engine does not answer it would go on
// with the newest version that it knows, whose refusal then hides why.
func (p *Provider) negotiateVersion(ctx context.Context) error {
	if p.met.Load() || p.cfg.APIVersion != "" {
		return nil
	}
	if _, err := p.engine.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		return classify(err)
	}
	p.met.Store(true)
	return nil
}

// Teardown closes connections; containers run on.
func (p *Provider) Teardown() error { return p.engine.Close() }

// Labels of our containers besides the owner tags, which have their own names.
const (
	// labelOurs marks them all; its value is the version of this scheme.
	labelOurs = "outrigger.podvm"
	// labelName is the instance's name for people.
	labelName = "outrigger.name"
	tagPrefix = "outrigger.tag/"
)

func ours(labels map[string]string) bool { return labels[labelOurs] != "" }

// tagsIn returns the owner tags in labels.
func tagsIn(labels map[string]string) map[string]string {
	tags := map[string]string{}
	for name, value := range labels {
		if tag, ok := strings.CutPrefix(name, tagPrefix); ok {
			tags[tag] = value
		}
	}
	return tags
}

// classify puts an error of the engine into its class.
func classify(err error) error { return failure.ClassifyBy(err, dockerengine.Class) }

// inspect returns nil for what does not exist.
func (p *Provider) inspect(ctx context.Context, id string) (*container.InspectResponse, error) {
	return dockerengine.Inspect(ctx, p.engine, id)
}

// existing returns a container of ours.
func (p *Provider) existing(ctx context.Context, id string) (*container.InspectResponse, error) {
	if !isID(id) {
		return nil, fmt.Errorf("%w: no instance %q", provider.ErrNotFound, id)
	}
	if err := p.negotiateVersion(ctx); err != nil {
		return nil, err
	}
	c, err := p.inspect(ctx, id)
	if err != nil {
		return nil, classify(err)
	}
	if c == nil || !ours(c.Config.Labels) {
		return nil, fmt.Errorf("%w: no instance %s on %s", provider.ErrNotFound, id, p.cfg.Host)
	}
	return c, nil
}

// isID reports whether the engine can have given an id: shorter ones and names
// would find containers too.
func isID(id string) bool {
	return len(id) == 64 && strings.Trim(id, "0123456789abcdef") == ""
}

// GetInstance implements provider.Getter.
func (p *Provider) GetInstance(ctx context.Context, instanceID string) (*provider.Instance, error) {
	if strings.HasPrefix(instanceID, namePrefix) {
		node, err := p.nodeByName(ctx, instanceID)
		if err != nil {
			return nil, fmt.Errorf("get instance: %w", err)
		}
		return node, nil
	}
	c, err := p.existing(ctx, instanceID)
	if err != nil {
		return nil, fmt.Errorf("get instance: %w", err)
	}
	return p.answer(c), nil
}

// ListInstances implements provider.Lister.
func (p *Provider) ListInstances(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
	if err := p.negotiateVersion(ctx); err != nil {
		return nil, fmt.Errorf("list instances: %w", err)
	}
	filter := client.Filters{}.Add("label", labelOurs)
	for name, value := range match {
		filter = filter.Add("label", tagPrefix+name+"="+value)
	}
	result, err := p.engine.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: filter})
	if err != nil {
		return nil, fmt.Errorf("list instances: %w", classify(err))
	}
	var list []provider.Instance
	for _, c := range result.Items {
		// The engine's filter takes a prefix of the value for the whole.
		if !ours(c.Labels) || !provider.HasTags(tagsIn(c.Labels), match) {
			continue
		}
		list = append(list, p.summary(c))
	}
	nodes, err := p.nodes(ctx, match)
	if err != nil {
		return nil, fmt.Errorf("list instances: %w", err)
	}
	return append(list, nodes...), nil
}

func (p *Provider) answer(c *container.InspectResponse) *provider.Instance {
	var state container.ContainerState
	if c.State != nil {
		state = c.State.Status
	}
	i := instanceOf(c.ID, c.Config.Labels, state)
	if made, err := time.Parse(time.RFC3339Nano, c.Created); err == nil {
		i.Created = made.UTC().Truncate(time.Second)
	}
	if c.NetworkSettings != nil {
		if at := c.NetworkSettings.Networks[p.cfg.Network]; at != nil {
			i.IPs = addresses(at.IPAddress, at.GlobalIPv6Address)
		}
	}
	return &i
}

func instanceOf(id string, labels map[string]string, state container.ContainerState) provider.Instance {
	tags := tagsIn(labels)
	return provider.Instance{ID: id, Name: labels[labelName], Key: tags[provider.TagKey], Tags: tags, State: stateOf(state)}
}

func stateOf(s container.ContainerState) provider.InstanceState {
	switch s {
	case container.StateRunning, container.StatePaused, container.StateRestarting:
		return provider.StateRunning
	case container.StateExited, container.StateDead:
		return provider.StateStopped
	case container.StateRemoving:
		return provider.StateDeleting
	}
	return provider.StatePending
}

// addresses returns the first that is valid: IPs[1] would be a tunnel of its own.
func addresses(list ...netip.Addr) []netip.Addr {
	for _, addr := range list {
		if addr.IsValid() {
			return []netip.Addr{addr}
		}
	}
	return nil
}
