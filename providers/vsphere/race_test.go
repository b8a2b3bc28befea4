// SPDX-License-Identifier: Apache-2.0

//go:build race

package vsphere

import (
	"os/exec"
	"testing"
)

// TestWithoutRaceDetector runs this package's tests in a process without the
// race detector. vcsim has races of its own (a datastore is read without its
// lock while another VM is destroyed), which fail tests that find nothing.
func TestWithoutRaceDetector(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "test", "-count=1", ".").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
