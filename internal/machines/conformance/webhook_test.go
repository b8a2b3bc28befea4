// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	infrav1beta1 "github.com/outrigger/outrigger/api/infrastructure/v1beta1"
	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/machines/webhooks"
)

// hooks are the webhooks of our manager, without one that runs.
var hooks = sync.OnceValue(func() *http.ServeMux {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{infrav1.AddToScheme, infrav1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	mgr, err := ctrl.NewManager(&rest.Config{Host: "http://127.0.0.1:1"}, ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
	if err == nil {
		err = webhooks.SetupWithManager(mgr)
	}
	if err != nil {
		panic(err)
	}
	return mgr.GetWebhookServer().WebhookMux()
})

// admitted asks our webhook.
func admitted(before, after *unstructured.Unstructured, dryRun bool) error {
	gvk := after.GroupVersionKind()
	review := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "1", Operation: admissionv1.Update, DryRun: &dryRun, Object: raw(after), OldObject: raw(before),
			Kind: metav1.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind},
		},
	}
	body, err := json.Marshal(review)
	if err != nil {
		return err
	}
	path := "/validate-" + strings.ReplaceAll(gvk.Group, ".", "-") + "-" + gvk.Version + "-" + strings.ToLower(gvk.Kind)
	r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	hooks().ServeHTTP(w, r)
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		return err
	}
	if !answer.Response.Allowed {
		return errors.New(answer.Response.Result.Message)
	}
	return nil
}

func raw(u *unstructured.Unstructured) runtime.RawExtension {
	data, err := json.Marshal(u)
	if err != nil {
		panic(err)
	}
	return runtime.RawExtension{Raw: data}
}
