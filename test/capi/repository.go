// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Repository is where clusterctl finds providers, a folder for each.
type Repository struct {
	programs, config, ours string
	providers              []entry
}

type entry struct {
	Name string `json:"name"`
	URL  string `json:"url"`
	Type string `json:"type"`
}

// variables are those of components and templates: the features that the tests
// use, and the provider that our manager loads.
var variables = []string{"CLUSTER_TOPOLOGY=true", "EXP_MACHINE_POOL=true", "OUTRIGGER_PROVIDER=fake"}

// NewRepository returns one with core and the kubeadm providers.
func NewRepository(t testing.TB) *Repository {
	t.Helper()
	r := &Repository{programs: Programs(t), config: filepath.Join(t.TempDir(), "clusterctl.yaml")}
	base := filepath.Join(r.programs, "providers")
	r.add(t, "cluster-api", "CoreProvider", latest(t, base, "cluster-api", "core-components.yaml"))
	r.add(t, "kubeadm", "BootstrapProvider", latest(t, base, "bootstrap-kubeadm", "bootstrap-components.yaml"))
	r.add(t, "kubeadm", "ControlPlaneProvider", latest(t, base, "control-plane-kubeadm", "control-plane-components.yaml"))
	return r
}

// Infrastructure adds an infrastructure provider by the path of its
// infrastructure-components.yaml, which lies in
// .../infrastructure-NAME/VERSION.
func (r *Repository) Infrastructure(t testing.TB, name, components string) {
	t.Helper()
	r.add(t, name, "InfrastructureProvider", components)
}

func (r *Repository) add(t testing.TB, name, kind, components string) {
	t.Helper()
	if _, err := os.Stat(components); err != nil {
		t.Fatalf("the provider %s: %v", name, err)
	}
	r.providers = append(r.providers, entry{name, components, kind})
	data, err := yaml.Marshal(map[string]any{
		"providers":    r.providers,
		"cert-manager": map[string]any{"externallyProvisioned": true, "timeout": "30s"},
	})
	must(t, err, "write clusterctl's configuration")
	must(t, os.WriteFile(r.config, data, 0o600), "write clusterctl's configuration")
}

// latest returns the file of the only version there is.
func latest(t testing.TB, base, provider, file string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(base, provider, "v*", file))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s of %s in %s: found %s, %v", file, provider, base, strings.Join(found, ", "), err)
	}
	return found[0]
}

// Config is the file of clusterctl's configuration.
func (r *Repository) Config() string { return r.config }

// Env are the variables of clusterctl, as a program or as a library.
func (r *Repository) Env() []string {
	return append([]string{"GOPROXY=off", "CLUSTERCTL_DISABLE_VERSIONCHECK=true"}, variables...)
}
