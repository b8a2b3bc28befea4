// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// TestWhatIsAskedAndCannotBeGiven: a pod that relies on a policy, attestation or
// encryption does not start without.
func TestWhatIsAskedAndCannotBeGiven(t *testing.T) {
	for file, content := range map[string]string{
		"policy.rego": "package agent_policy\n", "aa.toml": "[token_configs]\n", "cdh.toml": "socket = 'x'\n", "scratch-space.marker": "",
	} {
		t.Run(file, func(t *testing.T) {
			a, _ := specAgent(t)
			a.cfg.Provisioned = t.TempDir()
			if err := os.WriteFile(filepath.Join(a.cfg.Provisioned, file), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := a.CreateSandbox(t.Context(), &agent.CreateSandboxRequest{SandboxId: "s"})
			if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), strings.Split(file, "-")[0]) {
				t.Errorf("error %v", err)
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
