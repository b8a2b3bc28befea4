// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/gcp"
)

const page = "../../docs/providers/gcp.md"

// everything switches on all that needs a permission of its own.
func everything(c *Config) {
	c.UsePublicIP, c.NetworkTags, c.Tags = true, []string{"podvm"}, map[string]string{"env": "test"}
	c.Image = "projects/" + sim.Project + "/global/images/family/" + sim.Image
}

// role returns the permissions of the documented role, without any condition.
func role() []string {
	var c Config
	everything(&c)
	list := (&Provider{cfg: c}).permissions()
	slices.Sort(list)
	return list
}

// TestRole: the documented role is exactly what the calls have needed.
func TestRole(t *testing.T) {
	noLeaks(t)
	used := map[string]bool{}
	for _, change := range []func(*Config){
		everything,
		func(c *Config) { c.Network, c.Subnetwork = sim.OtherNetwork, "" },
	} {
		s := newStand(t)
		change(&s.cfg)
		s.live(t)
		for _, name := range s.Used() {
			used[name] = true
		}
	}
	seen := slices.Sorted(maps.Keys(used))
	if diff := cmp.Diff(seen, role()); diff != "" {
		t.Errorf("-used +role\n%s", diff)
	}
	text := "title: Outrigger\nstage: GA\nincludedPermissions:\n- " + strings.Join(seen, "\n- ") + "\n"
	cloudsim.CheckDoc(t, page, "role", "```yaml\n"+text+"```")
	cloudsim.CheckFile(t, "../../deploy/overlays/gcp/role.yaml", text)
}

// live makes every call there is.
func (s *stand) live(t *testing.T) {
	t.Helper()
	p := s.mustOpen(t)
	if err := p.ConfigVerifier(); err != nil {
		t.Error(err)
	}
	made := create(t, p, spec(key))
	for what, err := range map[string]error{
		"off":    p.PowerOff(t.Context(), made.ID),
		"on":     p.PowerOn(t.Context(), made.ID),
		"delete": p.DeleteInstance(t.Context(), made.ID),
		"absent": p.DeleteInstance(t.Context(), "us-central1-a/podvm-x-0123456789ab"),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	other := newRequest("other", "other", spec("other"))
	again, err := p.CreateInstance(t.Context(), "other", other.key, nil, spec("other"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Console(t.Context(), again.ID, 10); err != nil {
		t.Error(err)
	}
	if _, err := p.ListInstances(t.Context(), map[string]string{provider.TagKey: "other"}); err != nil {
		t.Error(err)
	}
}

// TestCalls is the table of calls in the documentation.
func TestCalls(t *testing.T) {
	s := newStand(t)
	s.Step = 0
	s.cfg.Zones = sim.Zones[:1]
	p := s.mustOpen(t)
	if _, err := p.InstanceTypes(t.Context()); err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	fmt.Fprint(&table, "| what | calls |\n|---|---|\n")
	count := func(what string, do func() error) {
		s.World.ResetCalls()
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		var calls []string
		for name, n := range s.World.Calls() {
			if short, ok := strings.CutPrefix(name, "compute."); ok {
				switch short {
				case "instances.get":
					calls = append(calls, "`instances.get` until it has an address")
				case "zoneOperations.get": // the same, if it takes longer
				default:
					calls = append(calls, fmt.Sprintf("%d `%s`", n, short))
				}
			}
		}
		slices.Sort(calls)
		fmt.Fprintf(&table, "| %s | %s |\n", what, strings.Join(calls, ", "))
	}
	var made *provider.Instance
	count("create", func() error { made = create(t, p, spec(key)); return nil })
	count("delete", func() error { return p.DeleteInstance(t.Context(), made.ID) })
	s.wantNothing(t)
	count("delete what is gone", func() error { return p.DeleteInstance(t.Context(), made.ID) })
	count("list, for 500 instances", func() error {
		_, err := p.ListInstances(t.Context(), map[string]string{provider.TagKey: key})
		return err
	})
	cloudsim.CheckDoc(t, page, "calls", table.String())
}
