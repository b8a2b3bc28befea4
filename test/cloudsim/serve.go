// SPDX-License-Identifier: Apache-2.0

package cloudsim

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// Server is a running simulator.
type Server struct {
	*httptest.Server
	// CAFile holds the certificate that clients have to trust, as PEM.
	CAFile string
}

// Serve serves handler with TLS on a loopback port until the test ends.
func Serve(t testing.TB, handler http.Handler) *Server {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	// Faults abort connections on purpose, which is not news.
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "ca.pem")
	data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return &Server{Server: s, CAFile: file}
}

// Guard holds requests back until open is called: a simulator that knows its
// own address is complete only after Serve, and requests of other processes
// know nothing of that.
func Guard(handler http.Handler) (guarded http.Handler, open func()) {
	ready := make(chan struct{})
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		<-ready
		handler.ServeHTTP(out, r)
	}), func() { close(ready) }
}
