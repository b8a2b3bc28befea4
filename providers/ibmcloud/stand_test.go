// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"go.uber.org/goleak"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/kit/poll"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/ibmcloud"
)

func TestMain(m *testing.M) { cloudsim.Main(m) }

// stand is a simulated cloud and the configuration that fits it.
type stand struct {
	*sim.Sim
	cfg Config
}

func newStand(t testing.TB) *stand {
	t.Helper()
	s := &stand{Sim: sim.New(t, cloudsim.NewWorld()), cfg: config.Defaults[Config]()}
	s.Sim.TagsOf = tagsOf
	s.cfg.APIKey, s.cfg.IAM = sim.APIKey, s.Server.URL+"/identity/token"
	s.cfg.VPCURL, s.cfg.CAFile = s.Server.URL+"/v1", s.Server.CAFile
	s.cfg.Zones, s.cfg.Subnets, s.cfg.VPC = sim.Zones, sim.Subnets, sim.VPC
	s.cfg.Images = []string{sim.Image, sim.S390X}
	s.cfg.Profile, s.cfg.Profiles = "bx2-2x8", []string{"*"}
	t.Cleanup(func() {
		for _, name := range s.Used() {
			if !slices.Contains(role, name) && !slices.Contains(importing, name) && !slices.Contains(volumesRole, name) {
				t.Errorf("%s is needed and not in the role of docs/providers/ibmcloud.md", name)
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
	retry := p.api.Service.Client.Transport.(*retryablehttp.RoundTripper).Client
	retry.RetryWaitMin, retry.RetryWaitMax = time.Millisecond, 4*time.Millisecond
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

func (s *stand) leaks() ([]string, error) {
	var left []string
	for _, r := range s.World.Own() {
		left = append(left, r.String())
	}
	return append(left, s.World.Violations()...), nil
}

// wantNothing waits until the books show nothing.
func (s *stand) wantNothing(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if left, _ := s.leaks(); len(left) == 0 {
			return
		}
	}
	left, _ := s.leaks()
	t.Errorf("left: %v", left)
}

func spec(key string) provider.InstanceTypeSpec {
	return provider.InstanceTypeSpec{Tags: cloudsim.OwnerTags(key)}
}

// role are the actions of the documented custom role.
var role = []string{
	"is.dedicated-host.dedicated-host.operate",
	"is.image.image.operate",
	"is.image.image.read",
	"is.instance.instance.create",
	"is.instance.instance.delete",
	"is.instance.instance.list",
	"is.instance.instance.operate",
	"is.instance.instance.read",
	"is.key.key.operate",
	"is.key.key.read",
	"is.security-group.security-group.list",
	"is.security-group.security-group.operate",
	"is.security-group.security-group.read",
	"is.subnet.subnet.operate",
	"is.subnet.subnet.read",
	"is.volume.volume.create",
	"is.volume.volume.delete",
	"is.volume.volume.list",
	"is.volume.volume.read",
	"is.vpc.vpc.operate",
	"is.vpc.vpc.read",
}

// volumesRole are the actions that disks and snapshots need besides.
var volumesRole = []string{
	"is.instance.instance.update",
	"is.snapshot.snapshot.create",
	"is.snapshot.snapshot.delete",
	"is.snapshot.snapshot.list",
	"is.snapshot.snapshot.operate",
	"is.snapshot.snapshot.read",
	"is.volume.volume.operate",
	"is.volume.volume.update",
}

// noLeaks looks for goroutines that outlive the test.
func noLeaks(t *testing.T) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}
