// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// TestCollect: the report says what there is on this machine, or why there is nothing, and leaves nothing behind.
func TestCollect(t *testing.T) {
	dir := t.TempDir()
	r, err := collect(t.Context(), false, dir)
	if err != nil {
		t.Fatal(err)
	}
	if (r.Evidence == nil) == (r.Why == "") || r.Kernel == "" || r.Evidence != nil && r.Offline == nil {
		t.Errorf("%+v", r)
	}
	if text, err := json.Marshal(r); err != nil || !strings.Contains(string(text), `"tee":`) {
		t.Errorf("%s, %v", text, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	if !strings.Contains(r.summary(), "evidence") {
		t.Errorf("summary %q", r.summary())
	}
}
