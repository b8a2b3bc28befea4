// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
	azuresim "github.com/outrigger/outrigger/test/cloudsim/azure"
)

const (
	page = "../../docs/providers/azure.md"
	// overlay has the page's roles as files.
	overlay = "../../deploy/overlays/azure/"
)

var documentation = sync.OnceValues(func() ([]byte, error) { return os.ReadFile(page) })

// checkRole fails a test that has seen a call which no documented role allows.
func checkRole(t testing.TB, cloud *azuresim.Cloud) {
	text, err := documentation()
	if err != nil {
		t.Error(err)
	}
	for action := range onlyMicrosoft(cloud.World.Calls()) {
		if action != "Microsoft.Authorization/permissions/read" && !strings.Contains(string(text), `"`+action+`"`) {
			t.Errorf("%s lacks the permission %s, which was needed", page, action)
		}
	}
}

// role is as "az role definition create" takes it.
type role struct {
	Name             string
	IsCustom         bool
	Description      string
	Actions          []string
	NotActions       []string
	AssignableScopes []string
}

// roles sorts actions by where they are needed.
func roles(actions []string) []*role {
	const scope = "/subscriptions/SUBSCRIPTION"
	group := &role{Name: "Outrigger pod VMs", Description: "Makes and removes the VMs of pods.", Actions: []string{"Microsoft.Authorization/permissions/read"}}
	region := &role{Name: "Outrigger region", Description: "Reads VM sizes and quotas, and follows operations."}
	volumes := &role{Name: "Outrigger volumes", Description: "Attaches the disks of volumes and takes snapshots of them."}
	network := &role{Name: "Outrigger network and image", Description: "Puts the VMs of pods into a subnet and makes them from an image."}
	for _, action := range actions {
		to := group
		switch {
		case strings.Contains(action, "/locations/"), strings.HasSuffix(action, "/skus/read"):
			to = region
		case strings.Contains(action, "/virtualNetworks/"), strings.Contains(action, "/networkSecurityGroups/"), strings.Contains(action, "images/"):
			to = network
		case strings.Contains(action, "/snapshots/"), strings.Contains(action, "DataDisks"):
			to = volumes
		}
		to.Actions = append(to.Actions, action)
	}
	network.Actions = append([]string{"Microsoft.Authorization/permissions/read"}, network.Actions...)
	all := []*role{group, region, network, volumes}
	for _, r := range all {
		r.IsCustom, r.NotActions, r.AssignableScopes = true, []string{}, []string{scope}
	}
	return all
}

// TestRoles does everything that the provider can, looks at the permissions that
// took, and writes the roles.
func TestRoles(t *testing.T) {
	s := newStand(t, azuresim.Options{}, func(c *Config) { c.UsePublicIP = true })
	everything(t, s)
	var actions []string
	for _, action := range slices.Sorted(maps.Keys(onlyMicrosoft(s.cloud.World.Calls()))) {
		if action != "Microsoft.Authorization/permissions/read" {
			actions = append(actions, action)
		}
	}
	all := roles(actions)
	wanted := append([]string{"Microsoft.Authorization/permissions/read"}, groupActions...)
	if diff := cmp.Diff(wanted, all[0].Actions); diff != "" {
		t.Errorf("what ConfigVerifier looks for is not what is needed: -looked for +needed\n%s", diff)
	}
	var text strings.Builder
	for i, file := range []string{"pods-role.json", "region-role.json", "network-role.json", "volumes-role.json"} {
		data, err := json.MarshalIndent(all[i], "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		cloudsim.CheckFile(t, overlay+file, string(data)+"\n")
		fmt.Fprintf(&text, "`%s`:\n\n```json\n%s\n```\n\n", file, data)
	}
	cloudsim.CheckDoc(t, page, "roles", text.String())
}

func everything(t *testing.T, s *stand) {
	t.Helper()
	for _, id := range []string{azuresim.ImageID, azuresim.LatestImageID, azuresim.ManagedImageID, azuresim.CommunityImageID, azuresim.SharedImageID} {
		s.Provider.cfg.ImageID = id
		if err := s.ConfigVerifier(); err != nil {
			t.Fatal(err)
		}
	}
	s.Provider.cfg.ImageID = azuresim.ImageID
	sp := spec("key-1")
	sp.MultiNic, sp.VCPUs, sp.Volumes = true, 2, []provider.CloudVolume{{DiskID: azuresim.VolumeID}}
	i, err := s.create("key-1", sp)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	_, getErr := s.GetInstance(ctx, i.ID)
	_, consoleErr := s.Console(ctx, i.ID, 10)
	_, snapshotErr := s.ListSnapshots(ctx, map[string]string{provider.TagKey: "s"})
	for _, err := range []error{getErr, consoleErr, s.PowerOff(ctx, i.ID), s.PowerOn(ctx, i.ID), cloudsim.DiskLife(ctx, s.Provider, 1<<30, i.ID), snapshotErr} {
		if err != nil {
			t.Fatal(err)
		}
	}
	// What a broken cascade leaves needs other calls.
	s.cloud.World.Script(cloudsim.Refused("vm:cascade", 0, "broken"))
	s.mustDelete(i.ID)
	s.eventually(func() bool { return len(s.cloud.World.Own()) == 5 }, func() any { return s.cloud.World.Own() })
	s.mustDelete(i.ID)
	s.wantNothing()
}

// TestCalls writes how many calls it takes, and fails when that changes.
func TestCalls(t *testing.T) {
	s := newStand(t, azuresim.Options{PageSize: 1000})
	s.mustDelete(s.mustCreate("key-0").ID) // takes a token
	s.wantNothing()
	rows := []struct {
		what string
		do   func()
	}{
		{"create", func() { s.mustCreate("key-1") }},
		{"create what is there", func() { s.mustCreate("key-1") }},
		{"list", func() {
			if _, err := s.ListInstances(t.Context(), map[string]string{provider.TagKey: "key-1"}); err != nil {
				t.Error(err)
			}
		}},
		{"delete", func() { s.mustDelete(s.id(s.ref(vmName("schedules", "key-1")))); s.wantNothing() }},
		{"delete what is gone", func() { s.mustDelete(s.id(s.ref(vmName("schedules", "key-1")))) }},
	}
	var text strings.Builder
	text.WriteString("| what | calls |\n|---|---|\n")
	for _, row := range rows {
		s.cloud.World.ResetCalls()
		row.do()
		fmt.Fprintf(&text, "| %s | %s |\n", row.what, summary(s.cloud.World.Calls(), row.what))
	}
	cloudsim.CheckDoc(t, page, "calls", text.String())
}

// summary leaves out the permissions that a PUT needs besides its own, which are
// not calls, and how often the VM was looked at.
func summary(calls map[string]int, what string) string {
	var parts []string
	for _, action := range slices.Sorted(maps.Keys(onlyMicrosoft(calls))) {
		linked := strings.HasSuffix(action, "/join/action") || strings.HasSuffix(action, "/write") && !strings.Contains(action, "virtualMachines") || strings.Contains(action, "images/")
		name := strings.TrimPrefix(strings.TrimPrefix(action, "Microsoft."), "Compute/")
		switch {
		case linked:
		case what == "create" && action == "Microsoft.Compute/virtualMachines/read":
			parts = append(parts, "`"+name+"` until a machine is found")
		default:
			parts = append(parts, fmt.Sprintf("%d `%s`", calls[action], name))
		}
	}
	return strings.Join(parts, ", ")
}
