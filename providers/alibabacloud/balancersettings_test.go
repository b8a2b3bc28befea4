// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"errors"
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/alibabacloud"
)

func annotated(spec provider.LoadBalancerSpec, pairs ...string) provider.LoadBalancerSpec {
	spec.Annotations = map[string]string{"example.com/other": "x"}
	for pair := range slices.Chunk(pairs, 2) {
		spec.Annotations[annotation(pair[0])] = pair[1]
	}
	return spec
}

// TestBalancerAnnotations: they are kept, also when they change, or refused by name.
func TestBalancerAnnotations(t *testing.T) {
	c := newCloud(t, sim.Options{})
	p := newProvider(t, settings(c))
	internal := annotated(balancerSpec("internal"), "address-type", "intranet")
	mustEnsure(t, p, internal)
	if b := wantBalancer(t, c, internal); b.AddressType != "intranet" || !strings.HasPrefix(b.Address, "10.") {
		t.Errorf("%+v", b)
	}
	other := annotated(balancerSpec("other"), "address-type", "intranet", "vswitch-id", sim.OtherVSwitch, "spec", "slb.s2.small")
	mustEnsure(t, p, other)
	wide := annotated(balancerSpec("wide"), "spec", "slb.s1.small", "charge-type", "paybybandwidth", "bandwidth", "10")
	mustEnsure(t, p, wide)
	first := wantBalancer(t, c, wide)
	wide = annotated(wide, "spec", "slb.s3.small", "charge-type", "paybybandwidth", "bandwidth", "20")
	mustEnsure(t, p, wide)
	if b := wantBalancer(t, c, wide); b.ID != first.ID || b.Spec != "slb.s3.small" || b.Bandwidth != 20 {
		t.Errorf("after a change: %+v", b)
	}
	mustEnsure(t, p, annotated(wide, "spec", "slb.s3.small"))
	if b := wantBalancer(t, c, wide); b.InternetCharge != "paybytraffic" {
		t.Errorf("paid by traffic: %+v", b)
	}
	if _, err := p.EnsureLoadBalancer(t.Context(), balancerSpec("internal")); !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), annotation("address-type")+": lb-") {
		t.Errorf("another type of address: %v", err)
	}
}

func TestBalancerAnnotationsRefused(t *testing.T) {
	c := newCloud(t, sim.Options{})
	p := newProvider(t, settings(c))
	for _, test := range []struct {
		names string
		pairs []string
		want  string
	}{
		{"address-type", []string{"address-type", "Internet"}, `"Internet" is none of internet, intranet`},
		{"address-type", []string{"address-type", ""}, `"" is none of`},
		{"spec", []string{"spec", "slb.s9.huge"}, "is none of slb.s1.small"},
		{"spec", []string{"spec", "slb.s1.small", "instance-charge-type", "PayByCLCU"}, "no effect with"},
		{"id", []string{"id", "lb-2zexisting"}, "not used"},
		{"bandwidth", []string{"bandwidth", "lots", "charge-type", "paybybandwidth", "spec", "slb.s1.small"}, `"lots" is not a number from 1 to 5120`},
		{"bandwidth", []string{"bandwidth", "5121", "charge-type", "paybybandwidth", "spec", "slb.s1.small"}, "5121"},
		{"bandwidth", []string{"bandwidth", "10"}, "no effect without"},
		{"bandwidth", []string{"bandwidth", "10", "address-type", "intranet"}, "it is for"},
		{"charge-type", []string{"charge-type", "paybybandwidth", "spec", "slb.s1.small"}, "needs the annotation " + annotation("bandwidth")},
		{"charge-type", []string{"charge-type", "paybybandwidth", "bandwidth", "10"}, "needs the annotation " + annotation("spec")},
		{"charge-type", []string{"charge-type", "paybytraffic", "address-type", "intranet"}, "it is for"},
		{"instance-charge-type", []string{"instance-charge-type", "PayBySpec"}, "needs the annotation " + annotation("spec")},
		{"vswitch-id", []string{"vswitch-id", "vsw-1"}, "it is for"},
		{"vswitch-id", []string{"vswitch-id", "vpc-1", "address-type", "intranet"}, "not a vSwitch such as"},
		{"cert-id", []string{"cert-id", "1"}, "not supported; those that are: address-type, bandwidth"},
	} {
		_, err := p.EnsureLoadBalancer(t.Context(), annotated(balancerSpec("a1"), test.pairs...))
		if !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), "annotation "+annotation(test.names)+": ") || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %v", test.pairs, err)
		}
	}
	earlier := balancerSpec("a1")
	earlier.Annotations = map[string]string{annotationPrefixes[1] + "address-type": "intranet", annotation("address-type"): "internet"}
	if _, err := p.EnsureLoadBalancer(t.Context(), earlier); !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), "earlier name") {
		t.Errorf("two names: %v", err)
	}
	absent := annotated(balancerSpec("a1"), "address-type", "intranet", "vswitch-id", "vsw-2zenosuch")
	if _, err := p.EnsureLoadBalancer(t.Context(), absent); !errors.Is(err, provider.ErrNotFound) || !strings.Contains(err.Error(), annotation("vswitch-id")) {
		t.Errorf("a vSwitch that is not there: %v", err)
	}
	if made := c.Balancers(); len(made) > 0 {
		t.Errorf("made all the same: %+v", made)
	}
}

// managerPolicyFile is what a cloud controller manager may do.
const managerPolicyFile = overlay + "/ram-policy-cloud-controller-manager.json"

// TestManagerPolicy writes the policy of the cloud controller manager from the
// calls that it can make.
func TestManagerPolicy(t *testing.T) {
	c := newCloud(t, sim.Options{})
	p := newProvider(t, settings(c))
	id := node(c)
	_, getErr := p.GetInstance(t.Context(), id)
	_, listErr := p.ListInstances(t.Context(), map[string]string{provider.TagCluster: "c1"})
	if !errors.Is(getErr, provider.ErrNotFound) || listErr != nil { // the instance is somebody else's
		t.Fatal(getErr, listErr)
	}
	mustEnsure(t, p, annotated(balancerSpec("a1", id), "spec", "slb.s1.small"))
	changed := annotated(balancerSpec("a1"), "spec", "slb.s2.small", "charge-type", "paybybandwidth", "bandwidth", "10")
	changed.Ports = changed.Ports[:1]
	mustEnsure(t, p, changed)
	if _, err := p.GetLoadBalancer(t.Context(), "a1"); err != nil {
		t.Fatal(err)
	}
	if err := p.DeleteLoadBalancer(t.Context(), "a1"); err != nil {
		t.Fatal(err)
	}
	want := policyOf(t, slices.Sorted(maps.Keys(c.Calls())))
	got, err := os.ReadFile(managerPolicyFile)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if string(got) != want {
		if flag.Lookup("update").Value.String() != "true" {
			t.Errorf("%s is stale (go test with -update writes it); seen:\n%s", managerPolicyFile, want)
		} else if err := os.WriteFile(managerPolicyFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cloudsim.CheckDoc(t, page, "manager-policy", "```json\n"+want+"```\n")
}
