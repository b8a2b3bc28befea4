// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// Whoever is on the way to a registry without TLS chooses what runs in the pod, and
// reads its credentials: at a private address no less than elsewhere.
func TestPlainHTTPOnlyWhereNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "insecure-registries")
	w := newWorld(t, func(cfg *Config) { cfg.InsecureRegistries, cfg.InsecureFile = nil, file })
	var asked atomic.Int32
	w.push("app", image(t, gzipLayer(t, reg("f", ""))))
	w.through(func(rw http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.registry.ServeHTTP(rw, r)
	})
	name := func(hosts string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(hosts), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.pullFails(w.ref("app"), "INSECURE_REGISTRIES", w.host)
	name("127.0.0.2 127.0.0.1:1 localhost")
	w.pullFails(w.ref("app"), "INSECURE_REGISTRIES")
	if n := asked.Load(); n > 0 {
		t.Errorf("%d requests went there in the clear", n)
	}
	name("registry.example.com:5000\n127.0.0.1\n")
	w.pull(w.ref("app"))
	name(w.host)
	w.pull(w.ref("app"))
}

// Where a registry sends us counts as well.
func TestPlainHTTPToThirdParties(t *testing.T) {
	var asked atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(other.Close)
	for what, door := range map[string]func(*world) http.HandlerFunc{
		"redirect of a layer": func(w *world) http.HandlerFunc {
			return func(rw http.ResponseWriter, r *http.Request) {
				if strings.Contains(r.URL.Path, "/blobs/") {
					http.Redirect(rw, r, other.URL+"/blob", http.StatusTemporaryRedirect)
					return
				}
				w.registry.ServeHTTP(rw, r)
			}
		},
		"token server": func(*world) http.HandlerFunc {
			return func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("WWW-Authenticate", `Bearer realm="`+other.URL+`/token",service="x"`)
				rw.WriteHeader(http.StatusUnauthorized)
			}
		},
	} {
		w := newWorld(t, nil)
		w.push("app", image(t, gzipLayer(t, reg("f", ""))))
		w.through(door(w))
		if err := w.pullFails(w.ref("app")); asked.Load() > 0 {
			t.Errorf("%s: it was followed: %v", what, err)
		}
	}
}
