// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMirrors: an image of docker.io is asked for at index.docker.io, and so are its mirrors.
func TestMirrors(t *testing.T) {
	o, err := parse([]string{"-registry-mirrors", "docker.io=a.example.com,docker.io=b.example.com ghcr.io=c.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{"index.docker.io": {"a.example.com", "b.example.com"}, "ghcr.io": {"c.example.com"}}
	if diff := cmp.Diff(want, o.config.Images.Mirrors); diff != "" {
		t.Error(diff)
	}
	for _, wrong := range []string{"docker.io", "=a.example.com", "docker.io=", "no registry=a", "a/b=c"} {
		if _, err := parse([]string{"-registry-mirrors", wrong}); err == nil {
			t.Errorf("%q was taken", wrong)
		}
	}
}
