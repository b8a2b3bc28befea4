// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
)

// fakeAPI is as much of an API server as the adaptor uses: objects in memory,
// versions, finalizers, status apart from the rest.
type fakeAPI struct {
	t  testing.TB
	mu sync.Mutex
	// objects by path without a subresource.
	objects map[string]map[string]any
	version int
	// refuse, when set, refuses some requests with a status code.
	refuse func(r *http.Request) int
}

func newFakeAPI(t testing.TB) *fakeAPI {
	f := &fakeAPI{t: t, objects: map[string]map[string]any{}}
	f.put("/api/v1/namespaces/kube-system", map[string]any{"metadata": map[string]any{"name": "kube-system"}})
	f.put("/api/v1/namespaces/default", map[string]any{"metadata": map[string]any{"name": "default"}})
	return f
}

// serve returns how to reach it.
func (f *fakeAPI) serve() *rest.Config {
	server := httptest.NewServer(f)
	f.t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

// put makes or replaces an object behind the back of everybody.
func (f *fakeAPI) put(path string, object map[string]any) map[string]any {
	f.version++
	meta, _ := object["metadata"].(map[string]any)
	if meta["uid"] == nil {
		meta["uid"] = fmt.Sprintf("uid-%d", f.version)
		meta["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	}
	meta["resourceVersion"] = fmt.Sprint(f.version)
	f.objects[path] = object
	return object
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	code, answer := 0, any(nil)
	if f.refuse != nil {
		code = f.refuse(r)
	}
	if code == 0 {
		body, _ := io.ReadAll(r.Body)
		code, answer = f.answer(r, body)
	}
	if answer == nil {
		answer = metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: int32(code),
			Message: "refused by the test", Reason: reasons[code],
		}
	}
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(answer)
}

var reasons = map[int]metav1.StatusReason{
	403: metav1.StatusReasonForbidden, 404: metav1.StatusReasonNotFound, 409: metav1.StatusReasonConflict, 422: metav1.StatusReasonInvalid,
}

func (f *fakeAPI) answer(r *http.Request, body []byte) (int, any) {
	path, status := strings.CutSuffix(r.URL.Path, "/status")
	object := f.objects[path]
	switch {
	case r.Method == http.MethodPost:
		return f.make(path, body)
	case r.Method == http.MethodGet && object == nil && isCollection(path):
		kind, version := "List", "v1"
		if of := map[string]string{"peerpods": "PeerPodList", "podvmpools": "PodVMPoolList"}[path[strings.LastIndex(path, "/")+1:]]; of != "" {
			kind, version = of, v1alpha1.GroupVersion.String()
		}
		return http.StatusOK, map[string]any{"kind": kind, "apiVersion": version, "items": f.list(path, r.URL.Query().Get("fieldSelector"), r.URL.Query().Get("labelSelector"))}
	case object == nil:
		return http.StatusNotFound, nil
	case r.Method == http.MethodGet:
		return http.StatusOK, object
	case r.Method == http.MethodDelete:
		return f.remove(path, object, body)
	}
	return f.patch(path, object, body, r.Header.Get("Content-Type"), status)
}

func isCollection(path string) bool {
	last := path[strings.LastIndex(path, "/")+1:]
	return last == "peerpods" || last == "events" || last == "pods" || last == "podvmpools"
}

func (f *fakeAPI) list(path, selector, labels string) []any {
	resource := path[strings.LastIndex(path, "/"):] + "/"
	items := []any{}
	for key, object := range f.objects {
		if !strings.Contains(key, resource) || strings.Contains(path, "/namespaces/") && !strings.HasPrefix(key, path+"/") {
			continue
		}
		if want, ok := strings.CutPrefix(selector, "spec.nodeName="); ok {
			if have, _ := object["spec"].(map[string]any)["nodeName"].(string); have != want {
				continue
			}
		}
		if key, want, ok := strings.Cut(labels, "="); ok {
			if have, _ := object["metadata"].(map[string]any)["labels"].(map[string]any); have[key] != want {
				continue
			}
		}
		items = append(items, object)
	}
	return items
}

func (f *fakeAPI) make(path string, body []byte) (int, any) {
	var object map[string]any
	if err := json.Unmarshal(body, &object); err != nil {
		return http.StatusBadRequest, nil
	}
	key := path + "/" + object["metadata"].(map[string]any)["name"].(string)
	if f.objects[key] != nil {
		return http.StatusConflict, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: 409, Reason: metav1.StatusReasonAlreadyExists}
	}
	if strings.HasSuffix(path, "/peerpods") {
		delete(object, "status")
	}
	return http.StatusCreated, f.put(key, object)
}

func (f *fakeAPI) remove(path string, object map[string]any, body []byte) (int, any) {
	var options metav1.DeleteOptions
	json.Unmarshal(body, &options)
	meta := object["metadata"].(map[string]any)
	if p := options.Preconditions; p != nil && p.UID != nil && string(*p.UID) != meta["uid"] {
		return http.StatusConflict, nil
	}
	if list, _ := meta["finalizers"].([]any); len(list) == 0 {
		delete(f.objects, path)
		return http.StatusOK, object
	}
	if meta["deletionTimestamp"] == nil {
		meta["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	}
	return http.StatusOK, f.put(path, object)
}

func (f *fakeAPI) patch(path string, old map[string]any, body []byte, kind string, status bool) (int, any) {
	before, _ := json.Marshal(old)
	after, err := applyPatch(before, body, kind)
	if err != nil {
		return http.StatusUnprocessableEntity, nil
	}
	var object, given map[string]any
	json.Unmarshal(after, &object)
	json.Unmarshal(body, &given)
	meta, _ := given["metadata"].(map[string]any)
	if v := meta["resourceVersion"]; v != nil && v != old["metadata"].(map[string]any)["resourceVersion"] {
		return http.StatusConflict, nil
	}
	if strings.Contains(path, "/peerpods/") {
		if strings.Contains(string(body), `"reason":""`) {
			return http.StatusUnprocessableEntity, nil // as the schema has it
		}
		keep := "status"
		if status {
			keep = "spec"
		}
		if object[keep] = old[keep]; old[keep] == nil {
			delete(object, keep)
		}
	}
	now := object["metadata"].(map[string]any)
	if list, _ := now["finalizers"].([]any); len(list) == 0 && now["deletionTimestamp"] != nil {
		delete(f.objects, path)
		return http.StatusOK, object
	}
	return http.StatusOK, f.put(path, object)
}

func applyPatch(before, patch []byte, kind string) ([]byte, error) {
	if kind != "application/json-patch+json" {
		return jsonpatch.MergePatch(before, patch)
	}
	decoded, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, err
	}
	return decoded.Apply(before)
}
