// SPDX-License-Identifier: Apache-2.0

package registry_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/internal/cli/registry"
)

// TestErrorsOfRegistriesHaveAdvice: what users can do about them.
func TestErrorsOfRegistriesHaveAdvice(t *testing.T) {
	for status, want := range map[int]string{http.StatusNotFound: "has no such image or tag", http.StatusUnauthorized: "`docker login 127.0.0.1", 0: "cannot be reached from this host"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v2/" {
				w.WriteHeader(status)
			}
		}))
		defer server.Close()
		if status == 0 {
			server.Close()
		}
		host := server.Listener.Addr().String()
		_, err := registry.Open(t.Context(), host+"/app:v1", registry.Options{Policy: registry.Guest})
		if err == nil || !strings.Contains(err.Error(), "registry "+host+" ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v, want %q", status, err, want)
		}
	}
}
