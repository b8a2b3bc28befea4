// SPDX-License-Identifier: Apache-2.0

package openshift

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// Apply makes objects be as the manifests say, with their status.
func Apply(t testing.TB, c client.Client, manifests string) {
	t.Helper()
	for _, text := range strings.Split(manifests, "---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		if len(u.Object) == 0 {
			continue
		}
		if err := apply(t, c, u); err != nil {
			t.Fatalf("%s %s: %v", u.GetKind(), u.GetName(), err)
		}
	}
}

// apply writes the status apart, and last: the API server takes it only so.
func apply(t testing.TB, c client.Client, u *unstructured.Unstructured) error {
	status, has := u.Object["status"]
	is := u.DeepCopy()
	err := c.Get(t.Context(), client.ObjectKeyFromObject(u), is)
	if apierrors.IsNotFound(err) {
		err = c.Create(t.Context(), u)
	} else if err == nil {
		u.SetResourceVersion(is.GetResourceVersion())
		err = c.Update(t.Context(), u)
	}
	if err != nil || !has {
		return err
	}
	u.Object["status"] = status
	return c.Status().Update(t.Context(), u)
}

// Infrastructure is a manifest of one with a platformStatus, which is what stands
// between the braces, such as "type: AWS"; none if it is empty.
func Infrastructure(spec, topology, platformStatus string) string {
	text := `apiVersion: config.openshift.io/v1
kind: Infrastructure
metadata: {name: cluster}
spec: {` + spec + `}
status:
  infrastructureName: x
  apiServerURL: https://x
  apiServerInternalURI: https://x
  etcdDiscoveryDomain: ""
  controlPlaneTopology: ` + topology + `
  infrastructureTopology: HighlyAvailable
`
	if platformStatus != "" {
		text += "  platformStatus: {" + platformStatus + "}\n"
	}
	return text + "---\n"
}

// FeatureGate is a manifest of one with the gates of a release that are on; one,
// Other, is off.
func FeatureGate(release string, on ...string) string {
	enabled := make([]string, len(on))
	for i, name := range on {
		enabled[i] = "{name: " + name + "}"
	}
	return `apiVersion: config.openshift.io/v1
kind: FeatureGate
metadata: {name: cluster}
spec: {}
status: {featureGates: [{version: ` + release + `, enabled: [` + strings.Join(enabled, ",") + `], disabled: [{name: Other}]}]}
---
`
}
