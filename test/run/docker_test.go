// SPDX-License-Identifier: Apache-2.0

//go:build integration

package run

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/test/dockerd"
	"github.com/outrigger/outrigger/test/stand"
)

// TestRunOnDocker: pods in containers, for a machine without a hypervisor. No
// container is privileged.
func TestRunOnDocker(t *testing.T) {
	c := newCLI(t)
	// The engine leaves its bridge, which is not outrigger's.
	t.Cleanup(func() { stand.Run(t, "ip", "link", "delete", "docker0") })
	e := dockerd.Start(t)
	e.LoadGuest(t)
	outside(t)
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "f"), []byte("content\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_HOST", e.Host)
	for name, row := range map[string]struct {
		flags          []string
		script, stdout string
		code           int
	}{
		"exit code":      {nil, "echo out; exit 3", "out\n", 3},
		"standard input": {[]string{"-i"}, "cat", "data\n", 0},
		"memory limit":   {[]string{"--memory", "32MiB"}, "echo up; exec tail /dev/zero", "up\n", 137},
		"network":        {nil, "nc " + outsideV4 + " 7002 </dev/null | head -c 10000000 | wc -c", "10000000\n", 0},
		"settings": {
			[]string{"--hostname", "web", "--user", "1000:1000", "--cpus", "0.5", "--mount", "type=tmpfs,target=/t", "--mount", "type=bind,source=" + folder + ",target=/b"},
			"hostname; id -u; echo $$; cat /b/f", "web\n1000\n1\ncontent\n", 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"run", "--provider", "docker"}, row.flags...)
			stdout, stderr, code := c.run(t, "data\n", append(args, c.image, "--", "sh", "-c", row.script)...)
			if code != row.code || stdout != row.stdout {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
			}
			if left, err := e.Containers(); err != nil || len(left) > 0 {
				t.Errorf("left: %q, %v", strings.Join(left, " "), err)
			}
		})
	}
}
