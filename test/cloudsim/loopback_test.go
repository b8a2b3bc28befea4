// SPDX-License-Identifier: Apache-2.0

package cloudsim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCloudsStayOnLoopback: every package of a cloud whose SDK may look for
// credentials at a link-local address runs its tests under Main, or in
// namespaces of their own.
func TestCloudsStayOnLoopback(t *testing.T) {
	clouds, err := filepath.Glob("../../providers/*")
	if err != nil || len(clouds) < 5 {
		t.Fatalf("%d providers: %v", len(clouds), err)
	}
	for _, dir := range clouds {
		tests, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		guarded := len(tests) == 0
		for _, name := range tests {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			guarded = guarded || strings.Contains(string(text), "cloudsim.Main(") || strings.Contains(string(text), "testns.Main(")
		}
		if !guarded {
			t.Errorf("%s: its TestMain calls neither cloudsim.Main nor testns.Main", dir)
		}
	}
}
