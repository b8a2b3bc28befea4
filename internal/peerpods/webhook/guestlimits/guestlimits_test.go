// SPDX-License-Identifier: Apache-2.0

package guestlimits_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/outrigger/outrigger/internal/peerpods/webhook/guestlimits"
	"github.com/outrigger/outrigger/internal/peerpods/webhook/podsize"
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
		t.Error("want an error for what is not a record")
	}
}

// TestCostOfAUsersRecord guards the relay, which reads records of all pods of its
// node and whose memory they share.
func TestCostOfAUsersRecord(t *testing.T) {
	entry := func(q string) string {
		return `"c":{"requests":{"cpu":"` + q + `"},"limits":{"cpu":"` + q + `","memory":"` + q + `"}}`
	}
	many := `{"containers":{"c":{"limits":{` + strings.Repeat(`"x":"1e999999",`, 500) + `"cpu":"1"}}}}`
	for name, record := range map[string]string{
		"exponent":           `{"containers":{` + entry("1e999999") + `}}`,
		"binary exponent":    `{"containers":{` + entry("1p9999999") + `}}`,
		"digits":             `{"containers":{` + entry(strings.Repeat("9", 4000)) + `}}`,
		"another container":  `{"containers":{"d":{"limits":{"cpu":"1e999999"}},` + entry("1") + `}}`,
		"other resources":    many,
		"16 KiB of nothing":  `{"containers":{` + strings.Repeat(" ", guestlimits.MaxRecord) + `}}`,
		"depth":              strings.Repeat(`[`, guestlimits.MaxRecord),
		"depth of objects":   strings.Repeat(`{"a":`, guestlimits.MaxRecord/5),
		"the largest number": `{"containers":{` + entry("9999999999999999999e99") + `}}`,
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			guestlimits.Of(map[string]string{guestlimits.Annotation: record}, "c")
			runtime.ReadMemStats(&after)
			if got := after.TotalAlloc - before.TotalAlloc; got > 256<<10 {
				t.Errorf("%d bytes of memory for %d of annotation, want at most 256 KiB", got, len(record))
			}
		})
	}
}

func TestWhatIsTooLongIsSaid(t *testing.T) {
	long := strings.Repeat("x", guestlimits.MaxRecord+1)
	if _, err := guestlimits.Of(map[string]string{guestlimits.Annotation: long}, "a"); err == nil || !strings.Contains(err.Error(), "at most 16384") {
		t.Errorf("error %v", err)
	}
}
