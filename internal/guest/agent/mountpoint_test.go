// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// TestImagesAreNotReplaced: no storage is mounted or made where the agent keeps images that a policy has admitted, nor around them, and no link
// that came by CopyFile leads there.
func TestImagesAreNotReplaced(t *testing.T) {
	a, sb := specAgent(t)
	a.copies = newCopier(a.cfg.Root)
	a.cfg.Images.Dir = filepath.Join(a.cfg.Root, "pull")
	sb.mounts = map[string]bool{}
	if err := os.MkdirAll(filepath.Join(a.cfg.Root, "pull/images"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(a.copies.shared, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"images": "../../pull/images", "root": "../..", "nowhere": "../../pull/images/" + strings.Repeat("0", 64)} {
		if err := os.Symlink(target, filepath.Join(a.copies.shared, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range []string{
		"/", "/pull", "/pull/images/0123", "/shared/../pull/images/0123", "/shared/containers/images/0123", "/shared/containers/root", "/shared/containers/root/pull/images/1", "/shared/containers/nowhere",
	} {
		err := a.addStorage(sb, &agent.Storage{Driver: driverLocal, MountPoint: requestRoot + at})
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", at, err)
		}
	}
	if entries, err := os.ReadDir(filepath.Join(a.cfg.Root, "pull/images")); len(entries) > 0 || err != nil {
		t.Errorf("%v, %v", entries, err)
	}
	if err := a.addStorage(sb, &agent.Storage{Driver: driverLocal, MountPoint: requestRoot + "/shared/containers/c/rootfs/local/cache"}); err != nil {
		t.Error(err)
	}
	if err := a.addStorage(sb, &agent.Storage{Driver: driverEphemeral, Fstype: "ext4", Source: "/dev/vdb", MountPoint: requestRoot + "/sandbox/disk"}); err == nil || !strings.Contains(err.Error(), "not one of memory") {
		t.Errorf("a disk of the node: %v", err)
	}
}

// TestSourceIsNoLink: where a policy decides by path, a mount's source is not a link out of the folder of copied files.
func TestSourceIsNoLink(t *testing.T) {
	a, _ := specAgent(t)
	a.copies = newCopier(a.cfg.Root)
	PolicyEngine = func(string, []byte) (Policy, error) { return nil, nil }
	t.Cleanup(func() { PolicyEngine = nil })
	if err := os.MkdirAll(a.copies.shared, 0o700); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(a.cfg.Root, "secret")
	if err := os.Mkdir(secret, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../secret", filepath.Join(a.copies.shared, "html")); err != nil {
		t.Fatal(err)
	}
	c := newContainer("c", t.TempDir())
	for _, path := range []string{"html", "html/new"} {
		mount := &oci.Mount{Destination: "/html", Type: "bind", Source: filepath.Join(a.copies.shared, path), Options: []string{"rbind"}}
		if err := a.fixBind(mount, c); err == nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if entries, err := os.ReadDir(secret); len(entries) > 0 || err != nil {
		t.Errorf("%v, %v", entries, err)
	}
}
