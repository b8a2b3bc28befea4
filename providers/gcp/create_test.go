// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/gcp"
)

const key = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func create(t *testing.T, p *Provider, spec provider.InstanceTypeSpec) *provider.Instance {
	t.Helper()
	made, err := p.CreateInstance(t.Context(), "web", key, cloudinit.Raw("#cloud-config\n"), spec)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// field walks into decoded JSON; a number is an index.
func field(value any, path ...any) any {
	for _, step := range path {
		switch at := step.(type) {
		case string:
			inner, _ := value.(map[string]any)
			value = inner[at]
		case int:
			inner, _ := value.([]any)
			if at >= len(inner) {
				return nil
			}
			value = inner[at]
		}
	}
	return value
}

// TestTheWholeInstanceIsOneRequest looks at what arrives.
func TestTheWholeInstanceIsOneRequest(t *testing.T) {
	s := newStand(t)
	s.cfg.ConfidentialType, s.cfg.MachineType = "SEV_SNP", "n2d-standard-2"
	s.cfg.DiskType, s.cfg.RootDisk, s.cfg.Spot, s.cfg.UsePublicIP = "pd-ssd", 12, true, true
	s.cfg.Tags, s.cfg.Labels = map[string]string{"env": "test"}, map[string]string{"team": "a"}
	s.cfg.NetworkTags = []string{"podvm"}
	p := s.mustOpen(t)
	made := create(t, p, spec(key))
	vm := s.Instance(made.ID)
	for _, want := range []struct {
		value any
		path  []any
	}{
		{"SEV_SNP", []any{"confidentialInstanceConfig", "confidentialInstanceType"}},
		{"TERMINATE", []any{"scheduling", "onHostMaintenance"}},
		{"SPOT", []any{"scheduling", "provisioningModel"}},
		{"DELETE", []any{"scheduling", "instanceTerminationAction"}},
		{false, []any{"scheduling", "automaticRestart"}},
		{true, []any{"disks", 0, "autoDelete"}},
		{"podvm", []any{"tags", "items", 0}},
		{"a", []any{"labels", "team"}},
		{encode(key, labelValue), []any{"labels", provider.TagKey}},
		{"test", []any{"params", "resourceManagerTags", sim.Project + "/env"}},
		{"#cloud-config\n", []any{"metadata", "items", 0, "value"}},
	} {
		if got := field(vm, want.path...); got != want.value {
			t.Errorf("%v is %v, want %v", want.path, got, want.value)
		}
	}
	if made.IPs[0].String() != field(vm, "networkInterfaces", 0, "accessConfigs", 0, "natIP") {
		t.Errorf("address %v is not the external one", made.IPs)
	}
	if diff := cmp.Diff(cloudsim.OwnerTags(key), made.Tags); diff != "" {
		t.Error(diff)
	}
	if _, ok := provider.As[provider.PowerController](p); ok {
		t.Error("a VM that loses its external address can be powered off")
	}
}

func TestSecondInterface(t *testing.T) {
	s := newStand(t)
	wanted := spec(key)
	wanted.MultiNic = true
	if _, err := s.mustOpen(t).CreateInstance(t.Context(), "web", key, nil, wanted); !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), "-gcp-secondary-network (GCP_SECONDARY_NETWORK)") {
		t.Errorf("without a network for it: %v", err)
	}
	s.cfg.SecondaryNetwork = sim.OtherNetwork
	made := create(t, s.mustOpen(t), wanted)
	vm := s.Instance(made.ID)
	if field(vm, "networkInterfaces", 1, "accessConfigs", 0, "natIP") == nil || field(vm, "networkInterfaces", 0, "accessConfigs") != nil {
		t.Errorf("interfaces %v", vm["networkInterfaces"])
	}
	if len(made.IPs) != 1 {
		t.Errorf("addresses %v", made.IPs)
	}
}

// TestOtherPlaces: where there is no capacity the next zone, then the next
// type in the order of price.
func TestOtherPlaces(t *testing.T) {
	s := newStand(t)
	s.cfg.Prices = map[string]string{"e2-standard-4": "0.2", "n2d-standard-4": "0.1"}
	for _, zone := range sim.Zones {
		s.World.Script(cloudsim.Fault{Action: sim.Late("insert", zone), Code: "ZONE_RESOURCE_POOL_EXHAUSTED", Message: "none left"})
	}
	wanted := spec(key)
	wanted.VCPUs, wanted.Memory = 4, 8192
	made := create(t, s.mustOpen(t), wanted)
	got, err := s.mustOpen(t).GetInstance(t.Context(), made.ID)
	if err != nil || got.Type != "e2-standard-4" || got.Zone != sim.Zones[0] || got.Region != sim.Region {
		t.Errorf("made %+v, %v", got, err)
	}
	if left, _ := s.leaks(); len(left) != 2 {
		t.Errorf("the books show %v, want an instance and its disk", left)
	}
}

func TestNoCapacityAnywhere(t *testing.T) {
	s := newStand(t)
	s.cfg.Zones = sim.Zones[:2]
	for _, zone := range s.cfg.Zones {
		s.World.Script(cloudsim.Fault{Action: sim.Late("insert", zone), Code: "ZONE_RESOURCE_POOL_EXHAUSTED", Message: "none left", After: true, Times: -1})
	}
	made, err := s.mustOpen(t).CreateInstance(t.Context(), "web", key, nil, spec(key))
	if !errors.Is(err, provider.ErrCapacity) || made != nil {
		t.Fatalf("%v, %v", made, err)
	}
	for _, zone := range s.cfg.Zones {
		if !strings.Contains(err.Error(), zone) {
			t.Errorf("the error does not name %s: %v", zone, err)
		}
	}
}

// TestALateFailureThatLeavesADisk: the list shows it, and deleting by the
// listed id removes it.
func TestALateFailureThatLeavesADisk(t *testing.T) {
	s := newStand(t)
	s.World.Script(cloudsim.Fault{Action: sim.Late("insert", sim.Zones[0]), Code: "QUOTA_EXCEEDED", Message: "CPUS", After: true})
	p := s.mustOpen(t)
	if _, err := p.CreateInstance(t.Context(), "web", key, nil, spec(key)); !errors.Is(err, provider.ErrQuota) {
		t.Fatalf("%v", err)
	}
	list, err := p.ListInstances(t.Context(), map[string]string{provider.TagKey: key})
	if err != nil || len(list) != 1 || list[0].Key != key {
		t.Fatalf("%v, %v", list, err)
	}
	if err := p.DeleteInstance(t.Context(), list[0].ID); err != nil {
		t.Fatal(err)
	}
	s.wantNothing(t)
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

// TestDeletedWhileItIsMade: a deletion that comes while the insert is under
// way, and nobody sees the instance yet, waits for it.
func TestDeletedWhileItIsMade(t *testing.T) {
	noLeaks(t)
	s := newStand(t)
	s.Step = 20 * time.Millisecond
	s.World.SetLag(1000)
	s.World.Script(cloudsim.Slow("compute.zoneOperations.*", time.Hour).Repeated(-1)) // until nobody waits for it
	p := s.mustOpen(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil && len(s.World.Own()) == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	made, err := p.CreateInstance(ctx, "web", key, nil, spec(key))
	s.World.ClearFaults()
	if made == nil || err == nil || !provider.Retryable(err) {
		t.Fatalf("%v, %v", made, err)
	}
	if err := p.DeleteInstance(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	s.wantNothing(t)
}

// TestTokens are fetched once, and again when the cloud refuses one.
func TestTokens(t *testing.T) {
	s := newStand(t)
	p := s.mustOpen(t)
	for range 3 {
		if _, err := p.GetInstance(t.Context(), "us-central1-a/podvm-x-0123456789ab"); !errors.Is(err, provider.ErrNotFound) {
			t.Fatal(err)
		}
	}
	if n := s.World.Calls()["oauth2.token"]; n != 1 {
		t.Errorf("%d tokens were fetched", n)
	}
	s.Revoke()
	if _, err := p.GetInstance(t.Context(), "us-central1-a/podvm-x-0123456789ab"); !errors.Is(err, provider.ErrNotFound) {
		t.Error(err)
	}
	if n := s.World.Calls()["oauth2.token"]; n != 2 {
		t.Errorf("%d tokens were fetched after one was refused", n)
	}
}

func TestUnreachableZones(t *testing.T) {
	s := newStand(t)
	s.cfg.Zones = sim.Zones[:1]
	p := s.mustOpen(t)
	match := map[string]string{provider.TagCluster: "c"}
	s.SetUnreachable(sim.Zones[2])
	if _, err := p.ListInstances(t.Context(), match); err != nil {
		t.Errorf("another zone is down: %v", err)
	}
	s.SetUnreachable(sim.Zones[0])
	if _, err := p.ListInstances(t.Context(), match); !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("our zone is down: %v", err)
	}
}

func TestPowerWithoutCapacity(t *testing.T) {
	s := newStand(t)
	p := s.mustOpen(t)
	made := create(t, p, spec(key))
	if err := p.PowerOff(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	s.World.Script(cloudsim.Fault{Action: sim.Late("start", "*"), Code: "ZONE_RESOURCE_POOL_EXHAUSTED", Message: "none left"})
	if err := p.PowerOn(t.Context(), made.ID); !errors.Is(err, provider.ErrCapacity) {
		t.Errorf("%v", err)
	}
	if err := p.PowerOn(t.Context(), made.ID); err != nil {
		t.Error(err)
	}
}

func TestThrottlingIsWaitedOut(t *testing.T) {
	s := newStand(t)
	s.World.Script(cloudsim.Refused("compute.instances.*", http.StatusForbidden, "rateLimitExceeded").Repeated(3))
	create(t, s.mustOpen(t), spec(key))
}
