// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/alibabacloud"
)

const (
	page       = "../../docs/providers/alibabacloud.md"
	policyFile = overlay + "/ram-policy.json"
)

// policy is a RAM policy.
type policy struct {
	Version   string
	Statement []statement
}

type statement struct {
	Effect   string
	Action   []string
	Resource string
}

// policyActions returns what the policy allows.
func policyActions(t testing.TB) []string { return actionsIn(t, policyFile) }

func actionsIn(t testing.TB, file string) []string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var p policy
	if err := json.Unmarshal(data, &p); err != nil {
		t.Fatal(err)
	}
	var allowed []string
	for _, s := range p.Statement {
		allowed = append(allowed, s.Action...)
	}
	return allowed
}

// policyOf returns the policy that allows just these actions. Taking a role by
// a token needs none.
func policyOf(t testing.TB, actions []string) string {
	t.Helper()
	actions = slices.DeleteFunc(slices.Clone(actions), func(action string) bool { return strings.HasPrefix(action, "sts:") })
	data, err := json.MarshalIndent(policy{"1", []statement{{"Allow", actions, "*"}}}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data) + "\n"
}

// tour does all that the provider can, and returns every error.
func tour(t testing.TB, cfg Config) []error {
	cfg.KeyPair = sim.KeyPair
	cfg.VSwitchIDs, cfg.InstanceTypes = []string{sim.VSwitch, sim.OtherVSwitch}, []string{"ecs.g8i.*"}
	elastic := cfg
	elastic.UsePublicIP, elastic.PublicIP = true, publicEIP
	var errs []error
	for n, one := range []struct {
		cfg  Config
		spec provider.InstanceTypeSpec
	}{
		{cfg, provider.InstanceTypeSpec{VCPUs: 2, Memory: 4096, MultiNic: true}},
		{elastic, provider.InstanceTypeSpec{}},
	} {
		p := newProvider(t, one.cfg)
		errs = append(errs, p.ConfigVerifier())
		key := fmt.Sprintf("tour-%d", n)
		one.spec.Tags = cloudsim.OwnerTags(key)
		i, err := p.CreateInstance(t.Context(), "pod", key, cloudinit.Raw(""), one.spec)
		errs = append(errs, err)
		id := "i-2ze1w9aj2aonwckv64cw"
		if i != nil {
			id = i.ID
		}
		_, getErr := p.GetInstance(t.Context(), id)
		_, listErr := p.ListInstances(t.Context(), map[string]string{provider.TagKey: key})
		_, typesErr := p.InstanceTypes(t.Context())
		_, consoleErr := p.Console(t.Context(), id, 10)
		errs = append(errs, getErr, listErr, typesErr, consoleErr, p.PowerOff(t.Context(), id), p.PowerOn(t.Context(), id))
		errs = append(errs, p.DeleteInstance(t.Context(), id))
	}
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// everything is a tour without an error.
func everything(t testing.TB, c *sim.Cloud, cfg Config) {
	t.Helper()
	if errs := tour(t, cfg); len(errs) > 0 {
		t.Fatal(errors.Join(errs...))
	}
	wantNothing(t, c)
}

// TestPolicy writes the policy in the overlay and on the page from the calls of
// a tour.
func TestPolicy(t *testing.T) {
	c := newCloud(t, sim.Options{HeldByAddress: true})
	everything(t, c, settings(c))
	want := policyOf(t, slices.Sorted(maps.Keys(c.Calls())))
	got, err := os.ReadFile(policyFile)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if string(got) != want {
		if flag.Lookup("update").Value.String() != "true" {
			t.Errorf("%s is stale (go test with -update writes it); seen:\n%s", policyFile, want)
		} else if err := os.WriteFile(policyFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cloudsim.CheckDoc(t, page, "policy", "```json\n"+want+"```\n")
}

// inPolicy is asked of the calls of every test.
func inPolicy(t testing.TB, c *sim.Cloud) {
	t.Helper()
	if _, err := os.Stat(filepath.Clean(policyFile)); err != nil {
		return // TestPolicy says so
	}
	allowed := policyActions(t)
	for _, file := range []string{managerPolicyFile, volumesPolicyFile} {
		if _, err := os.Stat(file); err == nil { // TestManagerPolicy and TestVolumesPolicy say so
			allowed = append(allowed, actionsIn(t, file)...)
		}
	}
	for action := range c.Calls() {
		if !strings.HasPrefix(action, "sts:") && !slices.Contains(allowed, action) {
			t.Errorf("%s is called and not in the policy: it belongs into the tour of TestPolicy or of TestManagerPolicy", action)
		}
	}
}

// TestCalls writes how many calls things take into the documentation.
func TestCalls(t *testing.T) {
	var table strings.Builder
	table.WriteString("| what | calls |\n|---|---|\n")
	for _, test := range []struct {
		what   string
		change func(*Config, *provider.InstanceTypeSpec)
	}{
		{"an instance", func(*Config, *provider.InstanceTypeSpec) {}},
		{"with a public address of its own", func(c *Config, _ *provider.InstanceTypeSpec) { c.UsePublicIP = true }},
		{"with an EIP", func(c *Config, _ *provider.InstanceTypeSpec) { c.UsePublicIP, c.PublicIP = true, publicEIP }},
		{"with a second interface and an EIP", func(_ *Config, spec *provider.InstanceTypeSpec) { spec.MultiNic = true }},
	} {
		c := newCloud(t, sim.Options{Lag: time.Nanosecond})
		cfg := settings(c)
		var spec provider.InstanceTypeSpec
		test.change(&cfg, &spec)
		warm := newProvider(t, cfg)
		mustDelete(t, warm, mustCreate(t, warm, "warm", spec).ID)
		c.ResetCalls()
		i := mustCreate(t, warm, "calls", spec)
		fmt.Fprintf(&table, "| create %s | %s |\n", test.what, calls(c))
		mustDelete(t, warm, i.ID)
		fmt.Fprintf(&table, "| delete it | %s |\n", calls(c))
		i = mustCreate(t, warm, "calls-2", spec)
		c.ResetCalls()
		mustDelete(t, newProvider(t, cfg), i.ID)
		fmt.Fprintf(&table, "| delete it from another process | %s |\n", calls(c))
	}
	c := newCloud(t, sim.Options{})
	for range 250 {
		c.AddForeign(cloudsim.OwnerTags("many"))
	}
	if _, err := newProvider(t, settings(c)).ListInstances(t.Context(), map[string]string{provider.TagKey: "many"}); err != nil {
		t.Error(err)
	}
	fmt.Fprintf(&table, "| list 250 instances | %s |\n", calls(c))
	cloudsim.CheckDoc(t, page, "calls", table.String())
}

func mustDelete(t testing.TB, p *Provider, id string) {
	t.Helper()
	if err := p.DeleteInstance(t.Context(), id); err != nil {
		t.Fatal(err)
	}
}

// calls returns what was called since it was asked last.
func calls(c *sim.Cloud) string {
	seen := c.Calls()
	c.ResetCalls()
	var parts []string
	for _, action := range slices.Sorted(maps.Keys(seen)) {
		_, name, _ := strings.Cut(action, ":")
		parts = append(parts, fmt.Sprintf("%d `%s`", seen[action], name))
	}
	return strings.Join(parts, ", ")
}
