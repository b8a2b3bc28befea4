// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	utilconversion "sigs.k8s.io/cluster-api/util/conversion"

	infrav1beta1 "github.com/outrigger/outrigger/api/infrastructure/v1beta1"
	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

// objects to try for each kind and direction; each has all its fields filled
// in at random.
const objects = 200

func TestRoundTrips(t *testing.T) {
	t.Run("DockerCluster", roundTrips[infrav1.DockerCluster, infrav1beta1.DockerCluster])
	t.Run("DockerClusterTemplate", roundTrips[infrav1.DockerClusterTemplate, infrav1beta1.DockerClusterTemplate])
	t.Run("DockerMachine", roundTrips[infrav1.DockerMachine, infrav1beta1.DockerMachine])
	t.Run("DockerMachineTemplate", roundTrips[infrav1.DockerMachineTemplate, infrav1beta1.DockerMachineTemplate])
	t.Run("DockerMachinePool", roundTrips[infrav1.DockerMachinePool, infrav1beta1.DockerMachinePool])
	t.Run("DockerMachinePoolTemplate", roundTrips[infrav1.DockerMachinePoolTemplate, infrav1beta1.DockerMachinePoolTemplate])
	t.Run("OutriggerCluster", roundTrips[infrav1.OutriggerCluster, infrav1beta1.OutriggerCluster])
	t.Run("OutriggerClusterTemplate", roundTrips[infrav1.OutriggerClusterTemplate, infrav1beta1.OutriggerClusterTemplate])
	t.Run("OutriggerMachine", roundTrips[infrav1.OutriggerMachine, infrav1beta1.OutriggerMachine])
	t.Run("OutriggerMachineTemplate", roundTrips[infrav1.OutriggerMachineTemplate, infrav1beta1.OutriggerMachineTemplate])
}

func roundTrips[H, S any, PH Object[H], PS Object[S]](t *testing.T) {
	t.Parallel()
	t.Run("hub-spoke-hub", func(t *testing.T) {
		fuzz := utilconversion.GetFuzzer(newScheme(t))
		for range objects {
			before, after, spoke := PH(new(H)), PH(new(H)), PS(new(S))
			fuzz.Fill(before)
			before.SetManagedFields(nil) // has times that JSON does not keep
			through(t, FromHub[H, S], before.DeepCopyObject().(PH), spoke)
			through(t, ToHub[H, S], overTheWire[S, PS](t, spoke), after)
			requireEqual(t, before, after)
			// Status updates and managed fields are converted without spec.
			empty := PS(new(S))
			empty.SetAnnotations(spoke.GetAnnotations())
			through(t, ToHub[H, S], empty, PH(new(H)))
		}
	})
	t.Run("spoke-hub-spoke", func(t *testing.T) {
		fuzz := utilconversion.GetFuzzer(newScheme(t))
		for range objects {
			before, after, hub := PS(new(S)), PS(new(S)), PH(new(H))
			fuzz.Fill(before)
			before.SetManagedFields(nil) // has times that JSON does not keep
			through(t, ToHub[H, S], before.DeepCopyObject().(PS), hub)
			through(t, FromHub[H, S], overTheWire[H, PH](t, hub), after)
			annotations := after.GetAnnotations()
			delete(annotations, HubAnnotation)
			after.SetAnnotations(annotations)
			requireEqual(t, before, after)
		}
	})
}

// TestEmptyTemplatesStay: a patch of a ClusterClass adds to the spec of a template also when
// that is empty, whichever version somebody wrote and core reads.
func TestEmptyTemplatesStay(t *testing.T) {
	t.Run("DockerClusterTemplate", emptyStays[infrav1.DockerClusterTemplate, infrav1beta1.DockerClusterTemplate]())
	t.Run("DockerMachineTemplate", emptyStays[infrav1.DockerMachineTemplate, infrav1beta1.DockerMachineTemplate]())
	t.Run("DockerMachinePoolTemplate", emptyStays[infrav1.DockerMachinePoolTemplate, infrav1beta1.DockerMachinePoolTemplate]("template"))
	t.Run("OutriggerClusterTemplate", emptyStays[infrav1.OutriggerClusterTemplate, infrav1beta1.OutriggerClusterTemplate]())
	t.Run("OutriggerMachineTemplate", emptyStays[infrav1.OutriggerMachineTemplate, infrav1beta1.OutriggerMachineTemplate]())
}

func emptyStays[H, S any, PH Object[H], PS Object[S]](within ...string) func(*testing.T) {
	return func(t *testing.T) {
		path := append([]string{"spec", "template", "spec"}, within...)
		hub, spoke := PH(new(H)), PS(new(S))
		through(t, ToHub[H, S], PS(new(S)), hub)
		through(t, FromHub[H, S], PH(new(H)), spoke)
		for _, o := range []any{hub, spoke} {
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
			if err != nil {
				t.Fatal(err)
			}
			if _, found, err := unstructured.NestedMap(content, path...); !found || err != nil {
				t.Errorf("%T has no %v: %v, %v", o, path, content, err)
			}
		}
	}
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{infrav1.AddToScheme, infrav1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

func through[A, B any](t *testing.T, f func(ctx context.Context, src A, dst B) error, src A, dst B) {
	t.Helper()
	if err := f(t.Context(), src, dst); err != nil {
		t.Fatal(err)
	}
}

// overTheWire is what is left of an object once it was JSON.
func overTheWire[T any, P Object[T]](t *testing.T, o P) P {
	t.Helper()
	data, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	read := P(new(T))
	if err := json.Unmarshal(data, read); err != nil {
		t.Fatal(err)
	}
	return read
}

func requireEqual(t *testing.T, want, got any) {
	t.Helper()
	if !apiequality.Semantic.DeepEqual(want, got) {
		t.Fatalf("the round trip changes the object (-before +after):\n%s", cmp.Diff(want, got))
	}
}

func dockerMachine() *infrav1.DockerMachine {
	return &infrav1.DockerMachine{
		ObjectMeta: metav1.ObjectMeta{Name: "m"},
		Spec: infrav1.DockerMachineSpec{
			MachineSpec:    infrav1.MachineSpec{ProviderID: "docker:////m"},
			DockerNodeSpec: infrav1.DockerNodeSpec{Resources: infrav1.DockerResources{CPU: ptr.To(resource.MustParse("2"))}},
		},
		Status: infrav1.MachineStatus{
			Status: infrav1.Status{
				Ready: true, Initialization: infrav1.Initialization{Provisioned: ptr.To(true)},
				Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Stopped", Message: "it stopped"}},
			},
			FailureDomain: "a", Step: "Started",
		},
	}
}

func TestContractV1Beta1IsServed(t *testing.T) {
	var spoke infrav1beta1.DockerMachine
	through(t, FromHub, dockerMachine(), &spoke)
	want := infrav1beta1.DockerMachine{
		Spec: infrav1beta1.DockerMachineSpec{MachineSpec: infrav1beta1.MachineSpec{
			ProviderID: ptr.To("docker:////m"), FailureDomain: ptr.To("a"),
		}},
		Status: infrav1beta1.MachineStatus{Status: infrav1beta1.Status{
			Ready:      true,
			Conditions: []infrav1beta1.Condition{{Type: "Ready", Status: "False", Severity: "Info", Reason: "Stopped", Message: "it stopped"}},
			V1Beta2:    &infrav1beta1.V1Beta2Status{Conditions: dockerMachine().Status.Conditions},
		}},
	}
	if d := cmp.Diff(&want, bare[infrav1beta1.DockerMachine](&spoke)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A client of v1beta1 changes what it knows of, and what it does not know of stays.
func TestEditedAsV1Beta1(t *testing.T) {
	var spoke infrav1beta1.DockerMachine
	through(t, FromHub, dockerMachine(), &spoke)
	spoke.Spec.CustomImage = "other"
	want := dockerMachine()
	want.Spec.CustomImage = "other"
	var got infrav1.DockerMachine
	through(t, ToHub, &spoke, &got)
	if got.Annotations[SpokeAnnotation] != "" {
		t.Errorf("annotation %s=%s on an object that loses nothing", SpokeAnnotation, got.Annotations[SpokeAnnotation])
	}
	got.Annotations = nil
	requireEqual(t, want, &got)
}

// What only v1beta2 has stays beside what was changed, also where v1beta1 has nothing left around it.
func TestEditedKeepsWhatV1Beta2AloneHas(t *testing.T) {
	cluster := &infrav1.DockerCluster{Spec: infrav1.DockerClusterSpec{
		Subnet: "172.30.0.0/24", LoadBalancer: infrav1.DockerLoadBalancer{ImageTag: "v1"},
	}}
	var old infrav1beta1.DockerCluster
	through(t, FromHub, cluster, &old)
	old.Spec.LoadBalancer, old.Status.Ready = infrav1beta1.DockerLoadBalancer{}, true
	want := &infrav1.DockerCluster{Spec: infrav1.DockerClusterSpec{Subnet: "172.30.0.0/24"}}
	want.Status.Ready, want.Status.Initialization.Provisioned = true, ptr.To(true)
	var got infrav1.DockerCluster
	through(t, ToHub, &old, &got)
	requireEqual(t, want, &got)

	pool := &infrav1.DockerMachinePool{Spec: infrav1.DockerMachinePoolSpec{Template: infrav1.DockerNodeSpec{
		CustomImage: "a", Resources: infrav1.DockerResources{CPU: ptr.To(resource.MustParse("2"))},
	}}}
	var oldPool infrav1beta1.DockerMachinePool
	through(t, FromHub, pool, &oldPool)
	oldPool.Spec.Template.CustomImage = ""
	pool.Spec.Template.CustomImage = ""
	var gotPool infrav1.DockerMachinePool
	through(t, ToHub, &oldPool, &gotPool)
	requireEqual(t, pool, &gotPool)
}

// What v1beta1 alone has is not shown once the object has changed since.
func TestStaleV1Beta1IsDropped(t *testing.T) {
	written := &infrav1beta1.DockerMachine{}
	written.Status.Conditions = []infrav1beta1.Condition{{Type: "Ready", Status: "False", Severity: "Error", Reason: "Broken"}}
	var hub infrav1.DockerMachine
	through(t, ToHub, written, &hub)
	var back infrav1beta1.DockerMachine
	through(t, FromHub, &hub, &back)
	if got := back.Status.Conditions[0].Severity; got != "Error" {
		t.Errorf("severity of an unchanged condition: %q", got)
	}

	hub.Status.Conditions[0].Reason = "Starting"
	through(t, FromHub, &hub, &back)
	if got := back.Status.Conditions[0]; got.Severity != "Info" || got.Reason != "Starting" {
		t.Errorf("changed condition is shown as %+v", got)
	}
}

func TestFailureDomains(t *testing.T) {
	spoke := &infrav1beta1.OutriggerCluster{}
	spoke.Spec.FailureDomains = map[string]infrav1beta1.FailureDomain{"b": {}, "a": {ControlPlane: true}}
	var hub infrav1.OutriggerCluster
	through(t, ToHub, spoke, &hub)
	want := []clusterv1.FailureDomain{{Name: "a", ControlPlane: ptr.To(true)}, {Name: "b", ControlPlane: ptr.To(false)}}
	if d := cmp.Diff(want, hub.Spec.FailureDomains); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestDamagedAnnotations(t *testing.T) {
	spoke := &infrav1beta1.DockerMachine{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{HubAnnotation: "{"}}}
	if err := ToHub(t.Context(), spoke, &infrav1.DockerMachine{}); err == nil {
		t.Error("an object whose other half cannot be read was written")
	}
	hub := dockerMachine()
	hub.Annotations = map[string]string{SpokeAnnotation: "{"}
	through(t, FromHub, hub, &infrav1beta1.DockerMachine{})
}

func TestConverter(t *testing.T) {
	converter, err := Converter[infrav1.DockerCluster, infrav1beta1.DockerCluster](newScheme(t))
	if err != nil {
		t.Fatal(err)
	}
	src := &infrav1beta1.DockerCluster{
		TypeMeta: metav1.TypeMeta{APIVersion: infrav1beta1.GroupVersion.String(), Kind: "DockerCluster"},
		Spec:     infrav1beta1.DockerClusterSpec{LoadbalancerImage: "haproxy", LoadBalancer: infrav1beta1.DockerLoadBalancer{ImageTag: "v1"}},
	}
	dst := &infrav1.DockerCluster{TypeMeta: metav1.TypeMeta{APIVersion: infrav1.GroupVersion.String(), Kind: "DockerCluster"}}
	if err := converter.ConvertObject(t.Context(), src, dst); err != nil {
		t.Fatal(err)
	}
	if dst.APIVersion != infrav1.GroupVersion.String() || dst.Spec.LoadbalancerImage != "haproxy" || dst.Spec.LoadBalancer.ImageTag != "v1" {
		t.Errorf("converted to %+v", dst)
	}
}
