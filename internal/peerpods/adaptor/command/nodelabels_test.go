// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/outrigger/outrigger/provider"
	providerconfig "github.com/outrigger/outrigger/provider/config"
)

// TestSettingsFromTheNode: a provider's setting that is not set comes from a label
// of the node, also at a start while the API server is unreachable.
func TestSettingsFromTheNode(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.URL.Path != "/api/v1/nodes/worker" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "worker", "labels": {"zone": "z1", "hostname": "worker"}}}`)
	}))
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	text := fmt.Sprintf(`{"current-context": "a", "contexts": [{"name": "a", "context": {"cluster": "a"}}], "clusters": [{"name": "a", "cluster": {"server": %q}}]}`, server.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	type zoned struct {
		Zone string `env:"OUTRIGGER_TEST_ZONE" label:"zone" usage:"zone"`
	}
	env := map[string]string{"NODE_NAME": "worker", "KUBECONFIG": kubeconfig}
	open := func() (zone string) {
		t.Helper()
		d := &daemon{
			cfg: &settings{PodsDir: filepath.Join(dir, "pods"), NodeName: "worker"}, log: slog.New(slog.DiscardHandler),
			getenv: func(name string) string { return env[name] },
		}
		cloud := providerconfig.New("t", func(c zoned) (provider.Provider, error) {
			zone = c.Zone
			return struct{ provider.Provider }{}, nil
		})
		if _, err := d.open(t.Context(), cloud); err != nil {
			t.Fatal(err)
		}
		return zone
	}
	if zone := open(); zone != "z1" || asked != 1 {
		t.Errorf("zone %q after %d requests", zone, asked)
	}
	t.Setenv("OUTRIGGER_TEST_ZONE", "z2")
	if zone := open(); zone != "z2" || asked != 1 {
		t.Errorf("with the variable: zone %q after %d requests", zone, asked)
	}
	os.Unsetenv("OUTRIGGER_TEST_ZONE")
	server.Close()
	if zone := open(); zone != "z1" {
		t.Errorf("while the API server is away: zone %q", zone)
	}
	env["NODE_NAME"] = ""
	if zone := open(); zone != "" {
		t.Errorf("outside of a cluster: zone %q", zone)
	}
}
