// SPDX-License-Identifier: Apache-2.0

package directvolume

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const target = "/var/lib/kubelet/pods/6d6a/volumes/kubernetes.io~csi/pvc-1/mount"

// TestKataReadsIt: path, names and mode are those of Kata's runtime (pkg/direct-volume).
func TestKataReadsIt(t *testing.T) {
	root := t.TempDir()
	r := &Info{VolumeType: TypeBlock, Device: "disk-1", FsType: "ext4", Metadata: map[string]string{MetadataFSGroup: "7"}, Options: []string{"ro"}}
	if err := Write(root, target, r); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "L3Zhci9saWIva3ViZWxldC9wb2RzLzZkNmEvdm9sdW1lcy9rdWJlcm5ldGVzLmlvfmNzaS9wdmMtMS9tb3VudA==", "mountInfo.json")
	data, err := os.ReadFile(path)
	want := `{"volume-type":"block","device":"disk-1","fstype":"ext4","metadata":{"fsGroup":"7"},"options":["ro"]}`
	if err != nil || string(data) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, data, want)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestRecord(t *testing.T) {
	root := filepath.Join(t.TempDir(), "not", "there")
	if _, err := Read(root, target); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no record: %v", err)
	}
	if targets, err := Targets(root); err != nil || len(targets) > 0 {
		t.Errorf("no folder: %q, %v", targets, err)
	}
	for _, device := range []string{"disk-1", "disk-2"} { // the second replaces it
		want := &Info{VolumeType: TypeBlock, Device: device, FsType: "xfs"}
		if err := Write(root, target, want); err != nil {
			t.Fatal(err)
		}
		if got, err := Read(root, target); err != nil || cmp.Diff(want, got) != "" {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if targets, err := Targets(root); err != nil || !slices.Equal(targets, []string{target}) {
		t.Errorf("%q, %v", targets, err)
	}
	for range 2 {
		if err := Remove(root, target); err != nil {
			t.Error(err)
		}
	}
	if targets, err := Targets(root); err != nil || len(targets) > 0 {
		t.Errorf("after removal: %q, %v", targets, err)
	}
}

// TestKilledWriter: what a killed writer leaves is not a record, and the next writer removes it:
// Kata would take it for the id of a sandbox.
func TestKilledWriter(t *testing.T) {
	root := t.TempDir()
	left := filepath.Join(Folder(root, target), ".mountInfo.json-123")
	if err := os.MkdirAll(Folder(root, target), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(left, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if targets, err := Targets(root); err != nil || len(targets) > 0 {
		t.Errorf("%q, %v", targets, err)
	}
	if err := Write(root, target, &Info{Device: "disk-1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the leftover: %v", err)
	}
}
