// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
)

const page = "../../docs/providers/ibmcloud.md"

// TestRole: the documented role is exactly what the calls have needed.
func TestRole(t *testing.T) {
	noLeaks(t)
	s := newStand(t)
	everything(&s.cfg)
	p := s.mustOpen(t)
	if err := p.ConfigVerifier(); err != nil {
		t.Error(err)
	}
	made := create(t, p, spec(key))
	list, err := p.ListInstances(t.Context(), map[string]string{provider.TagKey: key})
	if err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	_, getErr := p.GetInstance(t.Context(), made.ID)
	for what, err := range map[string]error{
		"get": getErr, "off": p.PowerOff(t.Context(), made.ID), "on": p.PowerOn(t.Context(), made.ID),
		"delete": p.DeleteInstance(t.Context(), made.ID), "by name": p.DeleteInstance(t.Context(), byName+made.Name),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	s.wantNothing(t)
	again := create(t, p, spec(key))
	s.Orphan(again.ID)
	orphans, err := p.ListInstances(t.Context(), map[string]string{provider.TagKey: key})
	if err != nil || len(orphans) != 1 {
		t.Fatalf("%v, %v", orphans, err)
	}
	if err := p.DeleteInstance(t.Context(), orphans[0].ID); err != nil {
		t.Error(err)
	}
	seen := s.Used()
	if diff := cmp.Diff(seen, role); diff != "" {
		t.Errorf("-used +role\n%s", diff)
	}
	text := strings.Join(seen, "\n") + "\n"
	cloudsim.CheckDoc(t, page, "role", "```\n"+text+"```")
	cloudsim.CheckFile(t, "../../deploy/overlays/ibmcloud/role-actions.txt", text)
}

// TestCalls is the table of calls in the documentation.
func TestCalls(t *testing.T) {
	s := newStand(t)
	s.Step = 0
	p := s.mustOpen(t)
	create(t, p, spec(key)) // profiles and images are known after that
	var table strings.Builder
	fmt.Fprint(&table, "| what | calls |\n|---|---|\n")
	count := func(what string, do func() error) {
		s.World.ResetCalls()
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		var calls []string
		for _, name := range slices.Sorted(maps.Keys(s.World.Calls())) {
			switch {
			case strings.HasPrefix(name, "late-"), name == "iam.token":
			case name == "GetInstance" && what == "create":
				calls = append(calls, "`GetInstance` until it has an address")
			default:
				calls = append(calls, fmt.Sprintf("%d `%s`", s.World.Calls()[name], name))
			}
		}
		fmt.Fprintf(&table, "| %s | %s |\n", what, strings.Join(calls, ", "))
	}
	tags := spec("calls")
	var made *provider.Instance
	count("create", func() (err error) {
		made, err = p.CreateInstance(t.Context(), "web", "calls", nil, tags)
		return err
	})
	count("delete", func() error { return p.DeleteInstance(t.Context(), made.ID) })
	count("list, up to 100 volumes, one instance", func() error {
		_, err := p.ListInstances(t.Context(), map[string]string{provider.TagKey: key})
		return err
	})
	cloudsim.CheckDoc(t, page, "calls", table.String())
}
