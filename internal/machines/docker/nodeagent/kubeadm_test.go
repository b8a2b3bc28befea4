// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestUnfitChecks: bootstrap data that say nothing of kubeadm's checks, as those that are
// written for Cluster API's own Docker provider, pass them in a container.
func TestUnfitChecks(t *testing.T) {
	m := newMachine(t)
	m.seed(t, seed, `#cloud-config
runcmd:
- kubeadm init --config /run/kubeadm/kubeadm.yaml  && echo success > /run/cluster-api/bootstrap-success.complete
- mkdir -p /x && /usr/bin/kubeadm join --config=/run/j.yaml
- [kubeadm, join, --config=/run/j.yaml]
- [/usr/bin/kubeadm, token, list]
- echo kubeadm initialises; mykubeadm init
`)
	if state, err := m.Bootstrap(t.Context()); err != nil || state.Phase != PhaseDone {
		t.Fatalf("%+v, %v", state, err)
	}
	want := []string{
		"/bin/sh -c kubeadm init " + unfit + " --config /run/kubeadm/kubeadm.yaml  && echo success > /run/cluster-api/bootstrap-success.complete",
		"/bin/sh -c mkdir -p /x && /usr/bin/kubeadm join " + unfit + " --config=/run/j.yaml",
		"kubeadm join " + unfit + " --config=/run/j.yaml",
		"/usr/bin/kubeadm token list",
		"/bin/sh -c echo kubeadm initialises; mykubeadm init",
	}
	if diff := cmp.Diff(want, m.ran); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestConntrackIsLeftAlone: kubeadm's configuration keeps kube-proxy from what no container may,
// unless it says something about kube-proxy itself. Other files stay as they are.
func TestConntrackIsLeftAlone(t *testing.T) {
	const kubeadm = "---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nclusterName: x\n"
	for text, want := range map[string]string{
		kubeadm: kubeadm + leaveConntrack,
		kubeadm + "---\nkind: KubeProxyConfiguration\nmode: nftables\n": kubeadm + "---\nkind: KubeProxyConfiguration\nmode: nftables\n",
		"# kind: ClusterConfiguration\n":                                "# kind: ClusterConfiguration\n",
	} {
		p := &Plan{Files: []File{{Path: "/run/kubeadm/kubeadm.yaml", Content: []byte(text)}}}
		p.leaveOutConntrack()
		if got := string(p.Files[0].Content); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestServicesKnowTheMachine: services learn the providerID and the addresses that the
// machine's Node is to have, which a template then need not give kubelet.
func TestServicesKnowTheMachine(t *testing.T) {
	m := newMachine(t)
	var out bytes.Buffer
	m.Output = &out
	tell := Service{Command: []string{"/bin/sh", "-c", "echo id=$NODE_PROVIDER_ID ips=$NODE_IPS"}}
	if err := m.serve(t.Context(), tell); err != nil {
		t.Fatal(err)
	}
	m.seed(t, Seed{ProviderID: "docker:////m-1", NodeIPs: []string{"fd00::1", "10.0.0.1"}}, config)
	if err := m.serve(t.Context(), tell); err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(out.String()); !cmp.Equal(got, []string{"id=", "ips=", "id=docker:////m-1", "ips=fd00::1,10.0.0.1"}) {
		t.Errorf("%q", got)
	}
}
