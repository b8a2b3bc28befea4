// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	admissionv1 "k8s.io/api/admission/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/go-logr/logr"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

func handler() http.Handler {
	return &admission.Webhook{Handler: &Mutator{
		RuntimeClass: "kata-remote", Slot: "kata.peerpods.io/vm", Log: slog.New(slog.DiscardHandler),
	}}
}

const reviewFormat = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u1","operation":"CREATE",
"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"namespace":"ns","object":%s}}`

// ask posts a body and returns the response of the review.
func ask(t testing.TB, body string) *admissionv1.AdmissionResponse {
	t.Helper()
	req := httptest.NewRequest(http.MethodPost, Path, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	rec := httptest.NewRecorder()
	handler().ServeHTTP(rec, req)
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(rec.Body.Bytes(), &review); err != nil || review.Response == nil {
		t.Fatalf("answer %q is not a review: %v", rec.Body, err)
	}
	return review.Response
}

// apply returns the pod as the API server has it afterwards.
func apply(t testing.TB, pod string, resp *admissionv1.AdmissionResponse) string {
	t.Helper()
	if resp.Patch == nil {
		return pod
	}
	p, err := jsonpatch.DecodePatch(resp.Patch)
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.Apply([]byte(pod))
	if err != nil {
		t.Fatalf("patch %s does not apply: %v", resp.Patch, err)
	}
	return string(out)
}

func sameJSON(t *testing.T, want, got string) {
	t.Helper()
	var w, g any
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(got), &g); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(w, g); diff != "" {
		t.Errorf("pod (-want +got):\n%s", diff)
	}
}

func TestPodIsMutated(t *testing.T) {
	const record = `{\"containers\":{\"a\":{\"requests\":{\"cpu\":\"2\"}}},\"sized\":{\"io.katacontainers.config.hypervisor.default_vcpus\":\"2\"}}`
	for name, c := range map[string]struct{ pod, want string }{
		"annotations made": {
			`{"metadata":{"name":"p"},"spec":{"runtimeClassName":"kata-remote","containers":[{"name":"a","resources":{"requests":{"cpu":"2"}}}]}}`,
			`{"metadata":{"name":"p","annotations":{"io.katacontainers.config.hypervisor.default_vcpus":"2","outrigger.dev/resources":"` + record + `"}},
			"spec":{"runtimeClassName":"kata-remote","containers":[{"name":"a","resources":{"requests":{"kata.peerpods.io/vm":"1"},"limits":{"kata.peerpods.io/vm":"1"}}}]}}`,
		},
		"fields of newer API servers stay": {
			`{"metadata":{"annotations":{"x/y~z":"1"},"newer":1},"spec":{"runtimeClassName":"kata-remote","newer":[1],"resources":{"requests":{"cpu":"2"},"newer":1},
			"containers":[{"name":"a","newer":2,"resources":{"newer":3,"claims":[{"name":"c"}]}}]}}`,
			`{"metadata":{"annotations":{"x/y~z":"1","io.katacontainers.config.hypervisor.default_vcpus":"2",
			"outrigger.dev/resources":"{\"pod\":{\"requests\":{\"cpu\":\"2\"}},\"sized\":{\"io.katacontainers.config.hypervisor.default_vcpus\":\"2\"}}"},"newer":1},
			"spec":{"runtimeClassName":"kata-remote","newer":[1],
			"containers":[{"name":"a","newer":2,"resources":{"newer":3,"claims":[{"name":"c"}],"requests":{"kata.peerpods.io/vm":"1"},"limits":{"kata.peerpods.io/vm":"1"}}}]}}`,
		},
		"nothing asked, no annotations": {
			`{"metadata":{},"spec":{"runtimeClassName":"kata-remote","containers":[{"name":"a"},{"name":"b"}]}}`,
			`{"metadata":{},"spec":{"runtimeClassName":"kata-remote","containers":[{"name":"a","resources":{"requests":{"kata.peerpods.io/vm":"1"},"limits":{"kata.peerpods.io/vm":"1"}}},{"name":"b"}]}}`,
		},
		"GPU model": {
			`{"metadata":{"annotations":{"io.katacontainers.config.hypervisor.default_gpus":"1"}},"spec":{"runtimeClassName":"kata-remote","nodeSelector":{"nvidia.com/gpu.product":"T4","a/b":"c"},
			"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"nvidia.com/gpu.product","operator":"In","values":["A100"]}]}]}}},"containers":[]}}`,
			`{"metadata":{"annotations":{"io.katacontainers.config.hypervisor.default_gpus":"1","io.katacontainers.config.hypervisor.default_gpu_model":"T4",
			"outrigger.dev/resources":"{\"sized\":{\"io.katacontainers.config.hypervisor.default_gpu_model\":\"T4\"}}"}},
			"spec":{"runtimeClassName":"kata-remote","nodeSelector":{"a/b":"c"},"affinity":{"nodeAffinity":{}},"containers":[]}}`,
		},
		"other runtime class": {
			`{"metadata":{},"spec":{"runtimeClassName":"kata","containers":[{"name":"a","resources":{"requests":{"cpu":"2"}}}]}}`,
			`{"metadata":{},"spec":{"runtimeClassName":"kata","containers":[{"name":"a","resources":{"requests":{"cpu":"2"}}}]}}`,
		},
		"no runtime class": {`{"metadata":{},"spec":{"containers":[]}}`, `{"metadata":{},"spec":{"containers":[]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			resp := ask(t, fmt.Sprintf(reviewFormat, c.pod))
			if !resp.Allowed || resp.UID != "u1" {
				t.Fatalf("answer %+v", resp)
			}
			once := apply(t, c.pod, resp)
			sameJSON(t, c.want, once)
			if again := ask(t, fmt.Sprintf(reviewFormat, once)); again.Patch != nil && string(again.Patch) != "[]" {
				t.Errorf("a second call patches: %s", again.Patch)
			}
		})
	}
}

func TestOtherOperationsPass(t *testing.T) {
	pod := `{"metadata":{},"spec":{"runtimeClassName":"kata-remote","containers":[{"name":"a"}]}}`
	review := fmt.Sprintf(reviewFormat, pod)
	for _, body := range []string{
		strings.Replace(review, "CREATE", "DELETE", 1),
		strings.Replace(review, `"operation"`, `"subResource":"ephemeralcontainers","operation"`, 1),
	} {
		if resp := ask(t, body); !resp.Allowed || resp.Patch != nil {
			t.Errorf("answer to %s: %+v", body, resp)
		}
	}
}

// TestUpdate guards what a user can do to a pod that waits for its VM.
func TestUpdate(t *testing.T) {
	const vcpus = "io.katacontainers.config.hypervisor.default_vcpus"
	for name, c := range map[string]struct{ before, after, want string }{
		"another annotation": {`{"outrigger.dev/resources":"{}"}`, `{"outrigger.dev/resources":"{}","a":"b"}`, ""},
		"a size":             {`{}`, `{"` + vcpus + `":"2"}`, ""},
		"an old bad size":    {`{"` + vcpus + `":"x"}`, `{"` + vcpus + `":"x","a":"b"}`, ""},
		"a bad size":         {`{}`, `{"` + vcpus + `":"1e999999"}`, "is not a number of vCPUs"},
		"a record":           {`{}`, `{"outrigger.dev/resources":"{}"}`, "cannot be changed"},
		"another record":     {`{"outrigger.dev/resources":"{}"}`, `{"outrigger.dev/resources":"{\"containers\":{}}"}`, "cannot be changed"},
		"no record":          {`{"outrigger.dev/resources":"{}"}`, `{}`, "cannot be changed"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := func(annotations string) string {
				return `{"metadata":{"annotations":` + annotations + `},"spec":{"runtimeClassName":"kata-remote","containers":[{"name":"a"}]}}`
			}
			review := strings.Replace(fmt.Sprintf(reviewFormat, pod(c.after)), "CREATE", "UPDATE", 1)
			review = strings.Replace(review, `"object"`, `"oldObject":`+pod(c.before)+`,"object"`, 1)
			resp := ask(t, review)
			if resp.Allowed != (c.want == "") || resp.Patch != nil || !strings.Contains(resp.Result.Message, c.want) {
				t.Errorf("answer %+v, want %q", resp, c.want)
			}
		})
	}
}

func TestRefusalsSayWhy(t *testing.T) {
	review := func(pod string) string { return fmt.Sprintf(reviewFormat, pod) }
	for name, c := range map[string]struct {
		body string
		code int32
		want string
	}{
		"not JSON":      {"{", 400, ""},
		"empty":         {"", 400, "no request"},
		"no request":    {`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, 400, "no request"},
		"null request":  {`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":null}`, 400, "no request"},
		"another kind":  {`{"apiVersion":"v1","kind":"Pod"}`, 400, ""},
		"not of pods":   {strings.Replace(review(`{}`), `"resource":"pods"`, `"resource":"secrets"`, 1), 400, "for pods, not for"},
		"no object":     {review(`null`), 400, "cannot be read"},
		"no pod":        {review(`[]`), 400, "cannot be read"},
		"bad quantity":  {review(`{"metadata":{},"spec":{"runtimeClassName":"kata-remote","containers":[{"name":"a","resources":{"requests":{"cpu":"x"}}}]}}`), 400, "cannot be read"},
		"no metadata":   {review(`{"spec":{"runtimeClassName":"kata-remote"}}`), 400, "no metadata"},
		"request wrong": {review(`{"metadata":{},"spec":{"runtimeClassName":"kata-remote","containers":[{"name":"a","resources":{"requests":{"cpu":"2"},"limits":{"cpu":"1"}}}]}}`), 422, `container "a": request of cpu: 2 is more than the limit of 1`},
		"null container": {review(`{"metadata":{},"spec":{"runtimeClassName":"kata-remote","containers":[null]}}`), 422,
			"has no name"},
	} {
		t.Run(name, func(t *testing.T) {
			resp := ask(t, c.body)
			if resp.Allowed || resp.Result == nil || resp.Result.Code != c.code || !strings.Contains(resp.Result.Message, c.want) {
				t.Errorf("answer %+v, want %d with %q", resp.Result, c.code, c.want)
			}
		})
	}
}

func FuzzReview(f *testing.F) {
	for _, pod := range []string{
		`{"metadata":{},"spec":{"runtimeClassName":"kata-remote","containers":[{"name":"a","resources":{"requests":{"cpu":"2","hugepages-2Mi":"4Mi"}}}],"initContainers":[{"name":"i","restartPolicy":"Always"}],"resources":{"limits":{"memory":"1Gi"}},"overhead":{"cpu":"250m"}}}`,
		`{"metadata":{"annotations":{"outrigger.dev/resources":"{}"}},"spec":{"runtimeClassName":"kata-remote","nodeSelector":{"nvidia.com/gpu.product":"T4"},"containers":[null]}}`,
	} {
		f.Add(fmt.Sprintf(reviewFormat, pod))
	}
	f.Add(`{"request":{}}`)
	f.Fuzz(func(t *testing.T, body string) {
		resp := ask(t, body)
		if !resp.Allowed {
			if resp.Result == nil || resp.Result.Code < 400 || resp.Result.Code > 499 || resp.Result.Message == "" {
				t.Fatalf("refusal without a reason: %+v", resp.Result)
			}
			return
		}
		var sent struct {
			Request struct{ Object json.RawMessage }
		}
		if json.Unmarshal([]byte(body), &sent) == nil && resp.Patch != nil {
			apply(t, string(sent.Request.Object), resp)
		}
	})
}

func BenchmarkReview(b *testing.B) {
	body := fmt.Sprintf(reviewFormat, largePod())
	for b.Loop() {
		ask(b, body)
	}
}

// largePod has 20 containers of 50 variables each.
func largePod() string {
	var cs bytes.Buffer
	for i := range 20 {
		if i > 0 {
			cs.WriteByte(',')
		}
		fmt.Fprintf(&cs, `{"name":"c%d","image":"registry.example/app:1","env":[{"name":"A","value":"b"}%s],"resources":{"requests":{"cpu":"100m","memory":"64Mi"},"limits":{"cpu":"1"}}}`,
			i, strings.Repeat(`,{"name":"A","value":"some value of usual length"}`, 49))
	}
	return `{"metadata":{"name":"p","annotations":{"a":"b"}},"spec":{"runtimeClassName":"kata-remote","containers":[` + cs.String() + `]}}`
}
