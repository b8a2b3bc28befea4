// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
)

const page = "../../docs/providers/aws.md"

// everything makes every call that the provider knows, in one configuration.
// The error is that of the first step that failed.
func everything(t *testing.T, s *stand, change ...func(*Config)) error {
	t.Helper()
	p := s.open(t, change...)
	if err := p.ConfigVerifier(); err != nil {
		return err
	}
	spec := specOf("k")
	spec.VCPUs = 2
	made, err := p.CreateInstance(t.Context(), "web", "k", userData, spec)
	if err != nil {
		return err
	}
	steps := []func() error{
		func() error { _, err := p.GetInstance(t.Context(), made.ID); return err },
		func() error { _, err := p.Console(t.Context(), made.ID, 10); return err },
		func() error {
			_, err := p.ListInstances(t.Context(), map[string]string{provider.TagKey: "k"})
			return err
		},
	}
	if p.HasCapability(provider.CapabilityPower) {
		steps = append(steps, func() error { return p.PowerOff(t.Context(), made.ID) }, func() error { return p.PowerOn(t.Context(), made.ID) })
	}
	steps = append(steps, func() error { s.LoseVolumes(made.ID); return p.DeleteInstance(t.Context(), made.ID) }, func() error {
		list, err := listWithout(t, p, made.ID)
		for _, i := range list {
			err = errors.Join(err, p.DeleteInstance(t.Context(), i.ID))
		}
		return err
	})
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// listWithout lists when an instance has gone: as long as it is there, what it
// has lost may go back to it.
func listWithout(t *testing.T, p *Provider, id string) ([]provider.Instance, error) {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		list, err := p.ListInstances(t.Context(), map[string]string{provider.TagKey: "k"})
		there := slices.ContainsFunc(list, func(i provider.Instance) bool { return i.ID == id })
		if err != nil || !there || time.Now().After(deadline) {
			return list, err
		}
	}
}

// actions are the permissions that everything needs.
func actions(t *testing.T) []string {
	t.Helper()
	var all cloudsim.Actions
	var implied []string
	for _, change := range variants {
		s := newStand(t, lively)
		if err := everything(t, s, change); err != nil {
			t.Fatal(err)
		}
		all.Add(s.World)
		implied = append(implied, s.Implied()...)
	}
	list := append(all.List(), implied...)
	slices.Sort(list)
	return slices.Compact(list)
}

// guarded are the calls that change instances, addresses and volumes: the policy allows
// them only with ours.
var guarded = []string{
	"ec2:AssociateAddress", "ec2:DeleteVolume", "ec2:DisassociateAddress", "ec2:ReleaseAddress", "ec2:StartInstances", "ec2:StopInstances", "ec2:TerminateInstances",
}

type statement struct {
	Sid, Effect string
	Action      []string
	Resource    []string
	Condition   map[string]map[string]string `json:",omitempty"`
}

func policyOf(actions []string) string {
	look := statement{Sid: "Look", Effect: "Allow", Resource: []string{"*"}}
	create := statement{Sid: "Create", Effect: "Allow", Resource: []string{"*"}}
	tags := statement{
		Sid: "TagWhatIsCreated", Effect: "Allow", Resource: []string{"*"},
		Condition: map[string]map[string]string{"StringLike": {"ec2:CreateAction": "*"}},
	}
	change := statement{
		Sid: "ChangeOnlyOwn", Effect: "Allow", Resource: []string{"arn:aws:ec2:*:*:instance/*", "arn:aws:ec2:*:*:elastic-ip/*", "arn:aws:ec2:*:*:network-interface/*", "arn:aws:ec2:*:*:volume/*"},
		Condition: map[string]map[string]string{"StringLike": {"aws:ResourceTag/" + provider.TagKey: "*"}},
	}
	for _, action := range actions {
		switch {
		case slices.Contains(guarded, action):
			change.Action = append(change.Action, action)
		case action == "ec2:CreateTags":
			tags.Action = append(tags.Action, action)
		case strings.Contains(action, ":Describe"), strings.Contains(action, ":Get"):
			look.Action = append(look.Action, action)
		default:
			create.Action = append(create.Action, action)
		}
	}
	text, err := json.MarshalIndent(map[string]any{"Version": "2012-10-17", "Statement": []statement{look, create, tags, change}}, "", "  ")
	if err != nil {
		panic(err)
	}
	return string(text) + "\n"
}

// policyFile is the page's policy for `aws iam create-policy`.
const policyFile = "../../deploy/overlays/aws/policy.json"

// TestPolicy: the page's policy is what the calls needed, and so is the overlay's.
func TestPolicy(t *testing.T) {
	want := policyOf(actions(t))
	cloudsim.CheckDoc(t, page, "policy", "```json\n"+want+"```\n")
	cloudsim.CheckFile(t, policyFile, want)
}

// permitted are the actions of the page's policy.
var permitted = sync.OnceValue(func() []string {
	data, err := os.ReadFile(page)
	if err != nil {
		panic(err)
	}
	_, rest, _ := strings.Cut(string(data), "<!-- begin generated: policy -->\n```json\n")
	text, _, _ := strings.Cut(rest, "```")
	var policy struct{ Statement []statement }
	if err := json.Unmarshal([]byte(text), &policy); err != nil {
		return nil // TestPolicy -update writes it
	}
	var list []string
	for _, s := range policy.Statement {
		list = append(list, s.Action...)
	}
	return list
})

// TestEachPermission: what lacks any one of them says which.
func TestEachPermission(t *testing.T) {
	for _, action := range permitted() {
		t.Run(action, func(t *testing.T) {
			missed := false
			for _, name := range []string{"direct", "template", "elastic", "public"} {
				options := lively
				options.Denied = map[string]bool{action: true}
				err := everything(t, newStand(t, options), variants[name])
				if err == nil {
					continue // this configuration does without
				}
				missed = true
				if provider.Class(err) != provider.ErrPermissionDenied || !strings.Contains(err.Error(), action) {
					t.Errorf("%s: error %v, want one that names %s", name, err, action)
				}
			}
			if !missed {
				t.Errorf("nothing needs %s", action)
			}
		})
	}
}

// costs are the configurations of the page's table.
var costs = []struct {
	title, variant string
	second         bool
}{
	{"one subnet", "direct", false}, {"several subnets", "zones", false}, {"launch template", "template", false}, {"second interface", "direct", true},
	{"public address", "public", false}, {"elastic address", "elastic", false},
}

// TestCosts counts the calls of a creation and a deletion, once the image and
// the template are known, with the instance running at the first look.
func TestCosts(t *testing.T) {
	table := "| configuration | calls per creation | calls per deletion | what they are |\n|---|---|---|---|\n"
	for _, cost := range costs {
		s := newStand(t, optionsAtOnce)
		p := s.open(t, variants[cost.variant])
		create(t, p, "warm")
		s.World.ResetCalls()
		spec := specOf("k")
		spec.MultiNic = cost.second
		made, err := p.CreateInstance(t.Context(), "web", "k", userData, spec)
		if err != nil {
			t.Fatal(err)
		}
		creation, names := total(s.World.Calls())
		s.World.ResetCalls()
		if err := p.DeleteInstance(t.Context(), made.ID); err != nil {
			t.Fatal(err)
		}
		deletion, _ := total(s.World.Calls())
		table += fmt.Sprintf("| %s | %d | %d | %s |\n", cost.title, creation, deletion, names)
	}
	cloudsim.CheckDoc(t, page, "calls", table)
}

func total(calls map[string]int) (n int, names string) {
	var list []string
	for action, times := range calls {
		n += times
		name := strings.TrimPrefix(action, "ec2:")
		if times > 1 {
			name = fmt.Sprintf("%d %s", times, name)
		}
		list = append(list, name)
	}
	slices.Sort(list)
	return n, strings.Join(list, ", ")
}
