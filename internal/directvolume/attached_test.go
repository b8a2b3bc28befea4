// SPDX-License-Identifier: Apache-2.0

package directvolume

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestRecordsOfAPod(t *testing.T) {
	root := t.TempDir()
	of := func(uid, disk string) *Info {
		return &Info{VolumeType: TypeBlock, Device: disk, FsType: "ext4", Metadata: map[string]string{MetadataDisk: disk, MetadataPodUID: uid}}
	}
	for target, info := range map[string]*Info{"/pods/u1/a": of("u1", "d1"), "/pods/u2/b": of("u2", "d2"), "/pods/u1/c": of("", "d3"), "/publish/pv/u1": of("u1", "d6"), "/publish/pv/u2": of("u2", "d7"), "/d": of("u1", "d4"), "/pods/u1/foreign": {Device: "/dev/sda", Metadata: map[string]string{MetadataPodUID: "u1"}}} {
		if err := Write(root, target, info); err != nil {
			t.Fatal(err)
		}
	}
	damaged := Folder(root, "/pods/u2/damaged")
	if err := errors.Join(os.Mkdir(damaged, 0o700), os.WriteFile(filepath.Join(damaged, recordName), []byte("{"), 0o600)); err != nil {
		t.Fatal(err)
	}
	long := "/pods/u1/" + strings.Repeat("long", 60)
	if err := Write(root, long, of("u1", "d5")); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("a record that cannot be: %v", err)
	}
	if _, err := Read(root, long); !errors.Is(err, fs.ErrNotExist) || Remove(root, long) != nil {
		t.Errorf("a record that cannot be: %v, %v", err, Remove(root, long))
	}
	list, err := OfPod(root, "u1")
	if want := map[string]*Info{"/pods/u1/a": of("u1", "d1"), "/publish/pv/u1": of("u1", "d6")}; err != nil || !reflect.DeepEqual(list, want) {
		t.Errorf("%v, %v; want %v", list, err, want)
	}
	if list, err := OfPod(root, ""); err != nil || len(list) > 0 {
		t.Errorf("without a pod: %v, %v", list, err)
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
