// SPDX-License-Identifier: Apache-2.0

package cloudsim

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// python is Debian's own, which has Debian's libraries; another may come first in
// PATH.
const python = "/usr/bin/python3"

// Client is one that is not ours, as a library for Python.
type Client struct {
	// Module is what is imported, Install the command that gets it.
	Module, Install string
	// Path is where it is, if not among Debian's.
	Path string
}

// Libcloud is Apache Libcloud, which knows several clouds.
var Libcloud = Client{Module: "libcloud", Install: "apt-get install -y --no-install-recommends python3-libcloud"}

// cache is looked up before Main changes the home folder.
var cache = cmp.Or(os.Getenv("OUTRIGGER_CACHE"),
	filepath.Join(cmp.Or(os.Getenv("XDG_CACHE_HOME"), filepath.Join(os.Getenv("HOME"), ".cache")), "outrigger"))

// Unpacked is where build/setup.sh unpacks Python libraries under a name.
func Unpacked(name string) string {
	return filepath.Join(cache, name, "usr", "lib", "python3", "dist-packages")
}

// Run runs testdata/client.py: it makes, lists, shows and deletes instances,
// which shows that a simulator is not shaped to our own client. The script says
// "ok" at its end. The test is skipped where the library is missing.
func (c Client) Run(t *testing.T, env []string, args ...string) {
	t.Helper()
	// No file of bytecode is to appear between the sources.
	env = append(append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH="+c.Path), env...)
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), python, args...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	if out, err := run("-c", "import "+c.Module); err != nil {
		t.Skipf("needs a client that is not ours; run: %s (%v: %s)", c.Install, err, out)
	}
	if out, err := run(append([]string{"testdata/client.py"}, args...)...); err != nil || out != "ok" {
		t.Fatalf("%v\n%s", err, out)
	}
}
