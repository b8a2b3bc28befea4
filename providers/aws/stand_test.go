// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"io"
	"log"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/aws"
)

// quick is the patience that a simulated cloud needs.
var quick = timing{
	settle: 300 * time.Millisecond, token: 2 * time.Second, pause: time.Millisecond, pauseMax: 10 * time.Millisecond,
	retryMax: 5 * time.Millisecond, fresh: time.Minute, call: time.Minute, quota: time.Minute,
}

// lively are states that last a little.
var lively = sim.Options{Pending: 2 * time.Millisecond, Stopping: 2 * time.Millisecond, Ending: 2 * time.Millisecond, Storage: 2 * time.Millisecond}

// optionsAtOnce have no state that lasts, for counting calls.
var optionsAtOnce = sim.Options{}

// stand is a simulated cloud and the configuration that fits it.
type stand struct {
	*sim.Cloud
	cfg Config
}

func newStand(t testing.TB, options sim.Options) *stand {
	t.Helper()
	cloud := sim.New(t, options)
	server := cloudsim.Serve(t, cloud.Handler())
	t.Cleanup(func() { wantDocumented(t, cloud) })
	cfg := config.Defaults[Config]()
	cfg.AccessKeyID, cfg.SecretKey = sim.KeyID, sim.Secret
	cfg.Region, cfg.MetadataDisabled = sim.Region, true
	cfg.Endpoint, cfg.STSEndpoint, cfg.CABundle = server.URL, server.URL, server.CAFile
	cfg.BlocksEndpoint, cfg.QuotasEndpoint = server.URL, server.URL
	cfg.Image, cfg.KeyName = sim.AMI, sim.Key
	cfg.Subnets, cfg.SecurityGroups = []string{sim.SubnetA}, []string{sim.Group}
	cfg.InstanceTypes = []string{"m6a.*", "c6a.*"}
	cfg.Tags = map[string]string{"team": "pods"}
	return &stand{cloud, cfg}
}

// plain serves the cloud without TLS.
func (s *stand) plain(t testing.TB) {
	t.Helper()
	server := httptest.NewUnstartedServer(s.Handler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // faults abort connections on purpose
	server.Start()
	t.Cleanup(server.Close)
	s.cfg.Endpoint, s.cfg.STSEndpoint, s.cfg.CABundle = server.URL, server.URL, ""
	s.cfg.BlocksEndpoint, s.cfg.QuotasEndpoint = server.URL, server.URL
}

// wantDocumented fails a test that has seen a call which the page's policy does
// not allow.
func wantDocumented(t testing.TB, cloud *sim.Cloud) {
	t.Helper()
	allowed := slices.Concat(permitted(), importing, volumeActions())
	for action := range cloud.World.Calls() {
		if !strings.HasPrefix(action, "sts:") && !slices.Contains(allowed, action) {
			t.Errorf("%s was called, which the policy in %s lacks", action, page)
		}
	}
}

// open makes a provider; the test's end tears it down.
func (s *stand) open(t testing.TB, change ...func(*Config)) *Provider {
	t.Helper()
	p, err := s.start(change...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Teardown() })
	return p
}

func (s *stand) start(change ...func(*Config)) (*Provider, error) {
	cfg := s.cfg
	for _, f := range change {
		f(&cfg)
	}
	p, err := newProvider(cfg, quick)
	if err != nil {
		return nil, err
	}
	p.dial = cloudsim.DialLoopback
	return p, nil
}

const userData = cloudinit.Raw("#cloud-config\nwrite_files: []\n")

func specOf(key string) provider.InstanceTypeSpec {
	return provider.InstanceTypeSpec{Tags: cloudsim.OwnerTags(key)}
}

// create makes an instance or ends the test.
func create(t testing.TB, p provider.Provider, key string) *provider.Instance {
	t.Helper()
	instance, err := p.CreateInstance(t.Context(), "web", key, userData, specOf(key))
	if err != nil {
		t.Fatalf("create %s: %v", key, err)
	}
	return instance
}

// leaks returns what is left, once all that was deleted is gone.
func (s *stand) leaks() ([]string, error) {
	var left []string
	for _, r := range s.World.Own() {
		left = append(left, r.String())
	}
	return append(left, s.World.Violations()...), nil
}

func (s *stand) wantNothing(t testing.TB) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		left, _ := s.leaks()
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("left: %v", left)
			return
		}
		time.Sleep(time.Millisecond)
	}
}

var _ config.Configurable = NewManager()
