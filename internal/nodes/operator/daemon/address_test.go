// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

func TestUseNodesAddress(t *testing.T) {
	file := filepath.Join(t.TempDir(), "apiserver-url.env")
	const service = "https://172.30.0.1:443"
	for text, want := range map[string]string{
		"KUBERNETES_SERVICE_HOST='api-int.example.test'\nKUBERNETES_SERVICE_PORT='6443'\n": "https://api-int.example.test:6443",
		"export KUBERNETES_SERVICE_HOST=fd00::1\nexport KUBERNETES_SERVICE_PORT=\"6443\"":  "https://[fd00::1]:6443",
		"":                               "",
		"KUBERNETES_SERVICE_HOST=only\n": "",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		api := &rest.Config{Host: service}
		err := useNodesAddress(api, file)
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), "does not set KUBERNETES_SERVICE_HOST") || api.Host != service {
				t.Errorf("%q: %s, error %v", text, api.Host, err)
			}
			continue
		}
		if err != nil || api.Host != want {
			t.Errorf("%q: %s, error %v", text, api.Host, err)
		}
	}
	api := &rest.Config{Host: service}
	if err := useNodesAddress(api, file+".no"); err != nil || api.Host != service {
		t.Errorf("without the file: %s, error %v", api.Host, err)
	}
}
