// SPDX-License-Identifier: Apache-2.0

// Package asked finds what a pod's owner or its node asks of a VM and the VM cannot do. Since the
// pod relies on it, it does not start.
package asked

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Folder is where process-user-data leaves what the node sent.
const Folder = "/run/peerpod"

// Files that ask for something, by name in [Folder].
const (
	Policy   = "policy.rego"
	Attester = "aa.toml"
	DataHub  = "cdh.toml"
	Scratch  = "scratch-space.marker"
)

var beyond = []struct {
	file  string
	empty bool // the file's existence counts, not its content
	what  string
}{
	{Policy, false, "initdata has a policy.rego, and this VM image enforces no policy: exec and all else would be allowed. Use an image with a policy engine, or leave the policy out"},
	{Attester, false, "initdata or the node configures an attestation agent (aa.toml), and this VM image has none. Use an image that attests, or leave it out"},
	{DataHub, false, "initdata or the node configures a confidential data hub (cdh.toml), and this VM image has none. Use an image that has one, or leave it out"},
	// PID 1 removes it when that is done, or writes why it cannot be.
	{Scratch, true, "the node asks for an encrypted scratch disk (-enable-scratch-space, ENABLE_SCRATCH_SPACE), and this VM has none: unset that, or use a VM image that can"},
}

// Check returns FailedPrecondition if a file in folder asks for what the VM cannot do. Can reports, for
// the name of a file, whether it can.
func Check(folder string, can func(file string) bool) error {
	for _, b := range beyond {
		data, err := os.ReadFile(filepath.Join(folder, b.file))
		text := bytes.TrimSpace(data)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !b.empty && len(text) == 0 || can(b.file) {
			continue
		}
		switch {
		case err != nil:
			return status.Errorf(codes.FailedPrecondition, "cannot read what the node asks of this VM: %v", err)
		case b.empty && len(text) > 0:
			return status.Errorf(codes.FailedPrecondition, "%s: %s", b.what, text)
		}
		return status.Error(codes.FailedPrecondition, b.what)
	}
	return nil
}
