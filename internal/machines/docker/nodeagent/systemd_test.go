// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSuitSystemd: in an image of kind's shape the agent is a unit that starts by itself,
// kubelet knows the Node's providerID and addresses besides what the image gives it, and
// containerd needs no more than a machine has; also when the machine starts again.
func TestSuitSystemd(t *testing.T) {
	m := newMachine(t)
	write := func(name, text string) {
		t.Helper()
		at := filepath.Join(m.Root, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(m.Root, name))
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
	write(kubeletDefaults, "KUBELET_EXTRA_ARGS=--runtime-cgroups=/system.slice/containerd.service")
	write(containerdConfig, "[plugins.cri]\n  restrict_oom_score_adj = false\n")
	m.seed(t, Seed{ProviderID: "docker:////m-1", NodeIPs: []string{"fd00::1", "10.0.0.1"}}, config)
	for range 2 {
		if err := m.suitSystemd(); err != nil {
			t.Fatal(err)
		}
		if got := read(unitDir + "/multi-user.target.wants/node-agent.service"); !strings.Contains(got, "\nExecStart=/usr/local/bin/node-agent run\n") {
			t.Errorf("unit:\n%s", got)
		}
		want := "KUBELET_EXTRA_ARGS=\"--runtime-cgroups=/system.slice/containerd.service --provider-id=docker:////m-1 --node-ip=fd00::1,10.0.0.1\"\n"
		if got := read(kubeletDefaults); got != want {
			t.Errorf("kubelet: %q, want %q", got, want)
		}
		if got := read(containerdConfig); got != "[plugins.cri]\n  restrict_oom_score_adj = true\n" {
			t.Errorf("containerd: %q", got)
		}
	}
	bare := newMachine(t)
	bare.seed(t, Seed{}, config)
	if err := bare.suitSystemd(); err != nil {
		t.Errorf("without kubelet and containerd: %v", err)
	}
}
