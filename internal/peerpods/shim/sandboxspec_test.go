// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	taskapi "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/google/go-cmp/cmp"
	oci "github.com/opencontainers/runtime-spec/specs-go"
)

func TestPodSpec(t *testing.T) {
	resolv := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(resolv, []byte("search svc.local\nnameserver 127.0.0.53\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	spec := podSpecOf("sandbox", "/pause")
	spec.Mounts = []oci.Mount{{Destination: "/etc/resolv.conf", Source: resolv, Type: "bind"}}
	for key, value := range map[string]string{
		hypervisorPrefix + "machine_type":   "t3.small",
		hypervisorPrefix + "default_vcpus":  "2",
		hypervisorPrefix + "default_memory": "1024",
		keyCPUQuota:                         "50000",
		keyCPUPeriod:                        "100000",
		keyMemory:                           "268435456",
		keyPolicy:                           "cGFja2FnZSBhZ2VudA==",
	} {
		spec.Annotations[key] = value
	}
	got, err := defaultConfig().podSpec(&bundle{id: "sb", spec: spec, role: roleSandbox, sandbox: "sb"})
	if err != nil {
		t.Fatal(err)
	}
	// The figures are those that the Kata shim sent for the same pod.
	want := map[string]string{
		hypervisorPrefix + "machine_type": "t3.small", hypervisorPrefix + "default_vcpus": "3", hypervisorPrefix + "default_memory": "1280",
	}
	if diff := cmp.Diff(want, got.Annotations); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"search svc.local", "nameserver 127.0.0.53", ""}, got.DNS); diff != "" {
		t.Error(diff)
	}
	if got.Name != "p1" || got.Namespace != "ns1" || got.Netns != "/var/run/netns/x" || got.Hostname != "p1host" || got.Policy != "package agent" {
		t.Errorf("%+v", got)
	}
}

func TestPodSpecErrors(t *testing.T) {
	for key, tc := range map[string]struct{ value, want string }{
		hypervisorPrefix + "kernel":        {"/x", "enable_annotations"},
		hypervisorPrefix + "default_vcpus": {"two", "is not a number"},
		keyMemory:                          {"1e99", "is not a number"},
		keyPolicy:                          {"%%%", keyPolicy},
	} {
		spec := podSpecOf("sandbox", "/pause")
		spec.Annotations[key] = tc.value
		_, err := defaultConfig().podSpec(&bundle{id: "sb", spec: spec, role: roleSandbox})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s=%s: error %v, want %q", key, tc.value, err, tc.want)
		}
	}
}

func TestReadBundle(t *testing.T) {
	r := &rig{t: t, dir: t.TempDir()}
	for name, tc := range map[string]struct {
		annotations map[string]string
		role        role
		sandbox     string
		want        string
	}{
		"sandbox":   {sandboxAnnotations("sandbox"), roleSandbox, "id", ""},
		"container": {sandboxAnnotations("container"), roleContainer, "sb", ""},
		"single":    {nil, roleSingle, "id", ""},
		"crio":      {map[string]string{"io.kubernetes.cri-o.ContainerType": "container", "io.kubernetes.cri-o.SandboxID": "sb2"}, roleContainer, "sb2", ""},
		"other":     {sandboxAnnotations("pod"), "", "", "neither sandbox nor container"},
		"lost":      {map[string]string{keysRole[0]: "container"}, "", "", "no io.kubernetes.cri.sandbox-id"},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := readBundle("id", r.bundleOf(name, &oci.Spec{Annotations: tc.annotations}))
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("error %v, want %q", err, tc.want)
				}
				return
			}
			if err != nil || b.role != tc.role || b.sandbox != tc.sandbox {
				t.Errorf("%+v, %v", b, err)
			}
		})
	}
}

// TestHostNamespaces: containerd leaves out the namespaces that a pod shares with its node.
func TestHostNamespaces(t *testing.T) {
	for kind, want := range map[oci.LinuxNamespaceType]string{oci.NetworkNamespace: "hostNetwork", oci.PIDNamespace: "hostPID", oci.IPCNamespace: "hostIPC"} {
		r := newRig(t)
		spec := podSpecOf("sandbox", "sleep", "infinity")
		spec.Linux.Namespaces = slices.DeleteFunc(spec.Linux.Namespaces, func(ns oci.LinuxNamespace) bool { return ns.Type == kind })
		if err := r.create(&taskapi.CreateTaskRequest{ID: "shares"}, spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", kind, err, want)
		}
	}
}
