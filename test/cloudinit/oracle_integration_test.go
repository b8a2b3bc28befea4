// SPDX-License-Identifier: Apache-2.0

//go:build integration

// Package cloudinit compares what the pod VM does with user-data with what
// cloud-init does, which knew it first: the same files must come out of the
// same metadata services, disks and variables.
package cloudinit

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/guest/metadata"
	"github.com/outrigger/outrigger/internal/guest/userdata"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/test/testns"
)

func TestMain(m *testing.M) { testns.MetadataMain(m) }

// pythonPath is where build/setup.sh unpacks cloud-init.
func pythonPath(t *testing.T) string {
	home, _ := os.UserHomeDir()
	cache := cmp.Or(os.Getenv("OUTRIGGER_CACHE"), filepath.Join(cmp.Or(os.Getenv("XDG_CACHE_HOME"), filepath.Join(home, ".cache")), "outrigger"))
	path := filepath.Join(cache, "cloud-init", "usr", "lib", "python3", "dist-packages")
	if _, err := os.Stat(filepath.Join(path, "cloudinit")); err != nil {
		t.Fatalf("cloud-init is not unpacked: %v; run: make setup", err)
	}
	return path
}

// oracle writes the files of user-data as cloud-init does and returns those in
// folder /run/peerpod, of which every test has one of its own.
func oracle(t *testing.T, args ...string) map[string]string {
	t.Helper()
	if err := os.RemoveAll(userdata.DefaultDir); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", append([]string{"oracle.py"}, args...)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "PYTHONPATH=" + pythonPath(t), "LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cloud-init: %v\n%s", err, out)
	}
	return read(t, userdata.DefaultDir)
}

func read(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(data)
	}
	return files
}

// documents are what a node sends, and contents that are hard to carry.
func documents(t *testing.T) map[string]string {
	t.Helper()
	initdata, err := cloudinit.NewInitData("sha256", "0.1.0", map[string]string{"policy.rego": "package agent_policy\n", "cdh.toml": "[kbc]\n"})
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := initdata.Encode()
	if err != nil {
		t.Fatal(err)
	}
	apf := func(content string) []cloudinit.WriteFile {
		return []cloudinit.WriteFile{{Path: "/run/peerpod/apf.json", Content: content}}
	}
	list := map[string][]cloudinit.WriteFile{
		"a pod's": {
			{Path: "/run/peerpod/apf.json", Content: "{\n  \"pod-name\": \"nginx\",\n  \"tls-server-key\": \"-----BEGIN PRIVATE KEY-----\\n\"\n}\n", Permissions: "0600"},
			{Path: "/run/peerpod/aa.toml", Content: "[token_configs]\n[token_configs.kbs]\nurl = 'http://kbs'\n"},
			{Path: "/run/peerpod/auth.json", Content: `{"auths":{"registry.test":{"auth":"dXNlcjpwYXNz"}}}`, Permissions: "0600"},
			{Path: "/run/peerpod/initdata", Content: encoded},
			{Path: "/run/peerpod/scratch-space.marker"},
		},
		"no newline":    apf("{}"),
		"newlines":      apf("\n\n{}\n\n\n"),
		"spaces":        apf("   {}  \n\t\n    x\n  "),
		"yaml":          apf("a: b\n- c\n# d\n--- \n... \n'\"%@`{{ }}"),
		"carriage":      apf("a\r\nb\rc\n"),
		"other scripts": apf("grün 漢字 🚀\u2028\u0085\ufeff"),
		"control":       apf("a\tb\x01\x1b[0m\x7f"),
		"long line":     apf(strings.Repeat("x", 9000) + "\n"),
		"empty":         apf(""),
	}
	docs := map[string]string{}
	for name, files := range list {
		if docs[name], err = (cloudinit.CloudConfig{WriteFiles: files}).Generate(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return docs
}

// ours writes the files as the pod VM does and leaves out what it adds.
func ours(t *testing.T, p metadata.Platform, o metadata.Options, cloudInits map[string]string) map[string]string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "peerpod")
	err := userdata.Provision(t.Context(), userdata.Options{Sources: metadata.Sources(p, o), Dir: dir, Timeout: time.Minute, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("process-user-data: %v", err)
	}
	files := read(t, dir)
	for name := range files {
		// What initdata holds is unpacked by the pod VM alone.
		if _, both := cloudInits[name]; !both && name != "apf.json" {
			delete(files, name)
		}
	}
	return files
}

func compare(t *testing.T, cloudInits, ours map[string]string) {
	t.Helper()
	if len(cloudInits) == 0 {
		t.Error("cloud-init wrote nothing")
	}
	for name, content := range cloudInits {
		if got, ok := ours[name]; !ok || got != content {
			t.Errorf("%s: cloud-init wrote %q, the pod VM %q", name, content, got)
		}
	}
	for name := range ours {
		if _, ok := cloudInits[name]; !ok {
			t.Errorf("cloud-init did not write %s", name)
		}
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestNoCloud carries every document; the other sources differ only in how
// they get at it, and carry the pod's.
func TestNoCloud(t *testing.T) {
	testns.RequireRoot(t)
	for name, doc := range documents(t) {
		t.Run(name, func(t *testing.T) {
			seed := t.TempDir()
			write(t, filepath.Join(seed, "user-data"), doc)
			write(t, filepath.Join(seed, "meta-data"), "instance-id: i\nlocal-hostname: h\n")
			want := oracle(t, "nocloud", seed)
			compare(t, want, ours(t, metadata.Unknown, metadata.Options{SeedDir: seed}, want))
		})
	}
}

func TestConfigDrive(t *testing.T) {
	testns.RequireRoot(t)
	drive, doc := t.TempDir(), documents(t)["a pod's"]
	write(t, filepath.Join(drive, "openstack", "latest", "meta_data.json"), `{"uuid":"83679162-1378-4288-a2d4-70e13ec132aa"}`)
	write(t, filepath.Join(drive, "openstack", "latest", "user_data"), doc)
	want := oracle(t, "configdrive", drive)
	compare(t, want, ours(t, metadata.Unknown, metadata.Options{ConfigDriveDir: drive}, want))
}

func TestServices(t *testing.T) {
	testns.RequireRoot(t)
	doc := documents(t)["a pod's"]
	for name, c := range map[string]struct {
		platform metadata.Platform
		address  string
		tree     http.Handler
	}{
		"ec2":       {metadata.AWS, "169.254.169.254:80", amazon(doc, "X-aws-ec2-metadata-token", true)},
		"aliyun":    {metadata.Alibaba, "100.100.100.200:80", amazon(doc, "X-aliyun-ecs-metadata-token", false)},
		"gce":       {metadata.GCP, "169.254.169.254:80", google(doc)},
		"openstack": {metadata.OpenStack, "169.254.169.254:80", nova(doc)},
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", c.address)
			if err != nil {
				t.Fatal(err)
			}
			server := &http.Server{Handler: c.tree, ReadHeaderTimeout: time.Minute}
			go server.Serve(listener)
			defer server.Close()
			want := oracle(t, name)
			compare(t, want, ours(t, c.platform, metadata.Options{}, want))
		})
	}
}

// amazon serves the tree that EC2 and ECS have, for a token, and without if
// that is not required: this release of cloud-init asks ECS for none.
func amazon(doc, token string, required bool) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && r.URL.Path == "/latest/api/token" && r.Header.Get(token+"-ttl-seconds") != "" {
			io.WriteString(out, "the-token")
			return
		}
		if got := r.Header.Get(token); got != "the-token" && (required || got != "") {
			http.Error(out, "no token", http.StatusUnauthorized)
			return
		}
		_, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		answers := map[string]string{
			"user-data": doc, "meta-data/": "instance-id\nami-id", "meta-data/instance-id": "i-1", "meta-data/ami-id": "ami-1",
			"dynamic/instance-identity": "document", "dynamic/instance-identity/": "document", "dynamic/instance-identity/document": "{}",
		}
		if answer, ok := answers[path]; ok {
			io.WriteString(out, answer)
			return
		}
		http.NotFound(out, r)
	})
}

func google(doc string) http.Handler {
	attributes := map[string]string{"user-data": base64.StdEncoding.EncodeToString([]byte(doc)), "user-data-encoding": "base64"}
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		out.Header().Set("Metadata-Flavor", "Google")
		path := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/computeMetadata/v1/"), "/")
		answers := map[string]string{
			"instance/id": "1", "instance/zone": "projects/1/zones/z", "instance/hostname": "h", "project/attributes": "{}",
		}
		for name, value := range attributes {
			answers["instance/attributes/"+name] = value
		}
		all, _ := json.Marshal(attributes)
		answers["instance/attributes"] = string(all)
		answer, ok := answers[path]
		if !ok || r.Header.Get("Metadata-Flavor") != "Google" {
			http.NotFound(out, r)
			return
		}
		io.WriteString(out, answer)
	})
}

func nova(doc string) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		switch strings.TrimSuffix(r.URL.Path, "/") {
		case "/openstack":
			io.WriteString(out, "2018-08-27\nlatest")
		case "/openstack/2018-08-27/meta_data.json", "/openstack/latest/meta_data.json":
			io.WriteString(out, `{"uuid":"83679162-1378-4288-a2d4-70e13ec132aa"}`)
		case "/openstack/2018-08-27/user_data", "/openstack/latest/user_data":
			io.WriteString(out, doc)
		default:
			http.NotFound(out, r)
		}
	})
}

// TestGuestInfo: cloud-init reads VMware's variables from the environment where
// there is no such hypervisor, in the encoding that the provider uses.
func TestGuestInfo(t *testing.T) {
	testns.RequireRoot(t)
	doc := documents(t)["a pod's"]
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	io.WriteString(w, doc)
	w.Close()
	encoded := base64.StdEncoding.EncodeToString(packed.Bytes())
	dir := t.TempDir()
	write(t, filepath.Join(dir, "userdata"), encoded)
	write(t, filepath.Join(dir, "userdata.encoding"), "gzip+base64")
	want := oracle(t, "vmware", dir)

	data, err := metadata.DecodeGuestInfo(encoded, "gzip+base64")
	if err != nil {
		t.Fatal(err)
	}
	seed := t.TempDir()
	write(t, filepath.Join(seed, "user-data"), string(data))
	compare(t, want, ours(t, metadata.Unknown, metadata.Options{SeedDir: seed}, want))
}
