// SPDX-License-Identifier: Apache-2.0

package directvolume

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func TestRecordsOfAPod(t *testing.T) {
	root := filepath.Join(t.TempDir(), "direct-volumes")
	if list, err := OfPod(root, "u1"); err != nil || len(list) > 0 {
		t.Errorf("without any: %v, %v", list, err)
	}
	ours := &Info{VolumeType: "block", Device: "disk-1", FsType: "ext4", Metadata: map[string]string{MetadataDisk: "disk-1"}, Options: []string{"ro"}}
	path := func(uid, name string) string {
		return "/var/lib/kubelet/pods/" + uid + "/volumes/kubernetes.io~csi/" + name + "/mount"
	}
	for target, info := range map[string]*Info{
		path("u1", "pv1"): ours, path("u2", "pv2"): ours, "/elsewhere/pods/u1/mount": ours,
		path("u1", "foreign"): {VolumeType: "block", Device: "/dev/sda"},
	} {
		if err := Write(root, target, info); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "no base64!"), 0o700); err != nil {
		t.Fatal(err)
	}
	list, err := OfPod(root, "u1")
	if want := map[string]*Info{path("u1", "pv1"): ours}; err != nil || !reflect.DeepEqual(list, want) {
		t.Errorf("%v, %v; want %v", list, err, want)
	}
	if list, err := OfPod(root, ""); err != nil || len(list) > 0 {
		t.Errorf("without a pod: %v, %v", list, err)
	}
	if err := errors.Join(Remove(root, path("u1", "pv1")), Remove(root, path("u1", "pv1"))); err != nil {
		t.Error(err)
	}
	if _, err := Read(root, path("u1", "pv1")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after its removal: %v", err)
	}
}

func TestAttached(t *testing.T) {
	dir := t.TempDir()
	if list, err := ReadAttached(dir); err != nil || list != nil {
		t.Errorf("without a file: %v, %v", list, err)
	}
	want := []Attached{{Target: "/a", Serial: "s1", FsType: "ext4", Options: []string{"ro"}, FSGroup: "1000"}}
	if err := WriteAttached(dir, want); err != nil {
		t.Fatal(err)
	}
	if list, err := ReadAttached(dir); err != nil || !reflect.DeepEqual(list, want) {
		t.Errorf("%v, %v", list, err)
	}
}
