// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

// foreign are kinds whose Go types are not those of Kubernetes itself. The
// first is decoded by the API server of TestServerTakesEverything, the others
// are those of the Prometheus operator and of cert-manager.
var foreign = []string{"CustomResourceDefinition", "ServiceMonitor", "PrometheusRule", "Certificate", "Issuer"}

// TestNoFieldIsUnknown finds misspelt fields, which an API server only warns
// of.
func TestNoFieldIsUnknown(t *testing.T) {
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	for _, r := range renderings(t) {
		t.Run(r.name, func(t *testing.T) {
			for _, o := range parse(t, r.render(t)) {
				if slices.Contains(foreign, o.GetKind()) {
					continue
				}
				text, err := o.MarshalJSON()
				if err != nil {
					t.Fatal(err)
				}
				if _, _, err := strict.Decode(text, nil, nil); runtime.IsStrictDecodingError(err) || err != nil {
					t.Errorf("%s: %v", id(o), err)
				}
			}
		})
	}
}

// namespaced are the kinds here that are in a namespace.
var namespaced = []string{"ServiceAccount", "DaemonSet", "Deployment", "Role", "RoleBinding", "ConfigMap", "Secret", "Service",
	"NetworkPolicy", "PodDisruptionBudget", "ServiceMonitor", "PrometheusRule", "Certificate", "Issuer"}

func TestEverythingIsInItsNamespace(t *testing.T) {
	for _, r := range renderings(t) {
		t.Run(r.name, func(t *testing.T) {
			for _, o := range parse(t, r.render(t)) {
				want := ""
				if slices.Contains(namespaced, o.GetKind()) {
					want = namespace
				}
				if o.GetNamespace() != want {
					t.Errorf("%s is in namespace %q, not %q", id(o), o.GetNamespace(), want)
				}
			}
		})
	}
}
