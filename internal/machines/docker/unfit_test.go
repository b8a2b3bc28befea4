// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"errors"
	"strings"
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/provider"
)

// TestIPv6IsRefused: a cluster that wants pods or Services with IPv6 is told so by the
// field's name, and nothing is made for it. One that is there already is left alone.
func TestIPv6IsRefused(t *testing.T) {
	blocks := func(pods, services string) *clusterv1.Cluster {
		c := &clusterv1.Cluster{}
		c.Name = "work"
		c.Spec.ClusterNetwork.Pods.CIDRBlocks = strings.Fields(pods)
		c.Spec.ClusterNetwork.Services.CIDRBlocks = strings.Fields(services)
		return c
	}
	for name, row := range map[string]struct {
		cluster *clusterv1.Cluster
		want    string
	}{
		"IPv4":       {blocks("192.168.0.0/16", "10.96.0.0/12"), ""},
		"nothing":    {blocks("", ""), ""},
		"IPv6":       {blocks("fd00:1::/48", "fd00:2::/108"), "cidrBlocks of Cluster work has fd00:"},
		"dual stack": {blocks("192.168.0.0/16", "10.96.0.0/12 fd00:2::/108"), "spec.clusterNetwork.services.cidrBlocks of Cluster work has fd00:2::/108"},
		"IPv6 pods":  {blocks("fd00:1::/48", "10.96.0.0/12"), "spec.clusterNetwork.pods.cidrBlocks of Cluster work has fd00:1::/48"},
	} {
		t.Run(name, func(t *testing.T) {
			e, b := newFakeEngine(t, Config{})
			infra := &infrav1.DockerCluster{}
			infra.Namespace, infra.Name, infra.Spec.DisableLoadBalancer = "ns", "work", true
			scope := &reconciler.ClusterScope{Cluster: row.cluster, Infra: infra, Key: "key"}
			_, err := b.EnsureCluster(t.Context(), scope)
			if row.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, provider.ErrInvalidArgument) || !reasonIs(err, ReasonIPFamily) || !strings.Contains(err.Error(), row.want) || len(e.networks) > 0 {
				t.Errorf("%v, %d networks; want %q", err, len(e.networks), row.want)
			}
			yes := true
			infra.Status.Initialization.Provisioned = &yes
			if _, err := b.EnsureCluster(t.Context(), scope); err != nil {
				t.Errorf("provisioned already: %v", err)
			}
		})
	}
}

// TestImagesOfKindAreRefused by their name, before anything is made of them.
func TestImagesOfKindAreRefused(t *testing.T) {
	for config, want := range map[string]string{
		`{"Entrypoint": ["/usr/local/bin/entrypoint", "/sbin/init"]}`:          "image i is one of kind's: it starts /usr/local/bin/entrypoint /sbin/init",
		`{"Entrypoint": ["/usr/local/bin/entrypoint"], "Cmd": ["/sbin/init"]}`: "one of kind's",
		`{"Entrypoint": ["/usr/local/bin/node-agent"]}`:                        "",
		`{"Entrypoint": ["/usr/local/bin/entrypoint", "/node-agent"]}`:         "",
		`{"Cmd": ["/sbin/init"]}`:                                              "",
		`null`:                                                                 "",
	} {
		b, _ := scripted(t, func(_, _ string) (int, string) { return 200, `{"Id": "i", "Config": ` + config + `}` })
		err := b.checkNodeImage(t.Context(), "i")
		if want == "" && err != nil || want != "" && (!reasonIs(err, ReasonImageUnfit) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v; want %q", config, err, want)
		}
	}
}
