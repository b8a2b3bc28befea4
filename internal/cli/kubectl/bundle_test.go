// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const keyValue = "-----BEGIN RSA PRIVATE KEY-----\nTHEKEYLINEONE\nTHEKEYLINETWO\n-----END RSA PRIVATE KEY-----\n"

// leaky is a cluster whose parts have secrets where they should not be.
func leaky(t *testing.T) *fakeAPI {
	f := newFakeAPI(t)
	f.put(core(SystemNamespace, "configmaps", configMapName), o{"data": o{"CLOUD_PROVIDER": testCloud, "PAPER_ZONE": "north", "PAPER_TOKEN": "misplaced-token", "OTHER_PASSWORD": "misplaced-password", "PROXY": "http://user:proxypass@proxy.example"}})
	f.put(core(SystemNamespace, "secrets", secretName), o{"data": o{"PAPER_TOKEN": []byte(tokenValue), "ssh-privatekey": []byte(keyValue)}})
	p := f.pod("web", o{"phase": "Running", "message": "with misplaced-token"})
	p["metadata"].(o)["annotations"] = o{
		"kubectl.kubernetes.io/last-applied-configuration":      `{"env":"annotated-secret"}`,
		"io.katacontainers.config.hypervisor.default_vcpus":     "2",
		"io.katacontainers.config.hypervisor.cc_init_data":      "initdata-secret",
		"confidentialcontainers.org/initdata-digest":            "sha256:abc",
		"io.katacontainers.config.hypervisor.machine_type.note": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.c2lnbmF0dXJl",
	}
	p["spec"].(o)["containers"] = []any{o{"name": "main", "command": []any{"run", "--password=argument-secret"}, "args": []any{"argument-secret"},
		"env":           []any{o{"name": "DB", "value": "environment-secret"}, o{"name": "REF", "valueFrom": o{"secretKeyRef": o{"name": "db"}}}},
		"livenessProbe": o{"httpGet": o{"httpHeaders": []any{o{"name": "X", "value": "header-secret"}}}}}}
	f.peerPod("web", o{"lastError": o{"message": "refused with " + tokenValue, "time": ago(0)}})
	f.put(core("shop", "events", "e1"), o{"metadata": o{}, "message": "token " + base64.StdEncoding.EncodeToString([]byte(tokenValue))})
	f.put(core(SystemNamespace, "pods", "caa"), o{"metadata": o{"name": "caa", "labels": o{"app.kubernetes.io/name": "cloud-api-adaptor"}}, "spec": o{"containers": []any{o{"name": "main"}}}})
	f.put(core(SystemNamespace, "pods", "foreign"), o{"metadata": o{"name": "foreign"}, "spec": o{"containers": []any{o{"name": "main"}}}})
	quoted, _ := json.Marshal(tokenValue)
	f.texts[core(SystemNamespace, "pods", "caa", "log")] = fmt.Sprintf("raw %s\nquoted %s\nquery %s\nkey THEKEYLINEONE\nAuthorization: Bearer bearer-secret\n%s\nall is well\n",
		tokenValue, quoted, url.QueryEscape(tokenValue), keyValue)
	f.node("node1", "10")
	return f
}

// secrets are what must not be in a bundle of leaky, in no form.
var secrets = []string{
	"hush-hush", base64.StdEncoding.EncodeToString([]byte(tokenValue)), base64.StdEncoding.EncodeToString([]byte(tokenValue))[:20], url.QueryEscape(tokenValue),
	"THEKEYLINE", "misplaced", "proxypass", "annotated-secret", "initdata-secret", "eyJhbGci", "argument-secret", "environment-secret", "header-secret", "bearer-secret",
}

// unpack returns the files of a bundle by name.
func unpack(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(h.Name, "outrigger-support/")] = string(text)
	}
}

func TestBundleHasNoSecret(t *testing.T) {
	f := leaky(t)
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	f.succeeds("support-bundle", "-f", file)
	archive, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Stat(file); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600", info.Mode())
	}
	files := unpack(t, archive)
	for name, text := range files {
		wantsNot(t, name+"\n"+text, secrets...)
		if strings.HasSuffix(name, ".json") && !json.Valid([]byte(text)) {
			t.Errorf("%s is not JSON any more:\n%s", name, text)
		}
	}
	for name, want := range map[string]string{
		"logs/caa/main.log": "all is well", "peerpods.json": "i-web", "pods.json": `"default_vcpus": "2"`, "config.json": `"PAPER_ZONE": "north"`,
		"events/shop.json": "token (removed)", "secret-keys.json": "PAPER_TOKEN", "check.json": "crd", "nodes.json": "node1", "missing.txt": "crd.json",
	} {
		wants(t, name+"\n"+strings.ReplaceAll(files[name], "io.katacontainers.config.hypervisor.", ""), want)
	}
	if _, there := files["logs/foreign/main.log"]; there {
		t.Error("the log of a foreign pod is in the bundle")
	}
}

// TestBundleWithLittle: what may not be read is missing, and nothing fails.
func TestBundleWithLittle(t *testing.T) {
	f := leaky(t)
	for _, path := range []string{core("", "pods"), core(SystemNamespace, "secrets"), core(SystemNamespace, "pods", "caa", "log"), core("", "nodes")} {
		f.forbidden[path] = true
	}
	files := unpack(t, []byte(f.succeeds("support-bundle", "-f", "-")))
	wants(t, files["missing.txt"], "pods.json", "logs/caa/main.log", "Secrets of "+SystemNamespace, "nodes.json")
	for name, text := range files { // peer-pods-secret alone was read
		wantsNot(t, name+"\n"+text, secrets...)
	}
}

func TestBundleOverwritesNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine")
	if err := os.WriteFile(file, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	code, _, errs := leaky(t).run("support-bundle", "-f", file)
	if text, _ := os.ReadFile(file); code != 1 || string(text) != "mine" {
		t.Errorf("exit code %d, %s; the file has %q", code, errs, text)
	}
}
