// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/kit/poll"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/gcp"
)

func TestMain(m *testing.M) { cloudsim.Main(m) }

// stand is a simulated cloud and the configuration that fits it.
type stand struct {
	*sim.Sim
	cfg Config
}

func newStand(t testing.TB) *stand {
	t.Helper()
	return standOn(t, cloudsim.NewWorld())
}

func standOn(t testing.TB, world *cloudsim.World) *stand {
	t.Helper()
	s := &stand{Sim: sim.New(t, world), cfg: config.Defaults[Config]()}
	s.TagsOf = func(resource map[string]any) map[string]string {
		description, _ := resource["description"].(string)
		return tagsOf(description)
	}
	s.cfg.Credentials = config.Secret(s.ServiceAccount())
	s.cfg.Project, s.cfg.Zones = sim.Project, sim.Zones
	s.cfg.Network, s.cfg.Subnetwork, s.cfg.Image = sim.Network, sim.Subnetwork, sim.Image
	s.cfg.MachineTypes = []string{"*"}
	s.cfg.Endpoint, s.cfg.ManagerEndpoint, s.cfg.CAFile = s.Server.URL, s.Server.URL, s.Server.CAFile
	t.Cleanup(func() {
		for _, name := range s.Used() {
			if !slices.Contains(role(), name) && !slices.Contains(importing, name) && !slices.Contains(volumes, name) {
				t.Errorf("%s is needed and not in the role of docs/providers/gcp.md", name)
			}
		}
	})
	return s
}

// open makes a provider as a new process would, in a hurry.
func (s *stand) open() (*Provider, error) {
	p, err := New(s.cfg)
	if err != nil {
		return nil, err
	}
	p.wait = poll.Pace{First: time.Millisecond, Max: 4 * time.Millisecond}
	p.api.rest.Pace = poll.Pace{First: time.Millisecond, Max: 4 * time.Millisecond}
	p.remembered = 80 * time.Millisecond
	return p, nil
}

func (s *stand) mustOpen(t testing.TB) *Provider {
	t.Helper()
	p, err := s.open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Teardown() })
	return p
}

// with opens a provider with another setting.
func (s *stand) with(t testing.TB, change func(*Config)) func() provider.Provider {
	return func() provider.Provider {
		other := &stand{Sim: s.Sim, cfg: s.cfg}
		change(&other.cfg)
		return other.mustOpen(t)
	}
}

func (s *stand) leaks() ([]string, error) {
	var left []string
	for _, r := range s.World.Own() {
		left = append(left, r.String())
	}
	return append(left, s.World.Violations()...), nil
}

func spec(key string) provider.InstanceTypeSpec {
	return provider.InstanceTypeSpec{Tags: cloudsim.OwnerTags(key)}
}

// noLeaks looks for goroutines that outlive the test.
func noLeaks(t *testing.T) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}
