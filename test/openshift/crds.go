// SPDX-License-Identifier: Apache-2.0

// Package openshift makes of a plain API server one that knows the kinds of
// OpenShift that a cloud controller manager's operator reads and writes. Their
// definitions come from OpenShift's Go module, which the module in the folder
// api pins apart from the product's.
package openshift

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/stand"
)

// definitions are the files of the module with the kinds. That of APIServer is
// the one which has all fields; the others are those of released clusters.
var definitions = []string{
	"config/v1/zz_generated.crd-manifests/0000_00_cluster-version-operator_01_clusteroperators.crd.yaml",
	"config/v1/zz_generated.crd-manifests/0000_00_cluster-version-operator_01_clusterversions-Default.crd.yaml",
	"config/v1/zz_generated.crd-manifests/0000_03_config-operator_01_proxies.crd.yaml",
	"config/v1/zz_generated.crd-manifests/0000_10_config-operator_01_infrastructures-Default.crd.yaml",
	"config/v1/zz_generated.crd-manifests/0000_10_config-operator_01_networks-Default.crd.yaml",
	"config/v1/zz_generated.crd-manifests/0000_10_config-operator_01_featuregates.crd.yaml",
	"config/v1/zz_generated.crd-manifests/0000_10_config-operator_01_apiservers-TechPreviewNoUpgrade.crd.yaml",
	"operator/v1/zz_generated.crd-manifests/0000_25_kube-controller-manager_01_kubecontrollermanagers.crd.yaml",
}

// CRDs returns the files with the definitions; the module is downloaded when it
// is not in the module cache yet.
func CRDs(t testing.TB) []string {
	t.Helper()
	dir, err := module()
	if err != nil {
		t.Fatalf("OpenShift's resource definitions: %v; run where modules can be downloaded: cd test/openshift/api && go mod download", err)
	}
	paths := make([]string, len(definitions))
	for i, d := range definitions {
		paths[i] = filepath.Join(dir, filepath.FromSlash(d))
		if _, err := os.Stat(paths[i]); err != nil {
			t.Fatalf("OpenShift's resource definitions: %v; the version in test/openshift/api/go.mod has other files than package openshift lists", err)
		}
	}
	return paths
}

// module returns where the module is in the module cache.
func module() (string, error) {
	cmd := exec.Command("go", "mod", "download", "-json", "github.com/openshift/api")
	cmd.Dir = filepath.Join(stand.Root(), "test", "openshift", "api")
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var found struct{ Dir, Error string }
	switch decodeErr := json.Unmarshal(out, &found); {
	case found.Error != "":
		return "", errors.New(found.Error)
	case err != nil:
		return "", errors.New(strings.TrimSpace(stderr.String() + " " + err.Error()))
	default:
		return found.Dir, decodeErr
	}
}

// Install makes the API server know the kinds and returns when it serves them.
func Install(t testing.TB, c *cluster.ControlPlane) {
	t.Helper()
	var files []string
	for _, path := range CRDs(t) {
		files = append(files, "--filename="+path)
	}
	// Not applied: what apply would note on some of them exceeds what an object
	// may carry.
	c.Kubectl(t, append([]string{"create"}, files...)...)
	c.Kubectl(t, append([]string{"wait", "--for=condition=Established", "--timeout=3m"}, files...)...)
}
