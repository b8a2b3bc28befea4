// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// now is the time of all tests.
var now = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) string { return now.Add(-d).Format(time.RFC3339) }

// object is a part of JSON.
type o = map[string]any

// fakeAPI is as much of an API server as is read here: objects by path, and
// reviews that allow all but what is denied.
type fakeAPI struct {
	t       *testing.T
	objects map[string]any
	// forbidden are paths that nobody may read.
	forbidden map[string]bool
	// missing are paths that the API server does not have.
	missing map[string]bool
	// denied are verb and resource of rights that nobody has.
	denied map[string]bool
	texts  map[string]string
	// watches is called when a watch begins, after its first answer; what it changes is announced.
	watches func(path string)
	// created is called for each object that is created, before it is seen.
	created func(resource, name string, object o)
	removed []string
	// down has the API server close all connections.
	down    atomic.Bool
	server  *httptest.Server
	streams sync.Map // of events, by path
	exec    exec
	mu      sync.Mutex // of what requests see
	asked   []*http.Request
	dir     string
	env     map[string]string
}

func newFakeAPI(t *testing.T) *fakeAPI {
	f := &fakeAPI{t: t, objects: map[string]any{}, forbidden: map[string]bool{}, denied: map[string]bool{}, texts: map[string]string{}, env: map[string]string{}, dir: t.TempDir()}
	f.objects["/version"] = o{"major": "1", "minor": "36", "gitVersion": "v1.36.3"}
	f.put(core("", "namespaces", "kube-system"), o{"metadata": o{"name": "kube-system", "uid": "c1"}})
	f.server = httptest.NewServer(f)
	t.Cleanup(f.server.Close)
	config := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "test",
		"clusters": [{"name": "test", "cluster": {"server": %q}}],
		"contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": "shop"}}],
		"users": [{"name": "test", "user": {}}]}`, f.server.URL)
	if err := os.WriteFile(filepath.Join(f.dir, "kubeconfig"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fakeAPI) put(path string, object any) { f.objects[path] = object }

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if f.down.Load() {
		panic(http.ErrAbortHandler)
	}
	if r.URL.Query().Get("watch") == "true" {
		f.watch(w, r)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, r)
	said, isText := f.texts[r.URL.Path]
	object, there := f.objects[r.URL.Path]
	switch {
	case f.forbidden[r.URL.Path]:
		f.refuse(w, 403, "Forbidden")
	case f.missing[r.URL.Path]:
		f.refuse(w, 404, "NotFound")
	case r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, authorization):
		f.review(w, r.Body)
	case r.Method == http.MethodPost:
		f.create(r)
		io.WriteString(w, "{}")
	case r.Method == http.MethodDelete:
		f.removed = append(f.removed, r.URL.Path)
		maps.DeleteFunc(f.objects, func(path string, _ any) bool { return path == r.URL.Path || strings.HasPrefix(path, r.URL.Path+"/") })
		io.WriteString(w, "{}")
	case isText && r.URL.Query().Get("previous") != "true":
		io.WriteString(w, said)
	case there:
		json.NewEncoder(w).Encode(object)
	case slices.Contains(listed, filepath.Base(r.URL.Path)):
		json.NewEncoder(w).Encode(o{"metadata": o{"resourceVersion": "1"}, "items": f.list(r)})
	default:
		f.refuse(w, 404, "NotFound")
	}
}

// listed are the resources that have a list also without objects.
var listed = append([]string{"pods", "nodes", "events", "secrets", "peerpods", "daemonsets", "deployments", "mutatingwebhookconfigurations", "podvmpools", "cloudcontrollermanagers"}, append(dockerKinds, devKinds...)...)

// create keeps an object; created may complete it.
func (f *fakeAPI) create(r *http.Request) {
	var object o
	if err := json.NewDecoder(r.Body).Decode(&object); err != nil {
		f.t.Error(err)
		return
	}
	name := object["metadata"].(o)["name"].(string)
	if f.created != nil {
		f.created(filepath.Base(r.URL.Path), name, object)
	}
	f.objects[r.URL.Path+"/"+name] = object
}

// watch says twice that something is there, and then what is emitted.
func (f *fakeAPI) watch(w http.ResponseWriter, r *http.Request) {
	event := func(text string) {
		io.WriteString(w, text)
		http.NewResponseController(w).Flush()
	}
	nothing := `{"type": "BOOKMARK", "object": {}}`
	event(nothing)
	if f.watches != nil {
		f.mu.Lock()
		f.watches(r.URL.Path)
		f.mu.Unlock()
		event(nothing)
	}
	for {
		select {
		case text := <-f.stream(r.URL.Path):
			event(text)
		case <-r.Context().Done():
			return
		}
	}
}

func (f *fakeAPI) stream(path string) chan string {
	stream, _ := f.streams.LoadOrStore(path, make(chan string))
	return stream.(chan string)
}

// emit has the watch of a collection tell a change of an object; it waits for one.
func (f *fakeAPI) emit(collection, what string, object any) {
	text, err := json.Marshal(o{"type": what, "object": object})
	if err != nil {
		f.t.Fatal(err)
	}
	f.stream(collection) <- string(text)
}

func (f *fakeAPI) refuse(w http.ResponseWriter, code int, reason string) {
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(o{"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "the test says " + reason})
}

// list returns the objects below a path, in all namespaces without one.
func (f *fakeAPI) list(r *http.Request) []any {
	dir, resource := filepath.Split(r.URL.Path)
	items := []any{}
	for _, path := range slices.Sorted(maps.Keys(f.objects)) {
		inAll := !strings.Contains(dir, "/namespaces/") && strings.HasPrefix(path, dir+"namespaces/") && strings.Count(path[len(dir):], "/") == 3
		if filepath.Dir(path) == filepath.Join(dir, resource) || inAll && filepath.Base(filepath.Dir(path)) == resource {
			if name, one := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name="); !one || name == filepath.Base(path) {
				items = append(items, f.objects[path])
			}
		}
	}
	return items
}

func (f *fakeAPI) review(w io.Writer, body io.Reader) {
	var r review
	if err := json.NewDecoder(body).Decode(&r); err != nil {
		f.t.Error(err)
	}
	attributes := r.Spec.ResourceAttributes
	r.Status.Allowed = !f.denied[r.Spec.User+" "+attributes.Verb+" "+attributes.Resource]
	json.NewEncoder(w).Encode(r)
}

// run returns exit code, standard output and standard error.
func (f *fakeAPI) run(args ...string) (int, string, string) {
	var out, errs bytes.Buffer
	a := &App{Stdout: &out, Stderr: &errs, exec: f.exec, Now: func() time.Time { return now }, Getenv: func(name string) string { return f.env[name] }}
	code := a.Run(append([]string{"--kubeconfig", filepath.Join(f.dir, "kubeconfig")}, args...))
	return code, out.String(), errs.String()
}

// succeeds runs a command that must exit with 0.
func (f *fakeAPI) succeeds(args ...string) string {
	f.t.Helper()
	code, out, errs := f.run(args...)
	if code != 0 {
		f.t.Fatalf("%v: exit code %d\n%s%s", args, code, out, errs)
	}
	return out
}

// pod puts a pod of namespace shop that runs in a VM.
func (f *fakeAPI) pod(name string, status o) o {
	p := o{
		"metadata": o{"name": name, "namespace": "shop", "uid": "uid-" + name, "annotations": o{}, "creationTimestamp": ago(time.Hour)},
		"spec":     o{"runtimeClassName": "kata-remote", "nodeName": "node1", "containers": []any{o{"name": "main"}}},
		"status":   status,
	}
	f.put(core("shop", "pods", name), p)
	return p
}

// peerPod puts the PeerPod of a pod.
func (f *fakeAPI) peerPod(pod string, status o) o {
	name := pod + "-abc"
	pp := o{
		"metadata": o{"name": name, "namespace": "shop", "creationTimestamp": ago(time.Hour), "finalizers": []any{"peer.pod/finalizer"}},
		"spec":     o{"cloudProvider": testCloud, "instanceID": "i-" + pod, "sandboxID": "s-" + pod, "nodeName": "node1", "podName": pod, "podUID": "uid-" + pod},
		"status":   status,
	}
	f.put(api(peerPodGroup, "shop", "peerpods", name), pp)
	return pp
}

func (f *fakeAPI) node(name, vms string) {
	f.put(core("", "nodes", name), o{"metadata": o{"name": name, "labels": o{workerLabel: ""}},
		"status": o{"capacity": o{VMResource: vms}, "conditions": []any{o{"type": "Ready", "status": "True"}}, "runtimeHandlers": []any{o{"name": "kata-remote"}}}})
}

func conditionObject(kind, status, reason, message string) o {
	return o{"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": ago(30 * time.Minute)}
}

// wants fails the test for each text that is not there.
func wants(t *testing.T, got string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(got, text) {
			t.Errorf("no %q in:\n%s", text, got)
		}
	}
}

func wantsNot(t *testing.T, got string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(got, text) {
			t.Errorf("%q is in:\n%s", text, got)
		}
	}
}
