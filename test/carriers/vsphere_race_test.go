// SPDX-License-Identifier: Apache-2.0

//go:build integration && race

package carriers

import "testing"

// TestVSphere has another half, which is built without the race detector.
func TestVSphere(t *testing.T) {
	t.Skip("vcsim has races of its own, which the race detector takes for ours; run: make build && go test -tags integration -run TestVSphere ./test/carriers")
}
