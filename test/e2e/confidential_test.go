// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/stand"
)

// The names are those of upstream's cases.
var confidential = []scenario{
	{name: "RestrictivePolicyBlocksExec", vms: 2, play: restrictivePolicy},
	{name: "PermissivePolicyAllowsExec", vms: 1, variant: true, play: permissivePolicy},
}

// policyImage is the VM image with policies, in the provider's folder, beside its kernel.
const policyImage = "confidential/initrd.cpio"

// needPolicies brings policyImage to the provider.
func (s *suite) needPolicies(t *testing.T) {
	t.Helper()
	if s.own == nil || *providerName != "qemu" {
		t.Skip("it brings a VM image of its own: only with provider qemu in a cluster of the suite's own")
	}
	s.own.policy.Do(func() {
		pid := s.daemonPID(t, "provider-qemu")
		makeWritable(t, pid)
		folder := filepath.Join("/proc", pid, "root/usr/local/bin/podvm", filepath.Dir(policyImage))
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"vmlinux", filepath.Base(policyImage)} {
			data, err := os.ReadFile(filepath.Join(stand.Root(), "bin/podvm/confidential", name))
			if err != nil {
				t.Fatalf("%v; run: make podvm-confidential", err)
			}
			if err := os.WriteFile(filepath.Join(folder, name), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// governed is a pod with the policy that the command line writes for it.
func (s *suite) governed(t *testing.T, p *pod, flags ...string) object {
	t.Helper()
	// An image that no other case pulls by a tag: containerd would name that to the guest, see docs/policy.md.
	image, err := mutate.Config(cluster.Busybox(t), v1.Config{Env: []string{"PATH=/bin", "OF=policies"}})
	if err != nil {
		t.Fatal(err)
	}
	p.image(push(t, s.images.busybox[:strings.LastIndex(s.images.busybox, "/")]+"/governed:1", image))
	text, err := json.Marshal(p.manifest())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(stand.Binary(t, "outrigger"), append([]string{"policy", "generate", "-o", "pod", "-"}, flags...)...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v: %s", cmd.Args, err, &errs)
	}
	var made object
	if err := yaml.Unmarshal(out.Bytes(), &made); err != nil {
		t.Fatal(err)
	}
	return made
}

// restrictivePolicy: a pod with the policy of its own manifest runs, is probed and ends; exec is refused by name, and so is
// a container that is not as the manifest has it.
func restrictivePolicy(t *testing.T, s *suite) {
	s.needPolicies(t)
	p := s.pod("strict", "echo started; sleep 100000").annotate(annotationImage, policyImage).
		container(`{env: [{name: LEVEL, value: high}], readinessProbe: {exec: {command: [test, -d, /tmp]}, periodSeconds: 1}, volumeMounts: [{name: scratch, mountPath: /scratch}]}`).
		with(`volumes: [{name: scratch, emptyDir: {}}]`)
	made := s.governed(t, p, "--allow-logs")
	s.create(t, made)
	s.ready(t, "strict") // by its probe, which is an exec
	want(t, "log", s.logs(t, "strict"), "started\n")
	out, err := s.TryKubectl(s.in([]string{"exec", "strict", "--", "cat", "/proc/1/environ"})...)
	if err == nil {
		t.Errorf("exec: %s", out)
	}
	want(t, "exec", string(out)+errText(err), "the pod's policy refuses ExecProcessRequest")
	s.delete(t, "strict")

	made["metadata"].(map[string]any)["name"] = "altered"
	made["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)["env"] = []any{map[string]any{"name": "LEVEL", "value": "low"}}
	s.create(t, made)
	message := s.warned(t, "altered", "Failed")
	want(t, "Event", message, "the pod's policy refuses CreateContainerRequest")
	want(t, "Event", message, "variable LEVEL")
	s.delete(t, "altered")
}

// permissivePolicy: what the policy allows works.
func permissivePolicy(t *testing.T, s *suite) {
	s.needPolicies(t)
	made := s.governed(t, s.pod("permissive", "echo started; sleep 100000").annotate(annotationImage, policyImage), "--allow-logs", "--allow-exec")
	s.create(t, made)
	s.ready(t, "permissive")
	want(t, "exec", s.kubectl(t, "exec", "permissive", "--", "echo", "allowed"), "allowed\n")
	s.delete(t, "permissive")
}
