// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/aws"
)

const volumesPolicyFile = "../../deploy/overlays/aws/policy-volumes.json"

// volumeActions are those of the policy of volumes.
var volumeActions = sync.OnceValue(func() (list []string) {
	var policy struct{ Statement []statement }
	data, err := os.ReadFile(volumesPolicyFile)
	if err != nil || json.Unmarshal(data, &policy) != nil {
		return nil // TestVolumesPolicy -update writes it
	}
	for _, s := range policy.Statement {
		list = append(list, s.Action...)
	}
	return list
})

// TestVolumesPolicy: the policy of volumes is what a disk's life needs: volumes and snapshots of ours, and any instance, which may be a
// Node's.
func TestVolumesPolicy(t *testing.T) {
	s := newStand(t, lively)
	p := s.open(t)
	node := create(t, p, "node")
	s.World.ResetCalls()
	if err := cloudsim.DiskLife(t.Context(), p, 1<<30, node.ID); err != nil {
		t.Fatal(err)
	}
	restored(t, p)
	look := statement{Sid: "Look", Effect: "Allow", Resource: []string{"*"}}
	makes := statement{Sid: "Create", Effect: "Allow", Resource: []string{"*"}}
	own := statement{
		Sid: "ChangeOnlyOwn", Effect: "Allow", Resource: []string{"arn:aws:ec2:*:*:volume/*", "arn:aws:ec2:*:*:snapshot/*"},
		Condition: map[string]map[string]string{"StringLike": {"aws:ResourceTag/" + tagVolume: "*"}},
	}
	instances := statement{Sid: "OfAnyInstance", Effect: "Allow", Resource: []string{"arn:aws:ec2:*:*:instance/*"}}
	for _, action := range slices.Sorted(maps.Keys(s.World.Calls())) {
		switch name := strings.TrimPrefix(action, "ec2:"); {
		case strings.HasPrefix(name, "Describe"):
			look.Action = append(look.Action, action)
		case strings.HasPrefix(name, "C"):
			makes.Action = append(makes.Action, action)
		default:
			own.Action = append(own.Action, action)
			if name == "AttachVolume" || name == "DetachVolume" {
				instances.Action = append(instances.Action, action)
			}
		}
	}
	tags := statement{
		Sid: "TagWhatIsCreated", Effect: "Allow", Resource: []string{"*"}, Action: s.Implied(),
		Condition: map[string]map[string]string{"StringLike": {"ec2:CreateAction": "*"}},
	}
	text, err := json.MarshalIndent(map[string]any{"Version": "2012-10-17", "Statement": []statement{look, makes, tags, own, instances}}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	cloudsim.CheckDoc(t, page, "volumes-policy", "```json\n"+string(text)+"\n```\n")
	cloudsim.CheckFile(t, volumesPolicyFile, string(text)+"\n")
}

// TestEachPermissionOfVolumes: what lacks any one of them says which.
func TestEachPermissionOfVolumes(t *testing.T) {
	for _, action := range volumeActions() {
		s := newStand(t, lively)
		p := s.open(t)
		node := create(t, p, "node")
		s.Change(func(o *sim.Options) { o.Denied = map[string]bool{action: true} })
		err := cloudsim.DiskLife(t.Context(), p, 1<<30, node.ID)
		if provider.Class(err) != provider.ErrPermissionDenied || !strings.Contains(err.Error(), action) {
			t.Errorf("%s: %v", action, err)
		}
	}
}

// restored makes a disk of a snapshot, in the zone of the first subnet.
func restored(t *testing.T, p *Provider) {
	t.Helper()
	d := mustDisk(t, p, "of which")
	snap, err := p.CreateSnapshot(t.Context(), "s", d.ID, cloudsim.OwnerTags("s"))
	if err != nil {
		t.Fatal(err)
	}
	until(t, func() bool {
		got, err := p.GetSnapshot(t.Context(), snap.ID)
		if err != nil {
			t.Fatal(err)
		}
		return got.Ready
	})
	copied, err := p.CreateDisk(t.Context(), "r", provider.DiskSpec{FromSnapshot: snap.ID, Tags: cloudsim.OwnerTags("r")})
	if err != nil || copied.Zone != sim.Region+"a" || copied.Bytes != d.Bytes {
		t.Fatalf("%+v, %v", copied, err)
	}
	if err := errors.Join(p.DeleteSnapshot(t.Context(), snap.ID), p.DeleteDisk(t.Context(), copied.ID), p.DeleteDisk(t.Context(), d.ID)); err != nil {
		t.Fatal(err)
	}
}
