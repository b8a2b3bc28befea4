// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	oci "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/outrigger/outrigger/internal/protocol/agent"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// recorded is a request that a Kata shim sent.
func recorded(t *testing.T) *agent.CreateContainerRequest {
	t.Helper()
	data, err := os.ReadFile("testdata/createcontainer.json")
	if err != nil {
		t.Fatal(err)
	}
	req := &agent.CreateContainerRequest{}
	if err := protojson.Unmarshal(data, req); err != nil {
		t.Fatal(err)
	}
	return req
}

func TestConvertRecordedSpec(t *testing.T) {
	spec, err := toSpec(recorded(t).OCI)
	if err != nil {
		t.Fatal(err)
	}
	if got := *spec.Process.OOMScoreAdj; got != 985 {
		t.Errorf("oom score %d", got)
	}
	if diff := cmp.Diff([]string{"PATH=/bin", "HOSTNAME=p1host", "FOO=bar"}, spec.Process.Env); diff != "" {
		t.Error(diff)
	}
	limit, quota, period := int64(256<<20), int64(50000), uint64(100000)
	want := &oci.LinuxResources{
		Memory: &oci.LinuxMemory{Limit: &limit, Swap: &limit},
		CPU:    &oci.LinuxCPU{Quota: &quota, Period: &period},
	}
	if diff := cmp.Diff(want, spec.Linux.Resources); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	if len(spec.Mounts) != 12 || spec.Mounts[7].Type != "local" || spec.Mounts[7].Destination != "/ed" {
		t.Errorf("mounts %v", spec.Mounts)
	}
	if spec.Hooks != nil || spec.Linux.Seccomp != nil {
		t.Error("something came from nothing")
	}
}

// fill sets every field of a message, so that a field that the conversion
// forgets is found.
func fill(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		switch {
		case field.IsMap():
			m.Mutable(field).Map().Set(protoreflect.ValueOfString("k").MapKey(), protoreflect.ValueOfString("v"))
		case field.IsList() && field.Kind() == protoreflect.MessageKind:
			list := m.Mutable(field).List()
			item := list.NewElement()
			fill(item.Message())
			list.Append(item)
		case field.IsList():
			m.Mutable(field).List().Append(scalar(field.Kind()))
		case field.Kind() == protoreflect.MessageKind:
			fill(m.Mutable(field).Message())
		default:
			m.Set(field, scalar(field.Kind()))
		}
	}
}

func scalar(kind protoreflect.Kind) protoreflect.Value {
	switch kind {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("text")
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(7)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(7)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(7)
	}
	panic(kind.String())
}

func TestConvertForgetsNothing(t *testing.T) {
	full := &agent.Spec{}
	fill(full.ProtoReflect())
	spec, err := toSpec(full)
	if err != nil {
		t.Fatal(err)
	}
	// What the protocol does not have, by its path in the result.
	absent := map[string]bool{
		"Process.CommandLine": true, "Process.Scheduler": true, "Process.IOPriority": true, "Process.ExecCPUAffinity": true,
		"Process.User.Umask": true, "Domainname": true, "Solaris": true, "Windows": true, "VM": true, "ZOS": true, "FreeBSD": true,
		"Mounts.UIDMappings": true, "Mounts.GIDMappings": true,
		"Linux.NetDevices": true, "Linux.MemoryPolicy": true, "Linux.Personality": true, "Linux.TimeOffsets": true,
		"Linux.Resources.Rdma": true, "Linux.Resources.Unified": true,
		"Linux.Resources.Memory.UseHierarchy": true, "Linux.Resources.Memory.CheckBeforeUpdate": true,
		"Linux.Resources.CPU.Burst": true, "Linux.Resources.CPU.Idle": true,
		"Linux.Seccomp.DefaultErrnoRet": true, "Linux.Seccomp.ListenerPath": true, "Linux.Seccomp.ListenerMetadata": true,
		"Linux.IntelRdt.ClosID": true, "Linux.IntelRdt.MemBwSchema": true, "Linux.IntelRdt.Schemata": true,
		"Linux.IntelRdt.EnableCMT": true, "Linux.IntelRdt.EnableMBM": true, "Linux.IntelRdt.EnableMonitoring": true,
	}
	checkSet(t, reflect.ValueOf(spec).Elem(), "", absent)
}

func checkSet(t *testing.T, v reflect.Value, path string, absent map[string]bool) {
	for i := range v.NumField() {
		field, name := v.Field(i), path+v.Type().Field(i).Name
		if v.Type().Field(i).Anonymous {
			checkSet(t, field, path, absent)
			continue
		}
		if absent[name] {
			continue
		}
		if field.IsZero() {
			t.Errorf("%s is not set", name)
			continue
		}
		for field.Kind() == reflect.Pointer || field.Kind() == reflect.Slice && field.Len() > 0 {
			if field.Kind() == reflect.Slice {
				field = field.Index(0)
			} else {
				field = field.Elem()
			}
		}
		if field.Kind() == reflect.Struct {
			checkSet(t, field, name+".", absent)
		}
	}
}

func TestDeviceRules(t *testing.T) {
	for _, c := range []struct {
		in   *agent.LinuxDeviceCgroup
		want string
	}{
		{&agent.LinuxDeviceCgroup{Access: "rwm"}, `{"allow":false,"access":"rwm"}`},
		{&agent.LinuxDeviceCgroup{Allow: true, Type: "c", Major: 1, Minor: 3, Access: "rw"}, `{"allow":true,"type":"c","major":1,"minor":3,"access":"rw"}`},
		{&agent.LinuxDeviceCgroup{Allow: true, Type: "c", Major: 136, Minor: -1, Access: "rw"}, `{"allow":true,"type":"c","major":136,"access":"rw"}`},
		{&agent.LinuxDeviceCgroup{Type: "b", Major: -1, Minor: -1}, `{"allow":false,"type":"b"}`},
	} {
		got, err := json.Marshal(toDeviceRule(c.in))
		if err != nil || string(got) != c.want {
			t.Errorf("%v: %s, want %s (%v)", c.in, got, c.want, err)
		}
	}
}
