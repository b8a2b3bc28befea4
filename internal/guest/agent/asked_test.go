// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/guest/unseal"
	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/outrigger/outrigger/internal/protocol/guest"
)

// TestWhatIsAskedAndCannotBeGiven: a pod that relies on a policy, attestation or
// encryption does not start without.
func TestWhatIsAskedAndCannotBeGiven(t *testing.T) {
	file := func(name, content string) func(*testing.T, *Agent) error {
		return func(t *testing.T, a *Agent) error {
			if err := os.WriteFile(filepath.Join(a.cfg.Provisioned, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := a.CreateSandbox(t.Context(), &agent.CreateSandboxRequest{SandboxId: "s"})
			return err
		}
	}
	const sealed = "sealed.a.b.c"
	for name, c := range map[string]struct {
		ask  func(*testing.T, *Agent) error
		code codes.Code
		want string
	}{
		"policy of the initdata": {file("policy.rego", "package agent_policy\n"), codes.FailedPrecondition, "policy.rego"},
		"policy of an annotation": {func(t *testing.T, a *Agent) error {
			_, err := a.SetPolicy(t.Context(), &agent.SetPolicyRequest{Policy: "package agent_policy"})
			return err
		}, codes.Unimplemented, "policy enforcement is not available"},
		"attestation":            {file("aa.toml", "[token_configs]\n"), codes.FailedPrecondition, "aa.toml"},
		"key broker":             {file("cdh.toml", "[kbc]\nname = 'cc_kbc'\n"), codes.FailedPrecondition, "cdh.toml"},
		"signed images":          {file("cdh.toml", "[image]\nimage_security_policy_uri = 'kbs:///default/policy/1'\n"), codes.FailedPrecondition, "cdh.toml"},
		"encrypted scratch disk": {file("scratch-space.marker", ""), codes.FailedPrecondition, "scratch"},
		"sealed variable": {func(t *testing.T, a *Agent) error {
			return fail(codes.FailedPrecondition, a.unsealEnv(t.Context(), newContainer("c", t.TempDir()), []string{"KEY=" + sealed}))
		}, codes.FailedPrecondition, "variable KEY: a sealed Secret, which this VM image cannot open"},
		"sealed file": {func(t *testing.T, a *Agent) error {
			_, err := a.CopyFile(t.Context(), &agent.CopyFileRequest{Path: sharedFolder + "/volume/key", Data: []byte(sealed), FileSize: int64(len(sealed))})
			return err
		}, codes.FailedPrecondition, "a sealed Secret, which this VM image cannot open"},
		"sealed key of a volume": {func(t *testing.T, a *Agent) error {
			socket := filepath.Join(t.TempDir(), "agent.sock")
			if err := a.serveUnseal(t.Context(), socket); err != nil {
				t.Fatal(err)
			}
			_, err := unseal.Ask(t.Context(), unseal.Beside(socket), []byte(sealed))
			if !errors.Is(err, unseal.ErrImage) {
				t.Errorf("error %v, want that of the image", err)
			}
			return fail(codes.FailedPrecondition, err)
		}, codes.FailedPrecondition, "a sealed Secret, which this VM image cannot open"},
		"evidence": {func(t *testing.T, a *Agent) error {
			_, err := a.Attestation(t.Context(), &guest.AttestationRequest{})
			return err
		}, codes.Unimplemented, "does not attest"},
	} {
		t.Run(name, func(t *testing.T) {
			a, _ := specAgent(t)
			a.cfg.Provisioned = t.TempDir()
			if err := c.ask(t, a); status.Code(err) != c.code || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %s, %q", err, c.code, c.want)
			}
		})
	}
}

// TestReasonOfNoEncryption: what PID 1 wrote is in the error.
func TestReasonOfNoEncryption(t *testing.T) {
	a, _ := specAgent(t)
	a.cfg.Provisioned = t.TempDir()
	if err := os.WriteFile(filepath.Join(a.cfg.Provisioned, "scratch-space.marker"), []byte("no such cipher\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := a.checkAsked(); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "encrypted scratch disk") || !strings.HasSuffix(err.Error(), ": no such cipher") {
		t.Errorf("error %v", err)
	}
}

// TestUnreadableIsNotEmpty: what cannot be read may ask for anything.
func TestUnreadableIsNotEmpty(t *testing.T) {
	a, _ := specAgent(t)
	a.cfg.Provisioned = t.TempDir()
	if err := os.Mkdir(filepath.Join(a.cfg.Provisioned, "policy.rego"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := a.checkAsked(); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("error %v", err)
	}
}

// TestEmptyFilesAskForNothing: a VM without initdata gets them.
func TestEmptyFilesAskForNothing(t *testing.T) {
	a, _ := specAgent(t)
	a.cfg.Provisioned = t.TempDir()
	for _, file := range []string{"policy.rego", "aa.toml", "cdh.toml"} {
		if err := os.WriteFile(filepath.Join(a.cfg.Provisioned, file), []byte("\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.checkAsked(); err != nil {
		t.Error(err)
	}
}
