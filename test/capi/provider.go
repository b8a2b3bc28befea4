// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/stand"
)

// What our provider is called, by clusterctl and on its objects.
const (
	Name  = "outrigger"
	Label = "infrastructure-" + Name
)

// Ours is the program of our provider, which makes OutriggerMachines in a
// cloud.
func (c *Cloud) Ours(t testing.TB, args ...string) Program {
	t.Helper()
	return Program{Path: stand.Binary(t, "capi-manager"), Args: args, Env: c.Env(t)}
}

// Release makes a release of our provider as `make release` does, adds it to
// the repository as a version, and offers the provider if it is the first.
func (r *Repository) Release(t testing.TB, version string) {
	t.Helper()
	if r.ours == "" {
		r.ours = t.TempDir()
	}
	// The only thing it wants of kustomize is what kubectl has too.
	kustomize := filepath.Join(t.TempDir(), "kustomize")
	script := "#!/bin/sh\nshift\nexec '" + filepath.Join(cluster.Programs(t), "kubectl") + "' kustomize \"$@\"\n"
	must(t, os.WriteFile(kustomize, []byte(script), 0o700), "write kustomize")
	make := exec.Command(stand.Binary(t, "capi-release"), "-version", version, "-prefix", "registry.example/outrigger",
		"-kustomize", kustomize, "-output", r.ours, stand.Binary(t, "capi-manager"))
	make.Dir = stand.Root()
	if out, err := make.CombinedOutput(); err != nil {
		t.Fatalf("make a release: %v\n%s", err, out)
	}
	for _, e := range r.providers {
		if e.Name == Name {
			return
		}
	}
	r.Infrastructure(t, Name, filepath.Join(r.ours, Label, version, "infrastructure-components.yaml"))
}

// Folder is the folder of a release of ours.
func (r *Repository) Folder(version string) string { return filepath.Join(r.ours, Label, version) }

// Wanted is a cluster to generate from a template of our release.
type Wanted struct {
	Name, Namespace, Flavor, Version string
	// Port is that of the control plane's endpoint on the loopback address.
	Port                   string
	ControlPlanes, Workers int
}

// Generate returns what clusterctl makes of the template.
func (m *Management) Generate(t testing.TB, w Wanted) string {
	t.Helper()
	out, err := m.TryClusterctl(w.env(), "generate", "cluster", w.Name, "--infrastructure", Name, "--flavor", w.Flavor, "--target-namespace", w.Namespace,
		"--kubernetes-version", w.Version, "--control-plane-machine-count", strconv.Itoa(w.ControlPlanes), "--worker-machine-count", strconv.Itoa(w.Workers))
	must(t, err, "generate a cluster")
	return out
}

func (w *Wanted) env() []string {
	return []string{"CONTROL_PLANE_ENDPOINT_HOST=127.0.0.1", "CONTROL_PLANE_ENDPOINT_PORT=" + w.Port}
}
