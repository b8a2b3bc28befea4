// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"testing"

	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
	"github.com/outrigger/outrigger/internal/nodes/operator/bundles"
)

// TestIdentityKeepsTheRules of all built-in bundles.
func TestIdentityKeepsTheRules(t *testing.T) {
	set, err := bundles.Set()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range set {
		c := Context{Platform: b.Platform, Namespace: namespace, Flavor: bundle.Kubernetes}
		v := values(b, c, true)
		v.Identity = &bundle.Identity{Audience: "cloud", PodLabels: map[string]string{"use": "true"}, Environment: map[string]string{"A": "b"}}
		r, err := b.Render(v)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range Check(r.Resources, c) {
			t.Errorf("%s: %s: %s", b.Name, f.Object, f.Problem)
		}
	}
}
