// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/controllers"
	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
)

// catalogued is a cloud with two types.
type catalogued struct {
	*fake.Cloud
	asked *int
}

func (c catalogued) InstanceTypes(context.Context) ([]provider.InstanceType, error) {
	*c.asked++
	return []provider.InstanceType{{Name: "small", VCPUs: 2, Memory: 4096, Arch: "amd64"}, {Name: "odd", VCPUs: 3, Memory: 100, Arch: "sparc64"}}, nil
}

func sized(cpu, memory string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, text := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
		if text != "" {
			list[name] = resource.MustParse(text)
		}
	}
	return list
}

// TestTemplatesSayHowLargeMachinesAre, so that an autoscaler knows without one.
func TestTemplatesSayHowLargeMachinesAre(t *testing.T) {
	memory, asked := resource.MustParse("3Gi"), 0
	s := newStand(t, func(o *managerOptions) { o.provider = catalogued{o.provider.(*fake.Cloud), &asked} })
	recorder := events.NewFakeRecorder(10)
	r := &reconciler.TemplateReconciler{Base: s.machineR.Base, New: func() reconciler.InfraTemplate { return &infrav1.OutriggerMachineTemplate{} }, Sizer: s.backend}
	r.Events = controllers.NewRecorder(recorder, nil)
	r.Complete()
	for name, row := range map[string]struct {
		spec   infrav1.OutriggerMachineSpec
		paused bool
		want   infrav1.MachineTemplateStatus
		events int
	}{
		"of-a-type":  {spec: infrav1.OutriggerMachineSpec{InstanceType: "small"}, want: infrav1.MachineTemplateStatus{Capacity: sized("2", "4Gi"), NodeInfo: infrav1.NodeInfo{Architecture: "amd64", OperatingSystem: "linux"}}},
		"odd":        {spec: infrav1.OutriggerMachineSpec{InstanceType: "odd"}, want: infrav1.MachineTemplateStatus{Capacity: sized("3", "100Mi")}},
		"of-a-size":  {spec: infrav1.OutriggerMachineSpec{VCPUs: 4, Memory: &memory, Arch: "arm64"}, want: infrav1.MachineTemplateStatus{Capacity: sized("4", "3Gi"), NodeInfo: infrav1.NodeInfo{Architecture: "arm64", OperatingSystem: "linux"}}},
		"of-a-part":  {spec: infrav1.OutriggerMachineSpec{VCPUs: 4}, want: infrav1.MachineTemplateStatus{Capacity: sized("4", "")}},
		"of-nothing": {},
		"unknown":    {spec: infrav1.OutriggerMachineSpec{InstanceType: "giant"}, events: 1},
		"paused":     {spec: infrav1.OutriggerMachineSpec{VCPUs: 4}, paused: true},
	} {
		template := &infrav1.OutriggerMachineTemplate{ObjectMeta: meta(name)}
		template.Spec.Template.Spec = row.spec
		if row.paused {
			template.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		}
		s.create(template)
		version := ""
		for range 3 {
			if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key(name)}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			template, _ = get(s.world, &infrav1.OutriggerMachineTemplate{}, name)
			if version != "" && template.ResourceVersion != version {
				t.Errorf("%s was written twice", name)
			}
			version = template.ResourceVersion
		}
		if diff := cmp.Diff(row.want, template.Status); diff != "" {
			t.Errorf("%s: want (-) and is (+)\n%s", name, diff)
		}
		if len(recorder.Events) != row.events {
			t.Errorf("%s: %d events, want %d", name, len(recorder.Events), row.events)
		}
		for len(recorder.Events) > 0 {
			<-recorder.Events
		}
	}
	if asked != 1 {
		t.Errorf("the catalogue was asked for %d times", asked)
	}
}

// TestTemplatesOfACloudWithoutACatalogue keep what somebody has written.
func TestTemplatesOfACloudWithoutACatalogue(t *testing.T) {
	type plain interface {
		provider.Provider
		provider.Lister
		provider.Getter
	}
	s := newStand(t, func(o *managerOptions) { o.provider = struct{ plain }{o.provider.(plain)} })
	template := &infrav1.OutriggerMachineTemplate{ObjectMeta: meta("t")}
	template.Spec.Template.Spec.InstanceType = "small"
	s.create(template)
	template.Status.Capacity = sized("7", "")
	s.must(s.api.Status().Update(t.Context(), template))
	r := &reconciler.TemplateReconciler{Base: s.machineR.Base, New: func() reconciler.InfraTemplate { return &infrav1.OutriggerMachineTemplate{} }, Sizer: s.backend}
	r.Complete()
	_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key("t")})
	s.must(err)
	if template, _ = get(s.world, template, "t"); template.Status.Capacity.Cpu().Value() != 7 {
		t.Errorf("%+v", template.Status)
	}
}
