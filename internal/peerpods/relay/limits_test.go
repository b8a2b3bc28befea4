// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/outrigger/outrigger/internal/peerpods/webhook/guestlimits"
	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// recorded is what the Kata shim (3.21) sends for a container of a pod.
func recorded(t *testing.T) *agent.Spec {
	t.Helper()
	text, err := os.ReadFile("../../../test/contract/testdata/createcontainer-example.json")
	if err != nil {
		t.Fatal(err)
	}
	request := &agent.CreateContainerRequest{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, request); err != nil {
		t.Fatal(err)
	}
	return request.OCI
}

const record = `{"containers":{"app":{"requests":{"cpu":"500m"},"limits":{"cpu":"1500m","memory":"1Gi"}},"other":{"limits":{"memory":"1Mi"}}}}`

func TestLimitsOfTheRecord(t *testing.T) {
	want := &agent.LinuxResources{
		Memory: &agent.LinuxMemory{Limit: 1 << 30, Swap: 1 << 30},
		CPU:    &agent.LinuxCPU{Shares: 512, Quota: 150_000, Period: 100_000},
	}
	for name, resources := range map[string]*agent.LinuxResources{
		"nothing":          nil,
		"what kubelet has": {CPU: &agent.LinuxCPU{Shares: 2, Period: 100_000}, Memory: &agent.LinuxMemory{}},
	} {
		spec := recorded(t)
		spec.Linux.Resources = resources
		spec.Annotations[guestlimits.Annotation] = record
		changed, err := limit(spec)
		if err != nil || !changed {
			t.Fatalf("%s: %v, %v", name, changed, err)
		}
		if diff := cmp.Diff(want, spec.Linux.Resources, protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestOwnLimitsStay(t *testing.T) {
	spec := recorded(t)
	before := recorded(t).Linux.Resources
	if changed, err := limit(spec); changed || err != nil {
		t.Errorf("without a record: %v, %v", changed, err)
	}
	spec.Annotations[guestlimits.Annotation] = record
	if _, err := limit(spec); err != nil {
		t.Fatal(err)
	}
	before.CPU.Shares = 512 // which it had not
	if diff := cmp.Diff(before, spec.Linux.Resources, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNoLimitsForOthers(t *testing.T) {
	for name, change := range map[string]func(*agent.Spec){
		"the pause container":   func(s *agent.Spec) { delete(s.Annotations, "io.kubernetes.cri.container-name") },
		"not in the record":     func(s *agent.Spec) { s.Annotations["io.kubernetes.cri.container-name"] = "new" },
		"no annotations at all": func(s *agent.Spec) { s.Annotations = nil },
	} {
		spec := recorded(t)
		spec.Annotations[guestlimits.Annotation] = record
		change(spec)
		if changed, err := limit(spec); changed || err != nil {
			t.Errorf("%s: %v, %v", name, changed, err)
		}
	}
	if _, err := limit(&agent.Spec{Annotations: map[string]string{guestlimits.Annotation: "x"}}); err == nil {
		t.Error("a broken record is not an error")
	}
}
