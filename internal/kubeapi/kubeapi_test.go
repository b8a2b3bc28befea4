// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// serve returns a client of a server that answers with handle, and the requests that it gets.
func serve(t *testing.T, handle http.HandlerFunc) (*Client, *[]string) {
	t.Helper()
	var got []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, fmt.Sprintf("%s %s %s %s", r.Method, r.URL.RequestURI(), r.Header.Get("Content-Type"), body))
		w.Header().Set("Content-Type", "application/json")
		handle(w, r)
	}))
	t.Cleanup(s.Close)
	c, err := New(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c, &got
}

func TestWrites(t *testing.T) {
	c, got := serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"made":true}`) })
	var made struct{ Made bool }
	node := Path(Core, "", "nodes", "n", "status")
	for _, err := range []error{
		c.Create(t.Context(), Path(Core, "ns", "events"), map[string]int{"a": 1}, &made),
		c.Patch(t.Context(), node, map[string]int{"a": 2}),
		c.Patch(t.Context(), node, []Operation{{Op: "remove", Path: Pointer("a", "b/c~d")}}),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	want := []string{
		`POST /api/v1/namespaces/ns/events application/json {"a":1}`,
		`PATCH /api/v1/nodes/n/status application/merge-patch+json {"a":2}`,
		`PATCH /api/v1/nodes/n/status application/json-patch+json [{"op":"remove","path":"/a/b~1c~0d"}]`,
	}
	if diff := cmp.Diff(want, *got); diff != "" || !made.Made {
		t.Error(made, diff)
	}
}

// TestNamesOfUsers: a pod's author writes the name of an image pull secret, and nobody checks it.
func TestNamesOfUsers(t *testing.T) {
	c, got := serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{}`) })
	for _, name := range []string{"", ".", "..", "../../victim/secrets/regcred", "a/b", "a%2Fb", "a?watch=true", "a#b", "/etc"} {
		at := Path(Core, "ns", "secrets", name)
		_, listErr := List[struct{}](t.Context(), c, at, nil)
		_, watchErr := c.Watch(t.Context(), at, nil)
		_, urlErr := c.URL(at, nil)
		for i, err := range []error{
			c.Get(t.Context(), at, nil), c.Create(t.Context(), at, 1, nil), c.Delete(t.Context(), at), c.Patch(t.Context(), at, 1),
			c.DeleteIf(t.Context(), at, metav1.Preconditions{}), listErr, watchErr, urlErr, c.Get(t.Context(), Path(Core, name+"/x", "pods"), nil),
		} {
			if err == nil || !strings.Contains(err.Error(), "is not the path of an object") {
				t.Errorf("%q, call %d: error %v", name, i, err)
			}
		}
	}
	if len(*got) > 0 {
		t.Errorf("the server was asked: %q", *got)
	}
}

func TestListReadsAllPages(t *testing.T) {
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		page := map[string]any{"items": []string{"a", "b"}, "metadata": map[string]string{"continue": "2"}}
		if r.URL.Query().Get("continue") == "2" {
			page = map[string]any{"items": []string{"c"}}
		}
		json.NewEncoder(w).Encode(page)
	})
	got, err := List[string](t.Context(), c, Path(Core, "", "things"), map[string]string{"labelSelector": "x"})
	if diff := cmp.Diff([]string{"a", "b", "c"}, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func TestErrorsHaveTheServersMessage(t *testing.T) {
	c, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"not for you","reason":"Forbidden","code":403}`)
	})
	err := c.Get(t.Context(), Path(Core, "", "nodes", "n"), nil)
	if !apierrors.IsForbidden(err) || err.Error() != "not for you" {
		t.Error(err)
	}
}
