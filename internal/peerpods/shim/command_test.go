// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"bytes"
	"os"
	"strings"
	"testing"

	taskapi "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/api/types"
	"google.golang.org/protobuf/proto"
)

func TestCommandLine(t *testing.T) {
	for line, want := range map[string]string{
		"start":                                     "-id is missing",
		"-id x start":                               "-namespace is missing",
		"-id x -namespace n frobnicate":             "neither start nor delete",
		"-id x -namespace n start surplus":          `unexpected argument "surplus"`,
		"-id x -namespace n -bundle /nowhere start": "OCI spec",
	} {
		var stderr bytes.Buffer
		if code := Main(strings.Fields(line), &bytes.Buffer{}, &stderr); code == 0 || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: status %d, %q", line, code, stderr.String())
		}
	}
}

func TestInfo(t *testing.T) {
	var out bytes.Buffer
	if code := Main([]string{"-info"}, &out, &out); code != 0 {
		t.Fatal(out.String())
	}
	var info types.RuntimeInfo
	if err := proto.Unmarshal(out.Bytes(), &info); err != nil || info.Name != "io.containerd.outrigger.v2" {
		t.Errorf("%v, %v", &info, err)
	}
}

// delete removes the VM of a shim that is gone.
func TestDeleteAfterACrash(t *testing.T) {
	r := newRig(t)
	r.sandbox()
	var out, stderr bytes.Buffer
	code := Main([]string{"-namespace", "k8s.io", "-id", "sb", "-address", r.dir + "/c", "-bundle", r.dir + "/sb", "delete"}, &out, &stderr)
	if code != 0 {
		t.Fatal(stderr.String())
	}
	var resp taskapi.DeleteResponse
	if err := proto.Unmarshal(out.Bytes(), &resp); err != nil || resp.ExitStatus != 137 || resp.ExitedAt == nil {
		t.Errorf("%v, %v", &resp, err)
	}
	if r.node.VMs() != 0 {
		t.Error("the VM is left")
	}
}

// The other containers of the pod have no VM of their own.
func TestDeleteOfAContainerLeavesTheVM(t *testing.T) {
	r := newRig(t)
	r.sandbox()
	dir := r.bundleOf("app", podSpecOf("container", "true"))
	var stderr bytes.Buffer
	if code := Main([]string{"-namespace", "n", "-id", "app", "-bundle", dir, "delete"}, &bytes.Buffer{}, &stderr); code != 0 {
		t.Fatal(stderr.String())
	}
	if r.node.VMs() != 1 {
		t.Error("the VM is gone")
	}
}

func TestStartWithoutItsSandbox(t *testing.T) {
	r := &rig{t: t, dir: t.TempDir()}
	dir := r.bundleOf("app", podSpecOf("container", "true"))
	var stderr bytes.Buffer
	code := Main([]string{"-namespace", "n", "-id", "app", "-address", dir, "-bundle", dir, "start"}, &bytes.Buffer{}, &stderr)
	if code == 0 || !strings.Contains(stderr.String(), "sandbox sb has no shim") {
		t.Errorf("status %d, %q", code, stderr.String())
	}
}

func TestFIFOOnly(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"binary:///bin/x?a=b", dir + "/file", dir + "/none"} {
		if s, err := (paths{stdout: path}).open(); err == nil {
			s.Close()
			t.Errorf("%s was opened", path)
		}
	}
}
