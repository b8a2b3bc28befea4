// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/loadbalancer"
	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/provider"
)

const haproxyTemplate = `# mine
frontend control-plane
  bind *:{{ .FrontendControlPlanePort }}
  {{ if .IPv6 }}bind :::{{ .FrontendControlPlanePort }}{{ end }}
backend kube-apiservers
  {{range $name, $backend := .BackendServers}}
  server {{ $name }} {{ JoinHostPort $backend.Address $.BackendControlPlanePort }} weight {{ $backend.Weight }} check
  {{- end}}
`

// TestTemplateOfTheLoadBalancer: customHAProxyConfigTemplateRef is what the load balancer
// reads, with each machine of the control plane, and also when the template has changed.
// One that is missing or wrong leaves the load balancer as it is, and says so.
func TestTemplateOfTheLoadBalancer(t *testing.T) {
	e, b := newFakeEngine(t, Config{})
	text, problem := haproxyTemplate, error(nil)
	b.Templates = func(_ context.Context, namespace, name string) (string, error) {
		if namespace != "ns" || name != "t" {
			t.Errorf("ConfigMap %s/%s is read", namespace, name)
		}
		return text, problem
	}
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "c"}
	infra := &infrav1.DockerCluster{ObjectMeta: meta}
	infra.Spec.LoadBalancer = infrav1.DockerLoadBalancer{ImageTag: "3", CustomHAProxyConfigTemplateRef: infrav1.ConfigMapReference{Name: "t"}}
	cluster := &reconciler.ClusterScope{Cluster: &clusterv1.Cluster{ObjectMeta: meta}, Infra: infra, Key: "cluster"}
	ensure := func() error {
		state, err := b.EnsureCluster(t.Context(), cluster)
		if err == nil {
			infra.Spec.ControlPlaneEndpoint = state.Endpoint
		}
		return err
	}
	config := func() string {
		t.Helper()
		found, err := b.containerWith(t.Context(), labelKey, "cluster")
		if err != nil || found == nil {
			t.Fatal("no load balancer", err)
		}
		return string(e.containers[found.ID].files[loadbalancer.ConfigPath])
	}
	if err := ensure(); err != nil || !strings.HasPrefix(config(), "# mine\n") || !strings.Contains(config(), "bind *:6443") {
		t.Fatalf("%v\n%s", err, config())
	}
	machine := &reconciler.MachineScope{
		Cluster: cluster.Cluster, Machine: &clusterv1.Machine{}, InfraCluster: infra, Infra: &infrav1.DockerMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}},
		Key: "machine", ClusterKey: "cluster", Began: time.Now(), Format: reconciler.FormatCloudConfig, ControlPlane: true,
	}
	for range 3 {
		if _, err := b.EnsureMachine(t.Context(), machine); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(config(), ":6443 weight 100 check") {
		t.Errorf("the machine is not balanced over:\n%s", config())
	}
	text = strings.Replace(text, "# mine", "# other", 1)
	if err := ensure(); err != nil || !strings.HasPrefix(config(), "# other\n") || !strings.Contains(config(), "weight 100") {
		t.Errorf("%v\n%s", err, config())
	}
	for what, harm := range map[string]func(){
		"missing": func() { problem = provider.ErrNotFound },
		"wrong":   func() { text = "{{ .BackendServers" },
		"endless": func() { text = `{{define "x"}}{{template "x"}}{{end}}{{template "x"}}` },
	} {
		text, problem = haproxyTemplate, nil
		harm()
		if err := ensure(); !reasonIs(err, ReasonTemplate) || !strings.HasPrefix(config(), "# other\n") {
			t.Errorf("%s: %v\n%s", what, err, config())
		}
	}
	if problem, text = nil, haproxyTemplate; errors.Is(ensure(), provider.ErrInvalidArgument) {
		t.Error("what is right again is refused")
	}
}

// TestTemplateWithIPv6: .IPv6 is true where the endpoint is an IPv6 address, as in Cluster
// API's own Docker provider, and addresses are in brackets where a port follows.
func TestTemplateWithIPv6(t *testing.T) {
	c := loadbalancer.Config{Port: 6443, IPv6: true, Backends: []loadbalancer.Backend{{Name: "cp-1", Host: "fd00::a", Port: 6443}}}
	text, err := rendered(haproxyTemplate, c, 6443)
	if err != nil || !strings.Contains(string(text), "  bind :::6443\n") || !strings.Contains(string(text), "server cp-1 [fd00::a]:6443 weight 100 check") {
		t.Errorf("%v\n%s", err, text)
	}
	if c.IPv6 = false; err == nil {
		if text, err = rendered(haproxyTemplate, c, 6443); err != nil || strings.Contains(string(text), ":::") {
			t.Errorf("%v\n%s", err, text)
		}
	}
}
