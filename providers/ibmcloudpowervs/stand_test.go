// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/kit/poll"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/ibmcloudpowervs"
)

func TestMain(m *testing.M) {
	sim.TagsOf = decodeTags
	cloudsim.Main(m)
}

// stand is a simulated workspace and the configuration that fits it.
type stand struct {
	*sim.Sim
	cfg Config
}

func newStand(t testing.TB) *stand {
	t.Helper()
	world := cloudsim.NewWorld()
	s := &stand{Sim: sim.New(t, world), cfg: config.Defaults[Config]()}
	s.cfg.APIKey, s.cfg.Zone, s.cfg.ServiceInstance = sim.APIKey, sim.Zone, sim.Instance
	s.cfg.Network, s.cfg.Image, s.cfg.SSHKey = sim.PublicNetwork, sim.Image, sim.SSHKey
	s.cfg.Endpoint, s.cfg.IAMEndpoint, s.cfg.CAFile = s.Server.URL, s.Server.URL+"/identity/token", s.Server.CAFile
	t.Cleanup(func() {
		for call := range world.Calls() {
			if name := strings.TrimPrefix(call, "powervs:"); !strings.Contains(pageText(t), "| `"+name+"` |") && call != "iam:token" && call != sim.LateFailure && call != sim.LateClone {
				t.Errorf("%s is called and not on the page %s", name, page)
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
	p.api.rest.Pace = p.wait
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

// leaks leaves out that two processes made an instance each for a while: the
// cloud has nothing to prevent it.
func (s *stand) leaks() ([]string, error) {
	left := slices.DeleteFunc(s.World.Violations(), func(v string) bool { return strings.HasPrefix(v, "two instances of one key") })
	for _, r := range s.World.Own() {
		left = append(left, r.String())
	}
	return left, nil
}

func spec(key string) provider.InstanceTypeSpec {
	return provider.InstanceTypeSpec{Tags: cloudsim.OwnerTags(key)}
}

func pageText(t testing.TB) string {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
