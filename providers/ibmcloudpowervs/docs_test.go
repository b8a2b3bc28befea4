// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/ibmcloudpowervs"
)

// documented are the calls on the page.
var documented cloudsim.Actions

const page = "../../docs/providers/ibmcloud-powervs.md"

// TestDocsNameTheCalls walks through everything that the provider can do: the
// page has exactly those calls. Every other test looks that it sees no other
// (newStand).
func TestDocsNameTheCalls(t *testing.T) {
	s := newStand(t)
	s.cfg.Network = sim.DHCPNetwork
	s.GoWithVM = true
	p := s.mustOpen(t)
	if err := p.ConfigVerifier(); err != nil {
		t.Fatal(err)
	}
	s.World.ResetCalls()
	made, err := p.CreateInstance(t.Context(), "pod", "key", userData, spec("key"))
	if err != nil {
		t.Fatal(err)
	}
	create := s.World.Calls()
	for _, step := range []func() error{
		func() error { _, err := p.ListInstances(t.Context(), cloudsim.OwnerTags("key")); return err },
		func() error { _, err := p.GetInstance(t.Context(), made.ID); return err },
		func() error { return p.PowerOff(t.Context(), made.ID) },
		func() error { return p.PowerOn(t.Context(), made.ID) },
		func() error { return cloudsim.DiskLife(t.Context(), p, 1<<30, made.ID) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	documented.Add(s.World)
	s.World.ResetCalls()
	if err := p.DeleteInstance(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	if err := p.ConfigVerifier(); err != nil {
		t.Fatal(err)
	}
	documented.Add(s.World)
	cloudsim.CheckDoc(t, page, "calls", callTable(documented.List()))
	cloudsim.CheckDoc(t, page, "counts", fmt.Sprintf(
		"- create: %s, and looks at the server, its network's DHCP service and the leases until there is an address\n- delete: a look and a deletion",
		strings.Join(changing(create), ", ")))
}

// changing are the calls whose number does not depend on the time.
func changing(calls map[string]int) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		if strings.HasSuffix(name, ".create") || name == "powervs:pvm-instances.list" {
			list = append(list, fmt.Sprintf("%d × `%s`", calls[name], strings.TrimPrefix(name, "powervs:")))
		}
	}
	return list
}

func callTable(calls []string) string {
	var text strings.Builder
	text.WriteString("| call | role |\n|---|---|\n")
	for _, call := range calls {
		name, ok := strings.CutPrefix(call, "powervs:")
		if !ok || call == sim.LateFailure || call == sim.LateClone {
			continue
		}
		role := "Reader"
		if strings.HasSuffix(name, ".create") || strings.HasSuffix(name, ".delete") || strings.HasSuffix(name, ".action") || strings.HasSuffix(name, ".update") {
			role = "Manager"
		}
		fmt.Fprintf(&text, "| `%s` | %s |\n", name, role)
	}
	return text.String()
}
