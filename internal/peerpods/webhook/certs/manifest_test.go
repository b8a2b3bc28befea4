// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistration "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// TestManifest holds the installed registration against what this program
// expects of it and would make of it.
func TestManifest(t *testing.T) {
	text, err := os.ReadFile("../../../../deploy/base/webhook/registration.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config := &admissionregistration.MutatingWebhookConfiguration{}
	if err := yaml.UnmarshalStrict(text, config); err != nil {
		t.Fatal(err)
	}
	s := newStand(t, config.DeepCopy())
	s.sync(s.replica(true))
	after := s.entry()
	if len(after.ClientConfig.CABundle) == 0 {
		t.Error("no caBundle")
	}
	after.ClientConfig.CABundle = nil
	if diff := cmp.Diff(config.Webhooks[0], after); diff != "" {
		t.Errorf("the webhook changes more than caBundle (-manifest +after):\n%s", diff)
	}
	selector := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn,
		Values: []string{"confidential-containers-system", "kube-system", "cert-manager"},
	}}}
	got := []any{*after.ClientConfig.Service.Path, *after.FailurePolicy, *after.ReinvocationPolicy, *after.SideEffects, after.NamespaceSelector}
	want := []any{"/mutate-v1-pod", admissionregistration.Fail, admissionregistration.IfNeededReinvocationPolicy, admissionregistration.SideEffectClassNone, selector}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("registration (-want +got):\n%s", diff)
	}
}
