// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Package cloudsim, which some tests here use, has the flag already.
func init() {
	if flag.Lookup("update") == nil {
		flag.Bool("update", false, "write the renders in testdata again")
	}
}

func update() bool { return flag.Lookup("update").Value.String() == "true" }

func TestRendersAreAsBefore(t *testing.T) {
	known := []string{}
	for _, r := range renderings(t) {
		known = append(known, r.name+".yaml")
		t.Run(r.name, func(t *testing.T) {
			file, render := filepath.Join("testdata/renders", r.name+".yaml"), r.render(t)
			if update() {
				if err := os.WriteFile(file, render, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(render)); diff != "" {
				t.Errorf("%s\nif this is wanted: go test ./test/deploy -update", diff)
			}
		})
	}
	entries, err := os.ReadDir("testdata/renders")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(known, e.Name()) {
			t.Errorf("testdata/renders/%s is the render of nothing", e.Name())
		}
	}
}

func TestHelmLint(t *testing.T) {
	helm := tool(t, "helm")
	for _, v := range variants(t) {
		t.Run(v, func(t *testing.T) {
			output(t, helm, "lint", "--strict", "--kube-version", kubeVersion, filepath.Join(root, "deploy/chart"), "--values", "testdata/images.yaml",
				"--values", filepath.Join("testdata/values", v+".yaml"))
		})
	}
}
