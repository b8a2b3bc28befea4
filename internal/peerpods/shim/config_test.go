// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func load(t *testing.T, text string, env map[string]string) (*Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shim.toml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return LoadConfig(path, func(key string) string { return env[key] })
}

// A file for the Kata shim does for this one.
const kataFile = `[hypervisor.remote]
remote_hypervisor_socket = "/run/x/hypervisor.sock"
remote_hypervisor_timeout = 300
enable_annotations = ["machine_type"]
default_bridges = 1
[agent.kata]
kernel_modules = []
[runtime]
internetworking_model = "none"
static_sandbox_resource_mgmt = false
disable_guest_seccomp = true
create_container_timeout = 90
`

func TestConfigOfKata(t *testing.T) {
	c, err := load(t, kataFile, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Hypervisor.Remote.Socket != "/run/x/hypervisor.sock" || c.Hypervisor.Remote.Timeout != 300 ||
		c.Runtime.StaticSizing || !c.Runtime.DisableGuestSeccomp || c.Runtime.CreateTimeout != 90 || c.Outrigger.CopyLimitMiB != 128 {
		t.Errorf("%+v", c)
	}
	if diff := cmp.Diff([]string{"machine_type"}, c.Hypervisor.Remote.EnableAnnotations); diff != "" {
		t.Error(diff)
	}
	if got := strings.Join(c.Ignored, " "); !strings.Contains(got, "hypervisor.remote.default_bridges") || !strings.Contains(got, "runtime.internetworking_model") {
		t.Errorf("ignored keys: %s", got)
	}
}

func TestConfigDefaults(t *testing.T) {
	c, err := load(t, "", map[string]string{SocketVar: "/run/y.sock"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Hypervisor.Remote.Socket != "/run/y.sock" || !c.Runtime.StaticSizing || c.Hypervisor.Remote.Timeout != 600 {
		t.Errorf("%+v", c)
	}
}

func TestConfigErrors(t *testing.T) {
	for text, want := range map[string]string{
		"[hypervisor.remote]\nremote_hypervisor_socket = \"rel.sock\"": "not an absolute path",
		"[hypervisor.remote]\nremote_hypervisor_timeout = 0":           "remote_hypervisor_timeout",
		"[hypervisor.remote]\nremote_hypervisor_timeout = \"x\"":       "remote_hypervisor_timeout",
		"[hypervisor.remote]\ndefault_vcpus = -1":                      "default_vcpus",
		"[runtime]\nunknown = 1\ncreate_container_timeout = -1":        "create_container_timeout",
		"[outrigger]\ncopy_limit_mib = 0":                              "copy_limit_mib",
		"[outrigger]\nstop_timeout = 0":                                "stop_timeout",
		"[runtime":                                                     "shim.toml",
	} {
		if _, err := load(t, text, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
	if _, err := LoadConfig("/nowhere/shim.toml", func(string) string { return "" }); err == nil || !strings.Contains(err.Error(), "ConfigPath") {
		t.Errorf("a missing file that was named: %v", err)
	}
}
