// SPDX-License-Identifier: Apache-2.0

package kataguest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/guest/asked"
)

// testGuest returns a VM with programs and with what the node sent, by file name.
func testGuest(t *testing.T, programs []string, provisioned map[string]string) *Guest {
	t.Helper()
	g := &Guest{Programs: t.TempDir(), Provisioned: t.TempDir()}
	for _, name := range programs {
		provide(t, filepath.Join(g.Programs, name), "")
	}
	for name, text := range provisioned {
		provide(t, filepath.Join(g.Provisioned, name), text)
	}
	return g
}

func provide(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

var everything = []string{Agent, AttestationAgent, DataHub, APIServer}

func TestServices(t *testing.T) {
	const hub, attester = "/run/confidential-containers/cdh.sock", "/run/confidential-containers/attestation-agent/attestation-agent.sock"
	agent := Service{Argv: []string{"B/kata-agent", "--config", "/etc/agent-config.toml"}, Socket: "/run/kata-containers/agent.sock"}
	agentAfterHub := agent
	agentAfterHub.After = []string{hub}
	rest := Service{Argv: []string{"B/api-server-rest", "--features", "all"}, After: []string{hub, "/run/netns/podns"}, Namespace: "/run/netns/podns"}
	for name, c := range map[string]struct {
		programs    []string
		provisioned map[string]string
		want        []Service
	}{
		"agent alone": {[]string{Agent}, nil, []Service{agent}},
		"all, configured": {everything, map[string]string{"aa.toml": "[a]", "cdh.toml": "[b]", "auth.json": "{}"}, []Service{
			{Argv: []string{"B/attestation-agent", "-c", "P/aa.toml"}, Socket: attester},
			{Argv: []string{"B/confidential-data-hub", "-c", "P/cdh.toml"}, After: []string{attester}, Socket: hub,
				Env: []string{"CDH_DEFAULT_IMAGE_AUTHENTICATED_REGISTRY_CREDENTIALS=file://P/auth.json"}},
			rest, agentAfterHub,
		}},
		"all, with empty initdata": {everything, map[string]string{"aa.toml": ""}, []Service{
			{Argv: []string{"B/attestation-agent"}, Socket: attester}, {Argv: []string{"B/confidential-data-hub"}, After: []string{attester}, Socket: hub}, rest, agentAfterHub,
		}},
		"no attestation agent": {[]string{Agent, DataHub}, nil, []Service{{Argv: []string{"B/confidential-data-hub"}, Socket: hub}, agentAfterHub}},
	} {
		t.Run(name, func(t *testing.T) {
			g := testGuest(t, c.programs, c.provisioned)
			got := g.Services()
			short := strings.NewReplacer(g.Programs, "B", g.Provisioned, "P")
			for _, s := range got {
				for _, list := range [][]string{s.Argv, s.Env} {
					for i := range list {
						list[i] = short.Replace(list[i])
					}
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestWhatIsAskedNeedsAComponent: each way of asking, with the component and without.
func TestWhatIsAskedNeedsAComponent(t *testing.T) {
	for name, c := range map[string]struct {
		file, text string
		programs   []string
		enforces   bool
		want       string
	}{
		"attestation agent":        {asked.Attester, "[a]", everything, false, ""},
		"no attestation agent":     {asked.Attester, "[a]", []string{Agent, DataHub}, true, "attestation agent (aa.toml), and this VM image has none"},
		"data hub":                 {asked.DataHub, "[b]", everything, false, ""},
		"no data hub":              {asked.DataHub, "[b]", []string{Agent, AttestationAgent}, true, "confidential data hub (cdh.toml), and this VM image has none"},
		"policy":                   {asked.Policy, "package agent_policy", everything, true, ""},
		"no policy":                {asked.Policy, "package agent_policy", everything, false, "this VM image enforces no policy"},
		"scratch was encrypted":    {"other", "", everything, true, ""},
		"scratch is not encrypted": {asked.Scratch, "why", everything, true, "encrypted scratch disk"},
		"empty entry":              {asked.DataHub, "\n", []string{Agent}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := testGuest(t, c.programs, map[string]string{c.file: c.text})
			err := g.CheckAsked(func() bool { return c.enforces })
			if c.want == "" && err != nil || c.want != "" && (status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestPolicyOfThePodReplacesTheImages(t *testing.T) {
	for name, c := range map[string]struct {
		provisioned map[string]string
		want        string
	}{
		"none":  {nil, "image's"},
		"empty": {map[string]string{asked.Policy: " \n"}, "image's"},
		"pod's": {map[string]string{asked.Policy: "package agent_policy"}, "package agent_policy"},
	} {
		t.Run(name, func(t *testing.T) {
			g := testGuest(t, nil, c.provisioned)
			file := filepath.Join(t.TempDir(), "default-policy.rego")
			provide(t, file, "image's")
			if err := g.installPolicy(file); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(file); string(got) != c.want {
				t.Errorf("policy %q, %v, want %q", got, err, c.want)
			}
		})
	}
	unreadable := testGuest(t, nil, nil)
	if err := os.Mkdir(filepath.Join(unreadable.Provisioned, asked.Policy), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unreadable.installPolicy(filepath.Join(t.TempDir(), "x")); err == nil {
		t.Error("a policy that cannot be read was passed over")
	}
}
