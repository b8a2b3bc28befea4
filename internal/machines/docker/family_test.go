// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/loadbalancer"
	"github.com/outrigger/outrigger/internal/machines/docker/nodeagent"
	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/provider"
)

// withRanges is a cluster with ranges of pods and Services, separated by spaces, and its
// DockerCluster without a load balancer.
func withRanges(pods, services string) *reconciler.ClusterScope {
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "work"}
	c := &clusterv1.Cluster{ObjectMeta: meta}
	c.Spec.ClusterNetwork.Pods.CIDRBlocks, c.Spec.ClusterNetwork.Services.CIDRBlocks = strings.Fields(pods), strings.Fields(services)
	return &reconciler.ClusterScope{Cluster: c, Infra: &infrav1.DockerCluster{ObjectMeta: meta}, Key: "key"}
}

// TestFamilies: a cluster has the families of its ranges, and the first is that of the
// Services. Ranges without a family in common are refused, and nothing is made for them.
func TestFamilies(t *testing.T) {
	for name, row := range map[string]struct {
		pods, services string
		want           families
	}{
		"IPv4":                   {"192.168.0.0/16", "10.96.0.0/12", onlyIPv4},
		"nothing":                {"", "", onlyIPv4},
		"pods alone":             {"fd00:1::/48", "", onlyIPv6},
		"IPv6":                   {"fd00:1::/48", "fd00:2::/108", onlyIPv6},
		"dual stack":             {"192.168.0.0/16 fd00:1::/48", "10.96.0.0/12 fd00:2::/108", firstIPv4},
		"dual stack, IPv6 first": {"fd00:1::/48 192.168.0.0/16", "fd00:2::/108 10.96.0.0/12", firstIPv6},
		"Services of IPv6":       {"192.168.0.0/16 fd00:1::/48", "fd00:2::/108", firstIPv6},
		"nothing in common":      {"fd00:1::/48", "10.96.0.0/12", ""},
	} {
		t.Run(name, func(t *testing.T) {
			e, b := newFakeEngine(t, Config{})
			scope := withRanges(row.pods, row.services)
			got, err := familiesOf(scope.Cluster)
			if got != row.want {
				t.Errorf("families %q, want %q", got, row.want)
			}
			if row.want != "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if _, err := b.EnsureCluster(t.Context(), scope); !errors.Is(err, provider.ErrInvalidArgument) || !reasonIs(err, ReasonIPFamily) ||
				!strings.Contains(err.Error(), "IPv6 ranges for pods and IPv4 ranges for services") || len(e.networks) > 0 {
				t.Errorf("%v, %d networks", err, len(e.networks))
			}
			yes := true
			scope.Infra.(*infrav1.DockerCluster).Status.Initialization.Provisioned = &yes
			if _, err := b.EnsureCluster(t.Context(), scope); err != nil {
				t.Errorf("provisioned already: %v", err)
			}
		})
	}
}

// TestIPv6Cluster: the endpoint, the load balancer and its servers have IPv6 addresses, in
// brackets where a port follows, and the machine and its agent know theirs.
func TestIPv6Cluster(t *testing.T) {
	e, b := newFakeEngine(t, Config{})
	b.Templates = nil
	scope := withRanges("fd00:1::/48", "fd00:2::/108")
	state, err := b.EnsureCluster(t.Context(), scope)
	if err != nil || !state.Provisioned {
		t.Fatalf("%+v, %v", state, err)
	}
	n, err := b.network(t.Context(), "key")
	if err != nil || n.families != onlyIPv6 || !n.subnet6.IsValid() {
		t.Fatalf("network %+v, %v", n, err)
	}
	if host := state.Endpoint.Host; host != n.gateway6.String() || !strings.HasPrefix(host, "fd") {
		t.Errorf("endpoint %v, want the host's address in %s", state.Endpoint, n.subnet6)
	}
	infra := scope.Infra.(*infrav1.DockerCluster)
	infra.Spec.ControlPlaneEndpoint = state.Endpoint
	object := &infrav1.DockerMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}}
	machine := &reconciler.MachineScope{Cluster: scope.Cluster, Machine: &clusterv1.Machine{}, InfraCluster: infra, Infra: object,
		Key: "machine", ClusterKey: "key", Began: time.Now(), Format: reconciler.FormatCloudConfig, ControlPlane: true}
	var m reconciler.MachineState
	for range 3 {
		if m, err = b.EnsureMachine(t.Context(), machine); err != nil {
			t.Fatal(err)
		}
	}
	pair := n.at(netip.MustParseAddr("172.17.0.10"))
	want := []string{"m", pair.v6.String(), pair.v6.String(), pair.v4.String(), pair.v4.String()}
	var got []string
	for _, a := range m.Addresses {
		got = append(got, a.Address)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	for _, c := range e.containers {
		if c.Labels[labelRole] == roleLoadBalancer {
			config := string(c.files[loadbalancer.ConfigPath])
			if !strings.Contains(config, "bind :::6443 v4v6\n") || !strings.Contains(config, " ["+pair.v6.String()+"]:6443 check") {
				t.Errorf("load balancer:\n%s", config)
			}
			continue
		}
		var seed nodeagent.Seed
		if err := json.Unmarshal(c.files[nodeagent.Dir+"/"+nodeagent.SeedFile], &seed); err != nil || !slices.Equal(seed.NodeIPs, []string{pair.v6.String()}) {
			t.Errorf("seed %+v, %v", seed, err)
		}
	}
}

// TestNodeIPs: the Node has the addresses of its cluster's families, the first family's
// first. In a cluster of IPv4 kubelet finds its address itself, as it always did.
func TestNodeIPs(t *testing.T) {
	pair := addresses{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}
	for f, want := range map[families][]string{
		onlyIPv6: {"fd00::1"}, firstIPv6: {"fd00::1", "10.0.0.1"}, firstIPv4: {"10.0.0.1", "fd00::1"},
	} {
		if got := nodeIPs(pair.labels(map[string]string{}, f)); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", f, got, want)
		}
	}
	if got := nodeIPs(addresses{v4: pair.v4}.labels(map[string]string{}, onlyIPv4)); got != nil {
		t.Errorf("%q", got)
	}
}

// TestFamiliesStay: a cluster that is partly created with other families says what to do, and one
// that is there is left alone.
func TestFamiliesStay(t *testing.T) {
	_, b := newFakeEngine(t, Config{})
	if _, err := b.EnsureCluster(t.Context(), withRanges("", "10.96.0.0/12")); err != nil {
		t.Fatal(err)
	}
	later := withRanges("fd00:1::/48", "fd00:2::/108")
	if _, err := b.EnsureCluster(t.Context(), later); !reasonIs(err, ReasonIPFamily) || !strings.Contains(err.Error(), "delete the Cluster") {
		t.Error(err)
	}
	yes := true
	later.Infra.(*infrav1.DockerCluster).Status.Initialization.Provisioned = &yes
	if state, err := b.EnsureCluster(t.Context(), later); err != nil || !strings.HasPrefix(state.Endpoint.Host, "172.") {
		t.Errorf("%+v, %v", state, err)
	}
}

// TestEngineWithoutIPv6 says so in a sentence with what to do, and makes nothing.
func TestEngineWithoutIPv6(t *testing.T) {
	e, b := newFakeEngine(t, Config{})
	refused := 0
	e.refuse = func(verb, path string) (int, string) {
		if verb != http.MethodPost || path != "/networks/create" {
			return 0, ""
		}
		if refused++; refused == 1 { // the first asks for a pool of IPv4
			return 0, ""
		}
		return http.StatusInternalServerError, "Cannot read IPv6 setup for bridge br-1: open /proc/sys/net/ipv6/conf/br-1/disable_ipv6: no such file or directory"
	}
	_, err := b.EnsureCluster(t.Context(), withRanges("fd00:1::/48", "fd00:2::/108"))
	if !reasonIs(err, ReasonIPFamily) || !errors.Is(err, provider.ErrUnimplemented) || !strings.Contains(err.Error(), "ipv6.disable=1") || len(e.networks)+len(e.containers) > 0 {
		t.Errorf("%v; networks %v", err, e.networks)
	}
}
