// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/aws"
)

func (s *stand) inspect(t *testing.T, id string) sim.Instance {
	t.Helper()
	i, ok := s.Inspect(id)
	if !ok {
		t.Fatalf("there is no instance %s", id)
	}
	return i
}

func TestOneCallMakesAll(t *testing.T) {
	s := newStand(t, lively)
	s.cfg.RootVolumeType = "gp3"
	p := s.open(t)
	spec := specOf("k")
	spec.MultiNic = true
	made, err := p.CreateInstance(t.Context(), "web", "k", userData, spec)
	if err != nil {
		t.Fatal(err)
	}
	calls := s.World.Calls()
	if diff := cmp.Diff(map[string]int{"ec2:DescribeImages": 1, "ec2:RunInstances": 1}, calls); diff != "" {
		t.Errorf("calls: -want +got\n%s", diff)
	}
	got := s.inspect(t, made.ID)
	if !got.SNP || got.Spot || got.Public || got.Type != "m6a.large" || got.Key != sim.Key || len(got.NICs) != 2 || len(got.Disks) != 1 {
		t.Errorf("made %+v", got)
	}
	if d := got.Disks[0]; d.Size != 30 || d.Type != "gp3" || d.Device != "/dev/sda1" {
		t.Errorf("root volume %+v", d)
	}
	for _, r := range s.World.Own() {
		if !provider.HasTags(r.Tags, cloudsim.OwnerTags("k")) || r.Tags["team"] != "pods" || r.Tags["Name"] != made.Name {
			t.Errorf("%s has tags %v", r, r.Tags)
		}
	}
	if made.Zone != sim.Region+"a" || made.Region != sim.Region || made.Type != "m6a.large" || made.Key != "k" || made.Created.IsZero() {
		t.Errorf("answered %+v", made)
	}
}

// TestTemplate: what the template says holds where nothing is configured, its
// disks go with the instance, and the instance is confidential anyway.
func TestTemplate(t *testing.T) {
	s := newStand(t, lively)
	p := s.open(t, variants["template"])
	made := create(t, p, "k")
	got := s.inspect(t, made.ID)
	if got.Type != "m6a.xlarge" || got.Subnet != sim.SubnetB || got.Image != sim.AMI || got.Key != sim.Key || !got.SNP {
		t.Errorf("made %+v", got)
	}
	if got.Public {
		t.Error("the subnet's own public address was taken though none was asked for")
	}
	if len(got.Disks) != 2 || !got.Disks[0].Encrypted || got.Disks[0].Size != 30 || got.Disks[1].Size != 20 || !slices.Equal(got.NICs[0].Groups, []string{sim.Group2}) {
		t.Errorf("made %+v", got)
	}
	if err := p.DeleteInstance(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	s.wantNothing(t)

	p = s.open(t, variants["template"], func(c *Config) { c.InstanceType, c.Subnets = "c6a.large", []string{sim.SubnetA} })
	if got := s.inspect(t, create(t, p, "other").ID); got.Type != "c6a.large" || got.Subnet != sim.SubnetA {
		t.Errorf("the configuration does not win over the template: %+v", got)
	}
}

func TestFallsBack(t *testing.T) {
	a, b := sim.Region+"a", sim.Region+"b"
	prices := priceList{"c6a.xlarge": 0.1, "m6a.xlarge": 0.2, "m6a.2xlarge": 0.3}
	for name, tc := range map[string]struct {
		full  []string
		spec  provider.InstanceTypeSpec
		want  string // type and zone
		class error
	}{
		"room":            {nil, provider.InstanceTypeSpec{}, "m6a.large " + a, nil},
		"next zone":       {[]string{"m6a.large " + a}, provider.InstanceTypeSpec{}, "m6a.large " + b, nil},
		"cheapest first":  {nil, provider.InstanceTypeSpec{VCPUs: 4}, "c6a.xlarge " + a, nil},
		"zone, then type": {[]string{"c6a.xlarge " + a}, provider.InstanceTypeSpec{VCPUs: 4}, "c6a.xlarge " + b, nil},
		"next type":       {[]string{"c6a.xlarge " + a, "c6a.xlarge " + b}, provider.InstanceTypeSpec{VCPUs: 4}, "m6a.xlarge " + a, nil},
		"not in a zone":   {[]string{"r6a.large " + a}, provider.InstanceTypeSpec{InstanceType: "r6a.large"}, "", provider.ErrCapacity},
		"none":            {[]string{"* " + a, "* " + b}, provider.InstanceTypeSpec{VCPUs: 4}, "", provider.ErrCapacity},
	} {
		t.Run(name, func(t *testing.T) {
			options := lively
			options.Full = map[string]bool{}
			for _, pair := range tc.full {
				options.Full[pair] = true
			}
			s := newStand(t, options)
			p := s.open(t, variants["zones"], func(c *Config) { c.Prices = prices; c.InstanceTypes = append(c.InstanceTypes, "r6a.*") })
			tc.spec.Tags = cloudsim.OwnerTags("k")
			made, err := p.CreateInstance(t.Context(), "web", "k", userData, tc.spec)
			if tc.class != nil {
				if !errors.Is(err, tc.class) || !strings.Contains(err.Error(), sim.SubnetA) || !strings.Contains(err.Error(), sim.SubnetB) {
					t.Errorf("error %v, want one of class %v that names both subnets", err, tc.class)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := made.Type + " " + made.Zone; got != tc.want {
				t.Errorf("made %s, want %s", got, tc.want)
			}
		})
	}
}

// TestRefusalsAreNotRepeated: EC2 says with status 500 that it is full, which
// the SDK would repeat.
func TestRefusalsAreNotRepeated(t *testing.T) {
	options := lively
	options.Full = map[string]bool{"m6a.large " + sim.Region + "a": true}
	s := newStand(t, options)
	p := s.open(t)
	if _, err := p.CreateInstance(t.Context(), "web", "k", userData, specOf("k")); !errors.Is(err, provider.ErrCapacity) {
		t.Errorf("error %v", err)
	}
	if n := s.World.Calls()["ec2:RunInstances"]; n != 1 {
		t.Errorf("RunInstances was called %d times", n)
	}
}

// TestKeyIsUsedAgain: EC2 remembers the token of an instance that has ended.
func TestKeyIsUsedAgain(t *testing.T) {
	for _, name := range []string{"direct", "zones"} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, lively)
			ids := map[string]bool{}
			for range 4 {
				p := s.open(t, variants[name]) // another process, which remembers nothing
				made := create(t, p, "k")
				if ids[made.ID] {
					t.Fatalf("%s was answered again after its end", made.ID)
				}
				ids[made.ID] = true
				if again := create(t, s.open(t, variants[name]), "k"); again.ID != made.ID {
					t.Fatalf("made %s and %s", made.ID, again.ID)
				}
				if err := p.DeleteInstance(t.Context(), made.ID); err != nil {
					t.Fatal(err)
				}
			}
			s.wantNothing(t)
		})
	}
}

// TestOtherParameters: another request with the token finds the instance, also
// when lists lag behind.
func TestOtherParameters(t *testing.T) {
	s := newStand(t, lively)
	s.World.SetLag(4)
	p := s.open(t)
	made := create(t, p, "k")
	again, err := p.CreateInstance(t.Context(), "another", "k", cloudinit.Raw("#cloud-config\n# other\n"), specOf("k"))
	if err != nil || again.ID != made.ID || again.Name != made.Name {
		t.Errorf("answered %+v, %v, want %s", again, err, made.ID)
	}
}

// TestForgottenZone: a creation in the second zone of which nothing is known
// any more is found by a process that remembers nothing, when the first zone
// has capacity again.
func TestForgottenZone(t *testing.T) {
	options := lively
	options.Full = map[string]bool{"m6a.large " + sim.Region + "a": true}
	s := newStand(t, options)
	made := create(t, s.open(t, variants["zones"]), "k")
	s.Change(func(o *sim.Options) { o.Full = nil })
	if again := create(t, s.open(t, variants["zones"]), "k"); again.ID != made.ID {
		t.Errorf("made %s and %s", made.ID, again.ID)
	}
}

func TestLaunchThatFailsLater(t *testing.T) {
	for reason, class := range endings {
		t.Run(reason, func(t *testing.T) {
			options := lively
			options.FailLaunch, options.Ending = reason, time.Hour
			s := newStand(t, options)
			p := s.open(t, variants["public"])
			made, err := p.CreateInstance(t.Context(), "web", "k", userData, specOf("k"))
			if !errors.Is(err, class) || !strings.Contains(err.Error(), reason) {
				t.Errorf("answered %v, %v", made, err)
			}
		})
	}
}

// TestHalfMade: the address cannot be had, and the instance is there to be
// deleted.
func TestHalfMade(t *testing.T) {
	options := lively
	options.Addresses = 1
	s := newStand(t, options)
	p := s.open(t, variants["elastic"])
	create(t, p, "first")
	made, err := p.CreateInstance(t.Context(), "web", "k", userData, specOf("k"))
	if !errors.Is(err, provider.ErrQuota) || made == nil || made.ID == "" {
		t.Fatalf("answered %v, %v", made, err)
	}
	list, err := p.ListInstances(t.Context(), map[string]string{provider.TagKey: "k"})
	if err != nil || len(list) != 1 || list[0].ID != made.ID {
		t.Errorf("listed %v, %v", list, err)
	}
	if err := p.DeleteInstance(t.Context(), made.ID); err != nil {
		t.Error(err)
	}
}

// TestOrphans: an address whose instance is gone is listed as that instance,
// and deleting it releases the address.
func TestOrphans(t *testing.T) {
	s := newStand(t, lively)
	p := s.open(t)
	const gone = "i-0fedcba9876543210"
	tags := cloudsim.OwnerTags("k")
	tags[tagInstance], tags[tagNIC] = gone, "0"
	s.AddAddress(tags)
	match := map[string]string{provider.TagCluster: tags[provider.TagCluster], provider.TagKey: "k"}
	list, err := p.ListInstances(t.Context(), match)
	if err != nil || len(list) != 1 || list[0].ID != gone || list[0].Key != "k" {
		t.Fatalf("listed %+v, %v", list, err)
	}
	if err := p.DeleteInstance(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	if list, err = p.ListInstances(t.Context(), match); err != nil || len(list) != 0 {
		t.Errorf("listed %+v, %v", list, err)
	}
	s.wantNothing(t)
}

func TestForeignInstancesStay(t *testing.T) {
	s := newStand(t, lively)
	p := s.open(t)
	id := s.AddForeign(map[string]string{"Name": "database"})
	if err := p.DeleteInstance(t.Context(), id); !errors.Is(err, provider.ErrPermissionDenied) {
		t.Errorf("delete: %v", err)
	}
	if err := p.PowerOff(t.Context(), id); !errors.Is(err, provider.ErrNotFound) {
		t.Errorf("power off: %v", err)
	}
	if _, err := p.GetInstance(t.Context(), id); !errors.Is(err, provider.ErrNotFound) {
		t.Errorf("get: %v", err)
	}
	if v := s.World.Violations(); len(v) > 0 {
		t.Error(v)
	}
}

// TestClustersShareAnAccount: the same key of another cluster is another
// instance.
func TestClustersShareAnAccount(t *testing.T) {
	s := newStand(t, lively)
	p := s.open(t)
	first := create(t, p, "k")
	second, err := p.CreateInstance(t.Context(), "web", "k", userData, provider.InstanceTypeSpec{Tags: cloudsim.ForeignTags("k")})
	if err != nil || second.ID == first.ID {
		t.Errorf("answered %v, %v; the other cluster has %s", second, err, first.ID)
	}
}

// TestDeletedWhileMade deletes the instance at each step of a long creation.
func TestDeletedWhileMade(t *testing.T) {
	for _, action := range []string{"ec2:DescribeInstances", "ec2:DescribeAddresses", "ec2:AllocateAddress", "ec2:AssociateAddress"} {
		t.Run(action, func(t *testing.T) {
			s := newStand(t, lively)
			s.World.Script(cloudsim.Slow(action, 30*time.Millisecond))
			p := s.open(t, variants["elastic"])
			result := make(chan error, 1)
			go func() {
				_, err := p.CreateInstance(t.Context(), "web", "k", userData, specOf("k"))
				result <- err
			}()
			id := s.waitFor(t, action)
			if err := s.open(t).DeleteInstance(context.WithoutCancel(t.Context()), id); err != nil {
				t.Error(err)
			}
			if err := <-result; err != nil && !provider.Retryable(err) && !errors.Is(err, provider.ErrNotFound) {
				t.Errorf("the creation of the deleted instance answered %v", err)
			}
			s.collect(t)
			s.wantNothing(t)
		})
	}
}

// TestAddressTakenWhileReleased: somebody who still makes the instance gives it
// its address between the two calls that take it away.
func TestAddressTakenWhileReleased(t *testing.T) {
	s := newStand(t, lively)
	p := s.open(t, variants["elastic"])
	i, err := p.CreateInstance(t.Context(), "web", "k", userData, specOf("k"))
	if err != nil {
		t.Fatal(err)
	}
	s.World.Script(cloudsim.Refused("ec2:ReleaseAddress", http.StatusBadRequest, "InvalidIPAddress.InUse").Repeated(2))
	if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Error(err)
	}
	s.wantNothing(t)
}

// waitFor waits for a call and returns the instance that there is then.
func (s *stand) waitFor(t *testing.T, action string) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if s.World.Calls()[action] == 0 {
			continue
		}
		for _, r := range s.World.Own() {
			if r.Kind == cloudsim.KindInstance {
				return r.ID
			}
		}
	}
	t.Fatalf("%s was not called", action)
	return ""
}

// collect deletes whatever is listed, as garbage collection does.
func (s *stand) collect(t *testing.T) {
	t.Helper()
	p := s.open(t)
	list, err := p.ListInstances(t.Context(), map[string]string{provider.TagCluster: cloudsim.OwnerTags("")[provider.TagCluster]})
	if err != nil {
		t.Error(err)
	}
	for _, i := range list {
		if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
			t.Error(err)
		}
	}
}

func TestCapabilities(t *testing.T) {
	s := newStand(t, lively)
	for name, want := range map[string]bool{"direct": true, "elastic": true, "public": false, "spot": false} {
		if _, has := provider.As[provider.PowerController](s.open(t, variants[name])); has != want {
			t.Errorf("%s: PowerController %v, want %v", name, has, want)
		}
	}
}

// TestConsoleOfOldTypes: those that are not Nitro have no latest output.
func TestConsoleOfOldTypes(t *testing.T) {
	s := newStand(t, lively)
	p := s.open(t, func(c *Config) { c.InstanceType, c.DisableCVM = "m5.large", true })
	text, err := p.Console(t.Context(), create(t, p, "k").ID, 1000)
	if err != nil || !strings.Contains(string(text), "Linux version") {
		t.Errorf("%q, %v", text, err)
	}
}
