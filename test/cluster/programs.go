// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/test/stand"
)

// Programs returns the folder with etcd, kube-apiserver, kubectl and so on; it
// serves as KUBEBUILDER_ASSETS too. `make test` has built them before.
func Programs(t testing.TB) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(stand.Root(), "test", "kube.sh"))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the Kubernetes programs: %v; run: make kube", err)
	}
	return strings.TrimSpace(string(out))
}
