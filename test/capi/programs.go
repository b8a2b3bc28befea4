// SPDX-License-Identifier: Apache-2.0

// Package capi starts management clusters of Cluster API for tests: a real API
// server, installed by the real clusterctl from a repository of folders, and
// core, kubeadm bootstrap provider, kubeadm control plane provider and ours as
// processes on the loopback address, with the permissions that their manifests
// give them. Machines are those of a simulated cloud in a folder
// ([Cloud]), and what boots on them is simulated by a process of its own. It
// needs neither root nor a container.
//
// There is no kubelet: a Deployment stays an object, and [Management.Run] does
// what it asks for. There is no cert-manager either, so the package says to the
// API server where webhooks are.
package capi

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/outrigger/outrigger/test/stand"
)

// programs is built once for all tests of a process.
var programs = sync.OnceValues(func() (string, error) {
	cmd := exec.Command(filepath.Join(stand.Root(), "test", "capi.sh"))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
})

// Programs returns the folder with core, kubeadm-bootstrap,
// kubeadm-control-plane, clusterctl, capd and workload, and in providers/ the
// releases of the first three. `make test` has built them before.
func Programs(t testing.TB) string {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatalf("the Cluster API programs: %v; run: make capi", err)
	}
	return dir
}

func must(t testing.TB, err error, what string) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
