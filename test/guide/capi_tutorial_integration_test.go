// SPDX-License-Identifier: Apache-2.0

//go:build integration

package guide

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/capi"
)

// TestCAPITutorial follows the tutorial to the letter. Its machines are real
// folders, its API server, core and kubeadm providers are real too.
func TestCAPITutorial(t *testing.T) {
	need(t, "bash", "go", "make")
	// In the empty home there are no programs yet; they are looked for here.
	cache := filepath.Dir(filepath.Dir(capi.Programs(t)))
	follow(t, capiTutorial, 15*time.Minute, "OUTRIGGER_CACHE="+cache)
}
