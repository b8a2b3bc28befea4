// SPDX-License-Identifier: Apache-2.0

package nodeinstall

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRemoved(t *testing.T) {
	for name, c := range map[string]struct {
		code    int
		body    string
		removed bool
		says    string
	}{
		"a new version":  {200, `{"metadata": {"name": "node-installer"}}`, false, ""},
		"being removed":  {200, `{"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}`, true, ""},
		"gone":           {404, `{}`, true, ""},
		"role gone":      {403, `{}`, true, ""},
		"account gone":   {401, `{}`, true, ""},
		"server in need": {503, `{}`, false, "503"},
		"no JSON":        {200, `<html>`, false, "invalid character"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/apis/apps/v1/namespaces/system/daemonsets/node-installer" || r.Header.Get("Authorization") != "Bearer secret" {
					t.Errorf("%s, %q", r.URL, r.Header)
				}
				w.WriteHeader(c.code)
				_, _ = w.Write([]byte(c.body))
			}))
			defer server.Close()
			dir := t.TempDir()
			authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
			for file, text := range map[string]string{"token": "secret\n", "ca.crt": string(authority)} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			o := &owner{server: strings.TrimPrefix(server.URL, "https://"), namespace: "system", name: "node-installer", dir: dir}
			removed, err := o.removed(t.Context())
			if removed != c.removed || (c.says == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, %v", removed, err)
			}
			server.Close()
			if removed, err := o.removed(t.Context()); removed || err == nil {
				t.Errorf("server away: %v, %v", removed, err)
			}
		})
	}
}
