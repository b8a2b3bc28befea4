// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"errors"
	"testing"

	"github.com/outrigger/outrigger/provider"
	sim "github.com/outrigger/outrigger/test/cloudsim/docker"
)

func kindLabels(cluster, role string) map[string]string {
	return map[string]string{"io.x-k8s.kind.cluster": cluster, "io.x-k8s.kind.role": role}
}

// TestNodesOfACluster: machines that others made are shown by name, those of one
// cluster alone, and are neither changed nor deleted.
func TestNodesOfACluster(t *testing.T) {
	e := sim.Start(t, "1.41")
	worker := e.AddForeign("c1-md-0-x2x", kindLabels("c1", "worker"), nil)
	e.AddForeign("c1-lb", kindLabels("c1", "external-load-balancer"), nil)
	e.AddForeign("c2-control-plane", kindLabels("c2", "control-plane"), nil)
	e.AddForeign("ours-1", map[string]string{"infrastructure.outrigger.dev/cluster-key": "c1", "infrastructure.outrigger.dev/role": "control-plane"}, nil)
	e.AddForeign("stranger", nil, nil)
	p := mustOpen(t, simConfig(e, func(c *Config) { c.NodeCluster = "c1" }))
	for _, name := range []string{"c1-md-0-x2x", "ours-1"} {
		i, err := p.GetInstance(t.Context(), "//"+name)
		if err != nil || i.ID != "//"+name || i.Name != name || len(i.IPs) == 0 || i.State != provider.StateRunning || i.Tags[provider.TagCluster] != "c1" {
			t.Errorf("%s: %+v, %v", name, i, err)
		}
	}
	for _, id := range []string{"//c1-lb", "//c2-control-plane", "//stranger", "//no-such", "//" + worker, "//" + worker[:12], "//../x", "//", "///c1-md-0-x2x"} {
		if i, err := p.GetInstance(t.Context(), id); !errors.Is(err, provider.ErrNotFound) {
			t.Errorf("%s: %+v, %v", id, i, err)
		}
	}
	list, err := p.ListInstances(t.Context(), map[string]string{provider.TagCluster: "c1"})
	if err != nil || len(list) != 2 || list[0].ID != "//c1-md-0-x2x" || list[1].ID != "//ours-1" {
		t.Errorf("%+v, %v", list, err)
	}
	for _, match := range []map[string]string{{provider.TagCluster: "c2"}, {provider.TagCluster: "c1", provider.TagNode: "n"}, {provider.TagNode: "n"}} {
		if list, err := p.ListInstances(t.Context(), match); err != nil || len(list) > 0 {
			t.Errorf("%v: %+v, %v", match, list, err)
		}
	}
	if err := p.DeleteInstance(t.Context(), "//c1-md-0-x2x"); err != nil {
		t.Error(err)
	}
	if _, err := p.GetInstance(t.Context(), "//c1-md-0-x2x"); err != nil {
		t.Errorf("it was deleted: %v", err)
	}
	wantNothing(t, e)
}

// TestNodesAreNotShownUnasked: without the setting they are another cloud's.
func TestNodesAreNotShownUnasked(t *testing.T) {
	e := sim.Start(t, "1.41")
	e.AddForeign("c1-md-0-x2x", kindLabels("c1", "worker"), nil)
	p := mustOpen(t, simConfig(e))
	if _, err := p.GetInstance(t.Context(), "//c1-md-0-x2x"); !errors.Is(err, provider.ErrUnimplemented) {
		t.Errorf("%v", err)
	}
	if list, err := p.ListInstances(t.Context(), map[string]string{provider.TagCluster: "c1"}); err != nil || len(list) > 0 {
		t.Errorf("%+v, %v", list, err)
	}
}
