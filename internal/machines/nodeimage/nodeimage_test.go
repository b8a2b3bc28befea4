// SPDX-License-Identifier: Apache-2.0

package nodeimage

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	definition "github.com/outrigger/outrigger/images/node"
	"github.com/outrigger/outrigger/internal/machines/docker/nodeagent"
)

func TestPlace(t *testing.T) {
	for name, want := range map[string]string{
		"./":                           "",
		"./bin/":                       "",
		"./bin/ls":                     "usr/bin/ls",
		"./lib/x86_64-linux-gnu/libc":  "usr/lib/x86_64-linux-gnu/libc",
		"./usr/bin/ls":                 "usr/bin/ls",
		"./usr/share/doc/":             "",
		"./usr/share/doc/bash/NEWS.gz": "",
		"./usr/share/docs":             "usr/share/docs",
		"./../etc/passwd":              "etc/passwd",
	} {
		if got := installPath(name); got != want {
			t.Errorf("%s goes to %q, want %q", name, got, want)
		}
	}
}

// debian is what a package could have.
func debian(t *testing.T) *tar.Reader {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755},
		{Typeflag: tar.TypeDir, Name: "./bin/", Mode: 0o755},
		{Typeflag: tar.TypeReg, Name: "./bin/tool", Mode: 0o4755, Size: 4},
		{Typeflag: tar.TypeLink, Name: "./bin/again", Linkname: "./bin/tool", Mode: 0o755},
		{Typeflag: tar.TypeSymlink, Name: "./sbin/other", Linkname: "/bin/tool", Mode: 0o777},
		{Typeflag: tar.TypeReg, Name: "./usr/sbin/xtables-nft-multi", Mode: 0o755, Size: 4},
		{Typeflag: tar.TypeReg, Name: "./usr/share/doc/tool/README", Mode: 0o644, Size: 4},
		{Typeflag: tar.TypeReg, Name: "./usr/share/ca-certificates/mozilla/A.crt", Mode: 0o644, Size: 4},
		{Typeflag: tar.TypeReg, Name: "./usr/share/ca-certificates/mozilla/B.crt", Mode: 0o644, Size: 4},
	} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			io.WriteString(w, "abc\n")
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return tar.NewReader(&out)
}

// TestTree: a system of packages is merged, whatever they say, has each path
// once, and has what their scripts would have made.
func TestTree(t *testing.T) {
	var out bytes.Buffer
	tr := newTree(&out, time.Unix(defaultEpoch, 0))
	if err := errors.Join(tr.system(), tr.addAll(debian(t)), tr.addAll(debian(t)), tr.file("etc/own/file", 0o644, []byte("x")), tr.finish()); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for r := tar.NewReader(&out); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := got[h.Name]; ok {
			t.Errorf("%s is there twice", h.Name)
		}
		content, _ := io.ReadAll(r)
		got[h.Name] = h.FileInfo().Mode().String() + " " + h.Linkname + string(content)
	}
	for name, want := range map[string]string{
		"bin":                                "Lrwxrwxrwx usr/bin",
		"usr/bin/tool":                       "urwxr-xr-x abc\n",
		"usr/bin/again":                      "-rwxr-xr-x usr/bin/tool",
		"usr/sbin/other":                     "Lrwxrwxrwx /bin/tool",
		"usr/sbin/iptables-restore":          "Lrwxrwxrwx xtables-nft-multi",
		"etc/ssl/certs/ca-certificates.crt":  "-rw-r--r-- abc\nabc\n",
		"etc/own/":                           "drwxr-xr-x ",
		"var/run":                            "Lrwxrwxrwx /run",
		"tmp/":                               "dtrwxrwxrwx ",
		"usr/share/doc/tool/README":          "",
		"usr/share/ca-certificates/mozilla/": "drwxr-xr-x ",
	} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
}

// TestFiles: the agent understands what is in the image for it, and finds the
// programs there.
func TestFiles(t *testing.T) {
	settings := decode[nodeagent.Settings](t, "etc/node-agent/settings.json")
	services, err := fs.Glob(definition.Files, "files/etc/node-agent/services/*.json")
	if err != nil || len(services) < 4 {
		t.Fatalf("services %v, %v", services, err)
	}
	commands := [][]string{settings.ImportImage, settings.Reset}
	for _, file := range services {
		commands = append(commands, decode[nodeagent.Service](t, strings.TrimPrefix(file, "files/")).Command)
	}
	own := []string{"/usr/bin/ctr", "/usr/bin/containerd", "/usr/local/bin/node-network"}
	for _, name := range kubePrograms {
		own = append(own, "/usr/local/bin/"+name)
	}
	for _, c := range commands {
		if len(c) == 0 {
			t.Fatal("a command is empty")
		}
		if _, err := fs.Stat(definition.Files, path.Join("files", c[0])); err != nil && !slices.Contains(own, c[0]) {
			t.Errorf("%s is not in the image", c[0])
		}
	}
	for _, at := range []string{"/proc/sys/kernel/panic", "/proc/sys/vm/overcommit_memory"} {
		if settings.Private[at] == "" {
			t.Errorf("kubelet would change %s of the host", at)
		}
	}
}

// TestKubeletKnowsItsProviderID: the Node has it also where a template gives kubelet no
// argument for it, as those for Cluster API's own Docker provider; one that a template
// gives comes after it.
func TestKubeletKnowsItsProviderID(t *testing.T) {
	text, err := fs.ReadFile(definition.Files, "files/usr/local/lib/node/kubelet")
	if err != nil {
		t.Fatal(err)
	}
	flags := filepath.Join(t.TempDir(), "flags")
	if err := os.WriteFile(flags, []byte(`KUBELET_KUBEADM_ARGS="--node-labels=a=b --provider-id=of-the-template"`), 0o600); err != nil {
		t.Fatal(err)
	}
	script := strings.NewReplacer("/var/lib/kubelet/kubeadm-flags.env", flags, "exec /usr/local/bin/kubelet", "echo").Replace(string(text))
	for id, want := range map[string]string{
		"docker:////m-1": "kubelet.conf.d --provider-id=docker:////m-1 --node-labels=a=b --provider-id=of-the-template\n",
		"":               "kubelet.conf.d --node-labels=a=b --provider-id=of-the-template\n",
	} {
		cmd := exec.Command("/bin/sh", "-c", script)
		cmd.Env = []string{nodeagent.ProviderIDVariable + "=" + id}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.HasSuffix(string(out), want) {
			t.Errorf("%q: %s, %v, want the end %s", id, out, err, want)
		}
	}
}

func decode[T any](t *testing.T, name string) T {
	t.Helper()
	var v T
	text, err := fs.ReadFile(definition.Files, "files/"+name)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return v
}

func TestVersionFlags(t *testing.T) {
	got := strings.Fields(versionFlags("v1.36.3"))
	want := []string{"-X", "k8s.io/component-base/version.gitVersion=v1.36.3", "-X", "k8s.io/component-base/version.gitMajor=1", "-X", "k8s.io/component-base/version.gitMinor=36"}
	if diff := cmp.Diff(want, got[:len(want)]); diff != "" {
		t.Errorf("flags (-want +got):\n%s", diff)
	}
}

// TestModuleOfAnotherVersion: it requires that version of Kubernetes, finds its parts, and
// has none of our own requirements.
func TestModuleOfAnotherVersion(t *testing.T) {
	own := "module example.com/kube\n\ngo 1.26.0\n\nrequire (\n\tk8s.io/kubernetes v1.36.3\n\texample.com/a v1.0.0\n)\n"
	var upstream goMod
	if err := json.Unmarshal([]byte(`{"Replace": [
		{"Old": {"Path": "k8s.io/api"}, "New": {"Path": "./staging/src/k8s.io/api"}},
		{"Old": {"Path": "example.com/b"}, "New": {"Path": "example.com/c"}}]}`), &upstream); err != nil {
		t.Fatal(err)
	}
	want := "module example.com/kube\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v1.35.8-rc.1\n\nreplace k8s.io/api => k8s.io/api v0.35.8-rc.1\n"
	if diff := cmp.Diff(want, moduleText(own, &upstream, "v1.35.8-rc.1")); diff != "" {
		t.Errorf("go.mod (-want +got):\n%s", diff)
	}
	for text, want := range map[string]bool{"v1.35.8": true, "v1.36.0-rc.1": true, "1.35.8": false, "v1.35": false, "v2.0.0": false, "v1.35.8 -x": false, "v1.035.8": false, "": false} {
		if ValidVersion(text) != want {
			t.Errorf("%q is a version: %v", text, !want)
		}
	}
}

func TestWhatAKilledBuildLeftGoes(t *testing.T) {
	output := t.TempDir()
	b := &builder{Options: Options{Output: output, Log: t.Logf}, work: filepath.Join(output, ".work")}
	for range 2 {
		lock, err := b.lockFolder(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		left, err := os.ReadDir(b.work)
		if err != nil || len(left) != 0 {
			t.Fatalf("the build begins with %v: %v", left, err)
		}
		if err := os.WriteFile(filepath.Join(b.work, "half"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if _, err := b.lockFolder(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("a second build went on: %v", err)
		}
		lock.Release()
	}
}
