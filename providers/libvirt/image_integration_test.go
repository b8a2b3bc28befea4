// SPDX-License-Identifier: Apache-2.0

//go:build integration

package libvirt

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/libvirtd"
)

// TestImportImage uploads an image, makes an instance of it, and looks at what
// a failed upload leaves.
func TestImportImage(t *testing.T) {
	d := libvirtd.Start(t, libvirtd.Options{})
	p := connect(t, testConfig(d))
	file := filepath.Join(t.TempDir(), "new.qcow2")
	if out, err := exec.Command("qemu-img", "create", "-f", "qcow2", file, "64M").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	source := provider.ImageSource{Name: "new-image", Location: file, Format: provider.FormatQcow2, Arch: "amd64"}
	var last provider.ImageProgress
	id, err := p.ImportImage(t.Context(), source, func(now provider.ImageProgress) { last = now })
	if err != nil || id != "new-image" {
		t.Fatalf("image %q, %v", id, err)
	}
	t.Cleanup(func() {
		if err := p.hv.deleteVolume(context.Background(), libvirtd.Pool, id); err != nil {
			t.Error(err)
		}
		d.WantNothing(t)
	})
	if info, _ := os.Stat(file); last.Done != info.Size() || last.Total != info.Size() {
		t.Errorf("last progress %+v of %d bytes", last, info.Size())
	}
	want := spec("imported")
	want.Image = id
	i, err := p.CreateInstance(t.Context(), "pod", "imported", userData, want)
	if err != nil {
		t.Fatal(err)
	}
	remove(t, p, i.ID)

	_, err = p.ImportImage(t.Context(), source, nil)
	wantError(t, err, provider.ErrAlreadyExists, "new-image")
	source.Name, source.Location = "absent", filepath.Join(t.TempDir(), "absent.qcow2")
	_, err = p.ImportImage(t.Context(), source, nil)
	wantError(t, err, provider.ErrNotFound, "absent.qcow2")

	// Given up in the middle of the upload.
	source.Name, source.Location, source.Format = "half", filepath.Join(t.TempDir(), "large.raw"), provider.FormatRaw
	if err := os.WriteFile(source.Location, make([]byte, 64<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, err := p.ImportImage(ctx, source, func(provider.ImageProgress) { cancel() }); err == nil {
		t.Error("an import that was given up succeeded")
	}
	if _, err := p.hv.volume(t.Context(), libvirtd.Pool, "half"); err == nil {
		t.Error("half an image was left in the pool")
	}
}
