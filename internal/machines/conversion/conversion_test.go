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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	utilconversion "sigs.k8s.io/cluster-api/util/conversion"

	infrav1alpha1 "github.com/outrigger/outrigger/api/infrastructure/v1alpha1"
	infrav1beta1 "github.com/outrigger/outrigger/api/infrastructure/v1beta1"
	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

// objects to try for each kind and direction; each has all its fields filled
// in at random.
const objects = 200

func TestRoundTrips(t *testing.T) {
	t.Run("DockerCluster", roundTrips(DockerCluster))
	t.Run("DockerClusterV1Beta1", roundTrips(DockerClusterV1Beta1))
	t.Run("DockerClusterTemplate", roundTrips(DockerClusterTemplate))
	t.Run("DockerClusterTemplateV1Beta1", roundTrips(DockerClusterTemplateV1Beta1))
	t.Run("DockerMachine", roundTrips(DockerMachine))
	t.Run("DockerMachineV1Beta1", roundTrips(DockerMachineV1Beta1))
	t.Run("DockerMachineTemplate", roundTrips(DockerMachineTemplate))
	t.Run("DockerMachineTemplateV1Beta1", roundTrips(DockerMachineTemplateV1Beta1))
	t.Run("DockerMachinePool", roundTrips(DockerMachinePool))
	t.Run("DockerMachinePoolV1Beta1", roundTrips(DockerMachinePoolV1Beta1))
	t.Run("DockerMachinePoolTemplate", roundTrips(DockerMachinePoolTemplate))
	t.Run("DockerMachinePoolTemplateV1Beta1", roundTrips(DockerMachinePoolTemplateV1Beta1))
	t.Run("OutriggerCluster", roundTrips(OutriggerCluster))
	t.Run("OutriggerClusterTemplate", roundTrips(OutriggerClusterTemplate))
	t.Run("OutriggerMachine", roundTrips(OutriggerMachine))
	t.Run("OutriggerMachineTemplate", roundTrips(OutriggerMachineTemplate))
}

func roundTrips[H, S any, PH object[H], PS object[S]](k Kind[H, S, PH, PS]) func(*testing.T) {
	return func(t *testing.T) {
		t.Parallel()
		t.Run("hub-spoke-hub", func(t *testing.T) {
			fuzz := utilconversion.GetFuzzer(newScheme(t))
			for range objects {
				before, after, spoke := PH(new(H)), PH(new(H)), PS(new(S))
				fuzz.Fill(before)
				before.SetManagedFields(nil) // has times that JSON does not keep
				convert(t, k.FromHub, before.DeepCopyObject().(PH), spoke)
				convert(t, k.ToHub, overTheWire[S, PS](t, spoke), after)
				requireEqual(t, before, after)
				// Status updates and managed fields are converted without spec.
				empty := PS(new(S))
				empty.SetAnnotations(spoke.GetAnnotations())
				convert(t, k.ToHub, empty, PH(new(H)))
			}
		})
		t.Run("spoke-hub-spoke", func(t *testing.T) {
			fuzz := utilconversion.GetFuzzer(newScheme(t))
			for range objects {
				before, after, hub := PS(new(S)), PS(new(S)), PH(new(H))
				fuzz.Fill(before)
				before.SetManagedFields(nil) // has times that JSON does not keep
				convert(t, k.ToHub, before.DeepCopyObject().(PS), hub)
				convert(t, k.FromHub, overTheWire[H, PH](t, hub), after)
				annotations := after.GetAnnotations()
				delete(annotations, HubAnnotation)
				after.SetAnnotations(annotations)
				requireEqual(t, before, after)
			}
		})
	}
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{infrav1.AddToScheme, infrav1alpha1.AddToScheme, infrav1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

func convert[A, B any](t *testing.T, f func(ctx context.Context, src A, dst B) error, src A, dst B) {
	t.Helper()
	if err := f(t.Context(), src, dst); err != nil {
		t.Fatal(err)
	}
}

// overTheWire is what is left of an object once it was JSON.
func overTheWire[T any, P object[T]](t *testing.T, o P) P {
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
		Status: infrav1.DockerMachineStatus{MachineStatus: infrav1.MachineStatus{
			Ready: true, Initialization: infrav1.Initialization{Provisioned: ptr.To(true)}, FailureDomain: "a", Step: "Started",
			Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Stopped", Message: "it stopped"}},
		}},
	}
}

func TestContractV1Beta1IsServed(t *testing.T) {
	var spoke infrav1alpha1.DockerMachine
	convert(t, DockerMachine.FromHub, dockerMachine(), &spoke)
	want := infrav1alpha1.DockerMachine{
		Spec: infrav1alpha1.DockerMachineSpec{MachineSpec: infrav1alpha1.MachineSpec{
			ProviderID: ptr.To("docker:////m"), FailureDomain: ptr.To("a"),
		}},
		Status: infrav1alpha1.DockerMachineStatus{MachineStatus: infrav1alpha1.MachineStatus{Status: infrav1alpha1.Status{
			Ready:      true,
			Conditions: []infrav1alpha1.Condition{{Type: "Ready", Status: "False", Severity: "Info", Reason: "Stopped", Message: "it stopped"}},
			V1Beta2:    &infrav1alpha1.V1Beta2Status{Conditions: dockerMachine().Status.Conditions},
		}}},
	}
	if d := cmp.Diff(&want, bare[infrav1alpha1.DockerMachine](&spoke)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A client of v1alpha1 changes what it knows of, and what it does not know of stays.
func TestEditedAsV1Alpha1(t *testing.T) {
	var spoke infrav1alpha1.DockerMachine
	convert(t, DockerMachine.FromHub, dockerMachine(), &spoke)
	spoke.Spec.CustomImage = "other"
	want := dockerMachine()
	want.Spec.CustomImage = "other"
	var got infrav1.DockerMachine
	convert(t, DockerMachine.ToHub, &spoke, &got)
	if got.Annotations[SpokeAnnotation] != "" {
		t.Errorf("annotation %s=%s on an object that loses nothing", SpokeAnnotation, got.Annotations[SpokeAnnotation])
	}
	got.Annotations = nil
	requireEqual(t, want, &got)
}

// What v1alpha1 alone has is not shown once the object has changed since.
func TestStaleV1Alpha1IsDropped(t *testing.T) {
	written := &infrav1alpha1.DockerMachine{}
	written.Status.Conditions = []infrav1alpha1.Condition{{Type: "Ready", Status: "False", Severity: "Error", Reason: "Broken"}}
	var hub infrav1.DockerMachine
	convert(t, DockerMachine.ToHub, written, &hub)
	var back infrav1alpha1.DockerMachine
	convert(t, DockerMachine.FromHub, &hub, &back)
	if got := back.Status.Conditions[0].Severity; got != "Error" {
		t.Errorf("severity of an unchanged condition: %q", got)
	}

	hub.Status.Conditions[0].Reason = "Starting"
	convert(t, DockerMachine.FromHub, &hub, &back)
	if got := back.Status.Conditions[0]; got.Severity != "Info" || got.Reason != "Starting" {
		t.Errorf("changed condition is shown as %+v", got)
	}
}

func TestFailureDomains(t *testing.T) {
	spoke := &infrav1alpha1.OutriggerCluster{}
	spoke.Spec.FailureDomains = map[string]infrav1alpha1.FailureDomain{"b": {}, "a": {ControlPlane: true}}
	var hub infrav1.OutriggerCluster
	convert(t, OutriggerCluster.ToHub, spoke, &hub)
	want := []clusterv1.FailureDomain{{Name: "a", ControlPlane: ptr.To(true)}, {Name: "b", ControlPlane: ptr.To(false)}}
	if d := cmp.Diff(want, hub.Spec.FailureDomains); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestDamagedAnnotations(t *testing.T) {
	spoke := &infrav1alpha1.DockerMachine{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{HubAnnotation: "{"}}}
	if err := DockerMachine.ToHub(t.Context(), spoke, &infrav1.DockerMachine{}); err == nil {
		t.Error("an object whose other half cannot be read was written")
	}
	hub := dockerMachine()
	hub.Annotations = map[string]string{SpokeAnnotation: "{"}
	convert(t, DockerMachine.FromHub, hub, &infrav1alpha1.DockerMachine{})
}

func TestConverters(t *testing.T) {
	scheme := newScheme(t)
	converter, err := With(DockerCluster, DockerClusterV1Beta1)(scheme)
	if err != nil {
		t.Fatal(err)
	}
	src := &infrav1alpha1.DockerCluster{
		TypeMeta: metav1.TypeMeta{APIVersion: infrav1alpha1.GroupVersion.String(), Kind: "DockerCluster"},
		Spec:     infrav1alpha1.DockerClusterSpec{LoadbalancerImage: "haproxy"},
	}
	older := &infrav1beta1.DockerCluster{
		TypeMeta: metav1.TypeMeta{APIVersion: infrav1beta1.GroupVersion.String(), Kind: "DockerCluster"},
		Spec:     infrav1alpha1.DockerClusterSpec{LoadBalancer: infrav1alpha1.DockerLoadBalancer{ImageTag: "v1"}},
	}
	dst := &infrav1.DockerCluster{TypeMeta: metav1.TypeMeta{APIVersion: infrav1.GroupVersion.String(), Kind: "DockerCluster"}}
	if err := converter.ConvertObject(t.Context(), older, dst); err != nil || dst.Spec.LoadBalancer.ImageTag != "v1" {
		t.Fatalf("%+v, %v", dst.Spec, err)
	}
	dst = &infrav1.DockerCluster{TypeMeta: metav1.TypeMeta{APIVersion: infrav1.GroupVersion.String(), Kind: "DockerCluster"}}
	if err := converter.ConvertObject(t.Context(), src, dst); err != nil {
		t.Fatal(err)
	}
	if dst.APIVersion != infrav1.GroupVersion.String() || dst.Spec.LoadbalancerImage != "haproxy" {
		t.Errorf("converted to %+v", dst)
	}
}
