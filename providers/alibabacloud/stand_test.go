// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/alibabacloud"
)

func TestMain(m *testing.M) { cloudsim.Main(m) }

// newCloud starts a simulated cloud and looks at its books when the test ends.
func newCloud(t testing.TB, o sim.Options) *sim.Cloud {
	t.Helper()
	c := sim.New(t, o)
	t.Cleanup(func() { inPolicy(t, c) })
	return c
}

// settings are those with which instances can be made.
func settings(c *sim.Cloud) Config {
	cfg := config.Defaults[Config]()
	cfg.AccessKeyID, cfg.AccessKeySecret = config.Secret(sim.AccessKeyID), config.Secret(sim.AccessSecret)
	cfg.Region, cfg.ImageID, cfg.VSwitchIDs, cfg.SecurityGroups = sim.Region, sim.Image, []string{sim.VSwitch}, []string{sim.Group}
	cfg.ECSEndpoint, cfg.VPCEndpoint, cfg.STSEndpoint, cfg.SLBEndpoint, cfg.CAFile = c.Endpoint, c.Endpoint, c.Endpoint, c.Endpoint, c.CAFile
	return cfg
}

// quick is a pace for a cloud on this machine.
func quick() pace {
	return pace{
		poll: time.Millisecond, maxPoll: 8 * time.Millisecond, visible: 150 * time.Millisecond, undo: time.Minute,
		verify: time.Minute, request: time.Minute, retry: time.Millisecond,
	}
}

func newProvider(t testing.TB, cfg Config) *Provider {
	t.Helper()
	p, err := open(cfg, quick(), cloudsim.DialLoopback)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Teardown(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// create makes an instance with all owner tags.
func create(t testing.TB, p *Provider, key string, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
	t.Helper()
	spec.Tags = cloudsim.OwnerTags(key)
	return p.CreateInstance(t.Context(), "pod-of-"+key, key, cloudinit.Raw("#cloud-config\n"), spec)
}

func mustCreate(t testing.TB, p *Provider, key string, spec provider.InstanceTypeSpec) *provider.Instance {
	t.Helper()
	i, err := create(t, p, key, spec)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// wantNothing waits until the cloud has nothing of ours any more.
func wantNothing(t testing.TB, c *sim.Cloud) {
	t.Helper()
	for end := time.Now().Add(time.Minute); len(c.Own()) > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // what the cloud has accepted to delete
	}
	for _, r := range c.Own() {
		t.Errorf("left: %s", r)
	}
	for _, violation := range c.Violations() {
		t.Error(violation)
	}
}

// noLeaks looks for goroutines that outlive the test.
func noLeaks(t *testing.T) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}
