// SPDX-License-Identifier: Apache-2.0

//go:build integration

package docker

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestDockersOwnClient lives through the life of a container: the simulator is
// not shaped to our own client.
func TestDockersOwnClient(t *testing.T) {
	program, err := exec.LookPath("docker")
	if err != nil {
		t.Skipf("%v: needs Docker's client; run: apt-get install -y --no-install-recommends docker.io", err)
	}
	e := Start(t, "1.41")
	docker := func(want string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = append(os.Environ(), "DOCKER_HOST="+e.Host)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Fatalf("docker %q: %v: %s: want %s", args, err, out, want)
		}
	}
	docker("", "create", "-t", "--name", "web", "--label", "a=b", "--memory", "64m", Image)
	docker("web", "ps", "--all", "--filter", "label=a=b")
	docker("web", "start", "web")
	docker("running 172.17.", "inspect", "--type", "container", "--format", "{{.State.Status}} {{.NetworkSettings.Networks.bridge.IPAddress}}", "web")
	docker("The guest has booted.", "logs", "web")
	docker("web", "rm", "--force", "--volumes", "web")
	if left := e.World.Own(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
