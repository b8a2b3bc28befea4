// SPDX-License-Identifier: Apache-2.0

package guestlimits_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/outrigger/outrigger/internal/webhook/guestlimits"
	"github.com/outrigger/outrigger/internal/webhook/podsize"
)

// TestRecordOfTheWebhook reads what package podsize wrote.
func TestRecordOfTheWebhook(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Name: "both", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("500m"), "memory": resource.MustParse("64Mi")},
			Limits:   corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi")},
		}},
		{Name: "little", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("1m")},
			Limits:   corev1.ResourceList{"cpu": resource.MustParse("1m")},
		}},
		{Name: "none"},
	}}}
	if _, err := podsize.Mutate(pod, "example.com/vm"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]guestlimits.Limits{
		"both":    {MemoryBytes: 1 << 30, CPUShares: 512, CPUQuota: 200_000, CPUPeriod: 100_000},
		"little":  {CPUShares: 2, CPUQuota: 1000, CPUPeriod: 100_000},
		"none":    {},
		"unknown": {},
	} {
		got, err := guestlimits.Of(pod.Annotations, name)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestNoRecord(t *testing.T) {
	if got, err := guestlimits.Of(nil, "a"); err != nil || got != (guestlimits.Limits{}) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := guestlimits.Of(map[string]string{guestlimits.Annotation: "x"}, "a"); err == nil {
		t.Error("want an error for what is no record")
	}
}
