// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	infrav1beta1 "github.com/outrigger/outrigger/api/infrastructure/v1beta1"
	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

// newMux returns what a manager would, without one that runs.
func newMux(t *testing.T) *http.ServeMux {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{infrav1.AddToScheme, infrav1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	mgr, err := ctrl.NewManager(&rest.Config{Host: "http://127.0.0.1:1"}, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	return mgr.GetWebhookServer().WebhookMux()
}

// configured are the webhooks that config/webhook has the API server ask.
func configured(t *testing.T) (paths map[string]bool) {
	t.Helper()
	data, err := os.ReadFile("../../../config/webhook/manifests.yaml")
	if err != nil {
		t.Fatal(err)
	}
	paths = map[string]bool{}
	for doc := range strings.SplitSeq(string(data), "\n---\n") {
		var c struct {
			Webhooks []admissionregistrationv1.ValidatingWebhook `json:"webhooks"`
		}
		if err := yaml.Unmarshal([]byte(doc), &c); err != nil {
			t.Fatal(err)
		}
		for _, w := range c.Webhooks {
			paths[*w.ClientConfig.Service.Path] = true
		}
	}
	return paths
}

func TestEveryConfiguredWebhookAnswers(t *testing.T) {
	mux, paths := newMux(t), configured(t)
	if len(paths) != 12 {
		t.Errorf("%d webhooks are configured, want one that validates for each of ten kinds, and two that default", len(paths))
	}
	for path := range paths {
		if _, pattern := mux.Handler(httptest.NewRequest(http.MethodPost, path, nil)); pattern != path {
			t.Errorf("nothing answers at %s", path)
		}
	}
}

func post(t *testing.T, mux *http.ServeMux, path string, body, answer any) {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(data))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	if err := json.Unmarshal(w.Body.Bytes(), answer); err != nil {
		t.Fatalf("%s answers %d %q: %v", path, w.Code, w.Body, err)
	}
}

func TestRequestOfAnAPIServer(t *testing.T) {
	mux := newMux(t)
	object := []byte(`{"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta2","kind":"DockerMachine","spec":{"customImage":"A B"}}`)
	review := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "1", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: object},
			Kind: metav1.GroupVersionKind{Group: infrav1.GroupVersion.Group, Version: infrav1.GroupVersion.Version, Kind: "DockerMachine"},
		},
	}
	var answer admissionv1.AdmissionReview
	post(t, mux, "/validate-infrastructure-cluster-x-k8s-io-v1beta2-dockermachine", review, &answer)
	if answer.Response == nil || answer.Response.Allowed || !strings.Contains(answer.Response.Result.Message, "spec.customImage") {
		t.Errorf("answer: %+v", answer.Response)
	}
}

func TestConversionOfEveryKind(t *testing.T) {
	mux := newMux(t)
	for _, kind := range []string{
		"DockerCluster", "DockerClusterTemplate", "DockerMachine", "DockerMachineTemplate", "DockerMachinePool",
		"DockerMachinePoolTemplate", "OutriggerCluster", "OutriggerClusterTemplate", "OutriggerMachine", "OutriggerMachineTemplate",
	} {
		review := map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
			"request": map[string]any{"uid": "1", "desiredAPIVersion": infrav1.GroupVersion.String(), "objects": []any{
				map[string]any{"apiVersion": infrav1beta1.GroupVersion.String(), "kind": kind, "metadata": map[string]any{"name": "a"}},
			}},
		}
		var answer struct {
			Response struct {
				Result           metav1.Status
				ConvertedObjects []metav1.PartialObjectMetadata
			}
		}
		post(t, mux, "/convert", review, &answer)
		got := answer.Response.ConvertedObjects
		if len(got) != 1 || got[0].APIVersion != infrav1.GroupVersion.String() || got[0].Kind != kind || got[0].Name != "a" {
			t.Errorf("%s is converted to %+v: %s", kind, got, answer.Response.Result.Message)
		}
	}
}
