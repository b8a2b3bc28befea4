// SPDX-License-Identifier: Apache-2.0

//go:build integration

package aws

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// TestAnotherClient shows that the simulator is not shaped to our own client:
// Amazon's for Python signs, writes and reads by itself.
func TestAnotherClient(t *testing.T) {
	if out, err := exec.Command("python3", "-c", "import botocore").CombinedOutput(); err != nil {
		t.Skipf("needs Amazon's client for Python; run: apt-get install -y python3-botocore (%v: %s)", err, out)
	}
	c := New(t, Options{Pending: time.Millisecond, Stopping: time.Millisecond, Ending: time.Millisecond, Page: 5})
	server := cloudsim.Serve(t, c.Handler())
	cmd := exec.CommandContext(t.Context(), "python3", "testdata/client.py", server.URL, server.CAFile, AMI, SubnetA, Group)
	cmd.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID="+KeyID, "AWS_SECRET_ACCESS_KEY="+Secret, "AWS_DEFAULT_REGION="+Region)
	out, err := cmd.CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "ok" {
		t.Fatalf("%v\n%s", err, out)
	}
	if v := c.World.Violations(); len(v) > 0 {
		t.Error(v)
	}
}
