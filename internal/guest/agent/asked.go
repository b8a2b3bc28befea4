// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// DefaultProvisioned is where process-user-data leaves what the node sent.
const DefaultProvisioned = "/run/peerpod"

// beyond lists files that request a feature which this agent does not have. Since the
// pod relies on the feature, it does not start.
var beyond = []struct {
	file  string
	empty bool // the file's existence counts, not its content
	what  string
}{
	{policyFile, false, "initdata has a policy.rego, and this VM image enforces no policy: exec and all else would be allowed. Use an image with a policy engine, or leave the policy out"},
	{"aa.toml", false, "initdata or the node configures an attestation agent (aa.toml), and this VM image has none. Use an image that attests, or leave it out"},
	{"cdh.toml", false, "initdata or the node configures a confidential data hub (cdh.toml), and this VM image has none. Use an image that has one, or leave it out"},
	// PID 1 removes it when that is done, or writes why it cannot be.
	{"scratch-space.marker", true, "the node asks for an encrypted scratch disk (-enable-scratch-space, ENABLE_SCRATCH_SPACE), and this VM has none: unset that, or use a VM image that can"},
}

// checkAsked returns an error if the node asked for something that this agent
// does not have.
func (a *Agent) checkAsked() error {
	for _, b := range beyond {
		if b.file == policyFile && PolicyEngine != nil || strings.HasSuffix(b.file, ".toml") && NewConfidential != nil {
			continue // see govern and openConfidential
		}
		data, err := os.ReadFile(filepath.Join(a.cfg.Provisioned, b.file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return status.Errorf(codes.FailedPrecondition, "cannot read what the node asks of this VM: %v", err)
		}
		text := bytes.TrimSpace(data)
		switch {
		case b.empty && len(text) > 0:
			return status.Errorf(codes.FailedPrecondition, "%s: %s", b.what, text)
		case b.empty || len(text) > 0:
			return status.Error(codes.FailedPrecondition, b.what)
		}
	}
	return nil
}
