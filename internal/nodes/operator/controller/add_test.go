// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/internal/nodes/operator/openshift"
)

// TestAReleaseThatIsNone: an upgrade waits for a version that the operator never says.
func TestAReleaseThatIsNone(t *testing.T) {
	for release, want := range map[string]bool{openshift.SnapshotVersion: true, openshift.UnknownVersion: true, "4.99.0": false} {
		var log bytes.Buffer
		warnOfRelease(slog.New(slog.NewTextHandler(&log, nil)), release)
		if strings.Contains(log.String(), "RELEASE_VERSION") != want {
			t.Errorf("%s: %q", release, log.String())
		}
	}
}
