// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	certutil "k8s.io/client-go/util/cert"
)

// TestCertificate: the server's own, until a Secret is mounted; a broken one is
// not a reason to show another.
func TestCertificate(t *testing.T) {
	c := &Certificate{Dir: t.TempDir()}
	own, err := c.Get(nil)
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := certutil.GenerateSelfSignedCertKey("metrics.example.test", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, text []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(c.Dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("tls.crt", cert)
	write("tls.key", key)
	mounted, err := c.Get(nil)
	if err != nil || bytes.Equal(mounted.Certificate[0], own.Certificate[0]) {
		t.Errorf("the mounted certificate is not shown: %v", err)
	}
	write("tls.key", []byte("broken"))
	if _, err := c.Get(nil); err == nil || !strings.Contains(err.Error(), "certificate in "+c.Dir) {
		t.Errorf("a broken key: %v", err)
	}
	if again, err := (&Certificate{}).Get(nil); err != nil || len(again.Certificate) == 0 {
		t.Errorf("without a folder: %v", err)
	}
}
