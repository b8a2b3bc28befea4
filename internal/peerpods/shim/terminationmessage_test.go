// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"os"
	"path/filepath"
	"testing"

	taskapi "github.com/containerd/containerd/api/runtime/task/v2"
	oci "github.com/opencontainers/runtime-spec/specs-go"
)

// TestTerminationMessage: what a container wrote is on the node when its exit
// is known there.
func TestTerminationMessage(t *testing.T) {
	r := newRig(t)
	r.sandbox()
	path := filepath.Join(r.dir, "pods/u/containers/app/0a1b2c3d")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("longer than the message"), 0o666); err != nil {
		t.Fatal(err)
	}
	spec := podSpecOf("container", "sleep", "infinity")
	spec.Mounts = []oci.Mount{{Type: "bind", Source: path, Destination: "/dev/termination-log", Options: []string{"rbind", "rw"}}}
	f := r.fifos("app")
	if err := r.create(&taskapi.CreateTaskRequest{ID: "app", Stdin: f.stdin, Stdout: f.stdout, Stderr: f.stderr}, spec); err != nil {
		t.Fatal(err)
	}
	r.start("app", "")
	r.node.Agent("sb").Write(r.node.Agent("sb").Created()["app"].OCI.Mounts[0].Source, []byte("the butler"))
	if _, err := r.Kill(r.ctx(), &taskapi.KillRequest{ID: "app", Signal: 9}); err != nil {
		t.Fatal(err)
	}
	r.waitExit("app", "")
	if data, err := os.ReadFile(path); string(data) != "the butler" {
		t.Errorf("the node has %q, %v", data, err)
	}
}

func TestIsLastWords(t *testing.T) {
	dir := t.TempDir()
	for name, want := range map[string]bool{
		"pods/u/containers/app/0a1b2c3d":                 true,
		"pods/u/etc-hosts":                               false,
		"pods/u/volumes/kubernetes.io~secret/x/password": false,
		"pods/u/containers/app/deep/file":                false,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := isTerminationMessage(path); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if isTerminationMessage(filepath.Join(dir, "pods/u/containers/app/gone")) || isTerminationMessage("/") {
		t.Error("what is not there is a termination message")
	}
}
