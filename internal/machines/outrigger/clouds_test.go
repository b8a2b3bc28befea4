// SPDX-License-Identifier: Apache-2.0

package outrigger_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/machines/outrigger"
	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/fake"
)

// catalogued has one type, of as many processors.
type catalogued struct {
	*fake.Cloud
	cpus int64
}

func (c catalogued) InstanceTypes(context.Context) ([]provider.InstanceType, error) {
	return []provider.InstanceType{{Name: "large", VCPUs: c.cpus}}, nil
}

// twoClouds are two providers of one manager, of which a is the default.
func twoClouds(t *testing.T) (clouds *outrigger.Clouds, a, b *fake.Cloud) {
	t.Helper()
	open := func(name string, cpus int64) (*fake.Cloud, *outrigger.Backend) {
		cloud, err := fake.New(fake.Options{})
		if err != nil {
			t.Fatal(err)
		}
		backend, err := outrigger.New(outrigger.Options{Name: name, Provider: catalogued{cloud, cpus}, Settle: time.Nanosecond})
		if err != nil {
			t.Fatal(err)
		}
		return cloud, backend
	}
	a, first := open("a", 8)
	b, second := open("b", 16)
	clouds = outrigger.NewClouds("a", first, second)
	t.Cleanup(clouds.Close)
	return clouds, a, b
}

func clusterAt(named, noted string, ready bool) *infrav1.OutriggerCluster {
	c := &infrav1.OutriggerCluster{}
	c.Spec.Provider, c.Status.Ready = named, ready
	if noted != "" {
		c.Annotations = map[string]string{infrav1.ProviderAnnotation: noted}
	}
	return c
}

// TestClusterIsAtItsProvider: at the one it names, or at what was the default when it was
// provisioned, or at the default; one that the manager does not have is an error that says
// what to do, and keeps nothing from being deleted that was never provisioned.
func TestClusterIsAtItsProvider(t *testing.T) {
	clouds, _, _ := twoClouds(t)
	none := outrigger.NewClouds("")
	for name, row := range map[string]struct {
		clouds  *outrigger.Clouds
		cluster *infrav1.OutriggerCluster
		place   string
		refused []string
		stays   bool
	}{
		"default":             {clouds, clusterAt("", "", false), "a", nil, false},
		"named":               {clouds, clusterAt("b", "", false), "b", nil, false},
		"noted":               {clouds, clusterAt("", "b", true), "b", nil, false},
		"named and noted":     {clouds, clusterAt("a", "b", false), "a", nil, false},
		"former name":         {clouds, clusterAt("ibmcloudpowervs", "", false), "ibmcloud-powervs", []string{"--more-providers=ibmcloud-powervs", "it has a, b"}, false},
		"not loaded":          {clouds, clusterAt("c", "", false), "c", []string{"provider c", "--more-providers=c", "it has a, b"}, false},
		"not loaded any more": {clouds, clusterAt("", "c", true), "c", []string{"provider c", "--more-providers=c"}, true},
		"none loaded":         {none, clusterAt("c", "", false), "c", []string{"provider c", "--provider"}, false},
		"none at all":         {none, clusterAt("", "", true), "", []string{"--provider (CLOUD_PROVIDER)"}, false},
		"no default":          {outrigger.NewClouds("", backend(t, "a")), clusterAt("", "", false), "", []string{"spec.provider", "name one of a"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := row.clouds.Place(row.cluster); got != row.place {
				t.Errorf("at %q, want %q", got, row.place)
			}
			scope := &reconciler.ClusterScope{Infra: row.cluster, Key: "key"}
			state, err := row.clouds.EnsureCluster(t.Context(), scope)
			if row.refused == nil && (err != nil || !state.Provisioned) {
				t.Errorf("%+v, %v", state, err)
			}
			for _, want := range row.refused {
				if !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not say %q", err, want)
				}
			}
			gone, err := row.clouds.DeleteCluster(t.Context(), scope)
			if gone == row.stays || row.stays == (err == nil) {
				t.Errorf("deleted: %t, %v", gone, err)
			}
		})
	}
}

func backend(t *testing.T, name string) *outrigger.Backend {
	t.Helper()
	cloud, err := fake.New(fake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := outrigger.New(outrigger.Options{Name: name, Provider: cloud})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func ledger(t *testing.T, cloud *fake.Cloud) int {
	t.Helper()
	left, err := cloud.Leaks()
	if err != nil {
		t.Fatal(err)
	}
	return len(left)
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in a minute: %s", what)
		}
	}
}

// TestMachineIsAtItsProvider: made, seen and removed at its cluster's provider, also when
// the cluster is not known any more; the other one has no part in that.
func TestMachineIsAtItsProvider(t *testing.T) {
	clouds, a, b := twoClouds(t)
	a.Inject(fake.Fault{Op: fake.OpList, Err: provider.ErrUnavailable}, fake.Fault{Op: fake.OpDelete, Err: provider.ErrUnavailable})
	machine := &infrav1.OutriggerMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m", Annotations: map[string]string{infrav1.ProviderAnnotation: "b"}}}
	scope := &reconciler.MachineScope{Infra: machine, InfraCluster: clusterAt("b", "", true), Key: "m-key", ClusterKey: "c-key", Began: time.Now(), Bootstrap: []byte("#cloud-config\n")}
	until(t, "it is made", func() bool {
		state, err := clouds.EnsureMachine(t.Context(), scope)
		if err != nil {
			t.Fatal(err)
		}
		machine.Spec.ProviderID = state.ProviderID
		return state.Provisioned
	})
	if !strings.HasPrefix(machine.Spec.ProviderID, "outrigger://b/") || ledger(t, a) != 0 || ledger(t, b) == 0 {
		t.Errorf("%s: %d at a, %d at b", machine.Spec.ProviderID, ledger(t, a), ledger(t, b))
	}
	of := &reconciler.ClusterScope{Infra: clusterAt("b", "", true), Key: "c-key"}
	if owned, err := clouds.Owned(t.Context(), of); err != nil || len(owned) != 1 {
		t.Errorf("%v, %v", owned, err)
	}
	clouds.Forget(types.NamespacedName{Namespace: "ns", Name: "m"})
	scope.InfraCluster = nil
	until(t, "it is gone", func() bool {
		gone, err := clouds.DeleteMachine(t.Context(), scope)
		if err != nil {
			t.Fatal(err)
		}
		return gone
	})
	if left := ledger(t, b); left != 0 {
		t.Errorf("%d are left", left)
	}

	machine.Annotations[infrav1.ProviderAnnotation] = "c"
	if gone, err := clouds.DeleteMachine(t.Context(), scope); gone || err == nil || !strings.Contains(err.Error(), "--more-providers=c") {
		t.Errorf("begun at a provider that is not loaded: %t, %v", gone, err)
	}
	machine.Spec.ProviderID, scope.Began = "", time.Time{}
	if gone, err := clouds.DeleteMachine(t.Context(), scope); !gone || err != nil {
		t.Errorf("never begun: %t, %v", gone, err)
	}
}

// TestStraysAreRemovedAtTheirProvider: with a cluster goes what lost its machine.
func TestStraysAreRemovedAtTheirProvider(t *testing.T) {
	clouds, a, b := twoClouds(t)
	for _, cloud := range []*fake.Cloud{a, b} {
		spec := provider.InstanceTypeSpec{Tags: map[string]string{provider.TagCluster: "c-key", provider.TagKey: "m-key"}}
		if _, err := cloud.CreateInstance(t.Context(), "m", "m-key", cloudinit.Raw("#cloud-config\n"), spec); err != nil {
			t.Fatal(err)
		}
	}
	scope := &reconciler.ClusterScope{Infra: clusterAt("b", "", true), Key: "c-key"}
	until(t, "the cluster is gone", func() bool {
		gone, err := clouds.DeleteCluster(t.Context(), scope)
		if err != nil {
			t.Fatal(err)
		}
		return gone
	})
	if ledger(t, a) == 0 || ledger(t, b) != 0 {
		t.Errorf("%d at a, %d at b", ledger(t, a), ledger(t, b))
	}
}

// TestTypeIsItsProviders: one name may be another size elsewhere.
func TestTypeIsItsProviders(t *testing.T) {
	clouds, _, _ := twoClouds(t)
	typed, sized := &infrav1.OutriggerMachineTemplate{}, &infrav1.OutriggerMachineTemplate{}
	typed.Spec.Template.Spec.InstanceType, sized.Spec.Template.Spec.VCPUs = "large", 3
	for name, row := range map[string]struct {
		template *infrav1.OutriggerMachineTemplate
		of       reconciler.InfraCluster
		want     int64
	}{
		"default":             {typed, clusterAt("", "", false), 8},
		"named":               {typed, clusterAt("b", "", false), 16},
		"of no cluster":       {typed, nil, 0},
		"a size":              {sized, nil, 3},
		"not loaded":          {typed, clusterAt("c", "", false), 0},
		"a size, not loaded":  {sized, clusterAt("c", "", false), 3},
		"a size, at its home": {sized, clusterAt("b", "", false), 3},
	} {
		size, err := clouds.MachineSize(t.Context(), row.template, row.of)
		if got := size.Capacity.Cpu().Value(); err != nil || got != row.want {
			t.Errorf("%s: %d processors, %v; want %d", name, got, err, row.want)
		}
	}
}
