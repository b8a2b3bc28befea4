// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// TestObjectsOfTheBundleStay: what is applied may be changed on its way, and the bundle's
// object, which is applied again, may not.
func TestObjectsOfTheBundleStay(t *testing.T) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
	o.SetName("c")
	u, _, err := toUnstructured(o, scheme.Scheme)
	if err != nil {
		t.Fatal(err)
	}
	u.SetLabels(map[string]string{"a": "b"})
	if len(o.GetLabels()) > 0 {
		t.Errorf("labels %v", o.GetLabels())
	}
}
