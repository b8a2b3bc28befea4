// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/provider/plugin"
	"github.com/outrigger/outrigger/provider/serve"
)

// TestMain makes this binary a process plugin when the host of one starts it.
func TestMain(m *testing.M) {
	if os.Getenv("OUTRIGGER_PLUGIN_SOCKET") != "" {
		serve.Main("plugged", config.New("plugged", openPlugged))
	}
	goleak.VerifyTestMain(m)
}

type pluggedConfig struct {
	Dir   string        `flag:"plugged-dir" env:"PLUGGED_DIR" required:"true" usage:"folder of the cloud"`
	Token config.Secret `env:"PLUGGED_TOKEN" required:"true" usage:"token"`
}

func openPlugged(c pluggedConfig) (provider.Provider, error) {
	return fake.New(fake.Options{Dir: c.Dir})
}

// TestProcessPlugin: a provider from outside, found and configured by keys of
// the ConfigMap alone, and reconfigured while it runs.
func TestProcessPlugin(t *testing.T) {
	folder, dir := t.TempDir(), t.TempDir()
	if out, err := exec.Command("cp", os.Args[0], filepath.Join(folder, "plugged")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c := New(Options{
		Owner: map[string]string{provider.TagCluster: "c1"}, ListInterval: time.Millisecond,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Getenv: func(name string) string {
			if name == "PLUGGED_DIR" || name == "PLUGGED_TOKEN" {
				t.Errorf("%s was looked for in the environment", name)
			}
			return os.Getenv(name)
		},
	})
	defer c.Close()
	for _, token := range []string{"first", "second"} {
		changed, err := c.Configure(NewSettings("the ConfigMap", map[string]string{
			plugin.FolderVariable: folder, "CLOUD_PROVIDER": "plugged", "PLUGGED_DIR": dir, "PLUGGED_TOKEN": token,
		}))
		if err != nil || len(changed) != 1 {
			t.Fatalf("%s: %v, %v", token, changed, err)
		}
		p, err := c.Get("")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Fresh(context.Background(), time.Now()); err != nil || !p.CanList() || !p.CanGet() {
			t.Errorf("%s: %v, list %v, get %v", token, err, p.CanList(), p.CanGet())
		}
		if err := p.Delete(t.Context(), "fake-000001"); err != nil {
			t.Error(err)
		}
	}
}
