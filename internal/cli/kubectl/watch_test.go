// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/outrigger/outrigger/internal/kubeapi"
)

// TestChangesWithoutEvents: whoever may not watch, and a watch that begins when the last object is
// gone, say so too, so that the reader looks.
func TestChangesWithoutEvents(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"refused":        func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"nothing there":  func(w http.ResponseWriter, r *http.Request) { w.(http.Flusher).Flush(); <-r.Context().Done() },
		"ended at once ": func(http.ResponseWriter, *http.Request) {},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(answer)
			defer s.CloseClientConnections()
			client, err := kubeapi.New(&rest.Config{Host: s.URL})
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-(&cluster{Client: client}).changes(t.Context(), core("ns", "pods")):
			case <-time.After(time.Minute):
				t.Fatal("no word of a watch")
			}
		})
	}
}
