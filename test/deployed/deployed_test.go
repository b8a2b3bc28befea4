// SPDX-License-Identifier: Apache-2.0

package deployed

import (
	"strings"
	"testing"

	"github.com/outrigger/outrigger/test/cluster"
)

// TestOwnFolders: no folder of the machine is left, however the renderer sorts
// the keys of a volume.
func TestOwnFolders(t *testing.T) {
	n := &cluster.Node{Dir: "/node"}
	text := "      - hostPath:\n          path: /etc/kubernetes\n      - name: x\n        hostPath:\n          path: /var/lib/outrigger/qemu\n" +
		"      - hostPath:\n          path: /run/peerpod\n        httpGet:\n          path: /etc/kubernetes\n"
	got := OwnFolders(text, n)
	for _, want := range []string{" /node/host/etc/kubernetes\n", " /node/host/var/lib/outrigger/qemu\n", " /run/peerpod\n", "httpGet:\n          path: /etc/kubernetes\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}
