// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"os"
	"path/filepath"
	"testing"
)

// kindSite is a stand-in for kind and Docker, which do not run here.
func kindSite(_ *testing.T, w *walk) walkSite {
	return walkSite{
		page:  "quickstart-kind.md",
		blind: true,
		left:  func() []string { return nil },
		// What is imported has to be an archive for the node of that cluster.
		shell: `
sudo() { [ "$1 $2" = "modprobe -a" ]; }
docker() { [ "$*" = "exec -i outrigger-control-plane ctr -n k8s.io images import -" ] && tar -tf - >>imported; }
`,
		tools: map[string][]answer{"kind": {
			{words: "create cluster --name outrigger", makes: "cluster"},
			{words: "delete cluster --name outrigger", removes: "cluster", says: func(map[string]string) (string, error) {
				_, err := os.Stat(filepath.Join(w.dir, "imported"))
				return "", err
			}},
		}},
	}
}

// TestKindQuickStartFollowed: the commands install what the chart makes for QEMU, start a
// pod of its class, and lead back.
func TestKindQuickStartFollowed(t *testing.T) {
	w := follow(t, "qemu", kindSite)
	if w.objects != nil || len(w.pods) > 0 || len(w.made) > 0 {
		t.Errorf("the page does not lead back: pods %v, made %q", w.pods, w.made)
	}
	if w.open["CLOUD_PROVIDER"] != "qemu" {
		t.Errorf("the settings are %v", w.open)
	}
}
