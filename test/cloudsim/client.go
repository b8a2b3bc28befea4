// SPDX-License-Identifier: Apache-2.0

package cloudsim

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// python is Debian's own, which has Debian's libraries; another may come first in
// PATH.
const python = "/usr/bin/python3"

// RunClient runs testdata/client.py: a client that is not ours makes, lists,
// shows and deletes an instance, which shows that a simulator is not shaped to
// our own. The script says "ok" at its end. The test is skipped where its
// library is missing, which a Debian package has.
func RunClient(t *testing.T, library, debian string, env []string, args ...string) {
	t.Helper()
	if out, err := exec.Command(python, "-c", "import "+library).CombinedOutput(); err != nil {
		t.Skipf("needs a client that is not ours; run: apt-get install -y --no-install-recommends %s (%v: %s)", debian, err, out)
	}
	cmd := exec.CommandContext(t.Context(), python, append([]string{"testdata/client.py"}, args...)...)
	// No file of bytecode is to appear between the sources.
	cmd.Env = append(append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1"), env...)
	out, err := cmd.CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "ok" {
		t.Fatalf("%v\n%s", err, out)
	}
}
