// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The adaptor has of /etc/kubernetes what it needs of the kubelet's kubeconfig.
func TestNodeIdentity(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("ca.crt", "authority")
	from := write("kubelet.conf", `{apiVersion: v1, kind: Config, current-context: node,
contexts: [{name: node, context: {cluster: c, user: node}}, {name: admin, context: {cluster: c, user: admin}}],
clusters: [{name: c, cluster: {server: "https://192.0.2.1", certificate-authority: ca.crt}}],
users: [{name: node, user: {client-certificate: /var/lib/kubelet/pki/current.pem, client-key: /var/lib/kubelet/pki/current.pem}}, {name: admin, user: {token: administrator}}]}`)
	run := func(args ...string) (int, string) {
		var out, errs bytes.Buffer
		c := &Command{Stdout: &out, Stderr: &errs, Getenv: func(key string) string {
			return map[string]string{"CLOUD_PROVIDER": "qemu"}[key]
		}}
		return c.Run(append([]string{nodeIdentityCommand}, args...)), out.String() + errs.String()
	}

	to := filepath.Join(dir, "copy")
	if code, said := run(filepath.Join(dir, "missing")+","+from, to); code != 0 {
		t.Fatalf("code %d: %s", code, said)
	}
	data, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"https://192.0.2.1": true, "YXV0aG9yaXR5": true, "client-key: /var/lib/kubelet/pki/current.pem": true,
		"administrator": false, "ca.crt": false,
	} {
		if strings.Contains(string(data), text) != want {
			t.Errorf("%q: want %v in\n%s", text, want, data)
		}
	}
	if info, err := os.Stat(to); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}

	none := filepath.Join(dir, "none")
	if code, said := run(filepath.Join(dir, "missing"), none); code != 0 || !strings.Contains(said, "service account") {
		t.Errorf("without any: code %d: %s", code, said)
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("without any there is a copy")
	}
	if code, said := run(write("bad", "{"), none); code != 1 || !strings.Contains(said, "bad") {
		t.Errorf("a bad one: code %d: %s", code, said)
	}
	if code, _ := run(from); code != 2 {
		t.Errorf("without a place: code %d", code)
	}
}
