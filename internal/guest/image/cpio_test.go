// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"encoding/hex"
	"io/fs"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// readEntry is one file as a reader of the format sees it.
type readEntry struct {
	Name         string
	Mode         uint64
	Links        uint64
	MTime        uint64
	Major, Minor uint64
	Data         string
}

// readCPIO is a second, independent implementation of the newc format.
func readCPIO(t *testing.T, b []byte) []readEntry {
	t.Helper()
	var list []readEntry
	for at := 0; ; {
		if at%4 != 0 || at+110 > len(b) || string(b[at:at+6]) != "070701" {
			t.Fatalf("no header at byte %d of %d", at, len(b))
		}
		field := func(i int) uint64 {
			v, err := strconv.ParseUint(string(b[at+6+8*i:at+14+8*i]), 16, 32)
			if err != nil {
				t.Fatalf("field %d at byte %d: %v", i, at, err)
			}
			return v
		}
		if field(2) != 0 || field(3) != 0 {
			t.Errorf("owner %d:%d, want 0:0", field(2), field(3))
		}
		e := readEntry{Mode: field(1), Links: field(4), MTime: field(5), Major: field(9), Minor: field(10)}
		size, nameSize := int(field(6)), int(field(11))
		e.Name = string(b[at+110 : at+110+nameSize-1])
		data := alignUp(at+110+nameSize, 4)
		e.Data = string(b[data : data+size])
		at = alignUp(data+size, 4)
		if e.Name == "TRAILER!!!" {
			if at != len(b) {
				t.Errorf("%d bytes after the trailer", len(b)-at)
			}
			return list
		}
		list = append(list, e)
	}
}

func sampleTree() *rootfs {
	tree := newRootfs()
	tree.symlink("var/run", "../run")
	tree.charDevice("dev/console", 0o600, 5, 1)
	tree.file("/etc/passwd", fs.FileMode(0o644), []byte("root\n"))
	tree.file("init", 0o755, []byte("x"))
	tree.mkdirMode("tmp", 0o1777)
	return tree
}

func TestCPIOHoldsTheTreeParentsFirst(t *testing.T) {
	var b bytes.Buffer
	if err := writeCPIO(&b, sampleTree(), time.Unix(1000, 0)); err != nil {
		t.Fatal(err)
	}
	want := []readEntry{
		{Name: "dev", Mode: 0o040755, Links: 2, MTime: 1000},
		{Name: "dev/console", Mode: 0o020600, Links: 1, MTime: 1000, Major: 5, Minor: 1},
		{Name: "etc", Mode: 0o040755, Links: 2, MTime: 1000},
		{Name: "etc/passwd", Mode: 0o100644, Links: 1, MTime: 1000, Data: "root\n"},
		{Name: "init", Mode: 0o100755, Links: 1, MTime: 1000, Data: "x"},
		{Name: "tmp", Mode: 0o041777, Links: 2, MTime: 1000},
		{Name: "var", Mode: 0o040755, Links: 2, MTime: 1000},
		{Name: "var/run", Mode: 0o120777, Links: 1, MTime: 1000, Data: "../run"},
	}
	if diff := cmp.Diff(want, readCPIO(t, b.Bytes())); diff != "" {
		t.Error(diff)
	}
}

func TestCPIOOfEqualTreesIsEqual(t *testing.T) {
	var a, b bytes.Buffer
	for _, w := range []*bytes.Buffer{&a, &b} {
		if err := writeCPIO(w, sampleTree(), time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Errorf("archives differ:\n%s\n%s", hex.Dump(a.Bytes()), hex.Dump(b.Bytes()))
	}
}

func TestCPIONamesTheFileItCannotWrite(t *testing.T) {
	tree := newRootfs()
	tree.file("big", 0o644, make([]byte, 2<<20))
	err := writeCPIO(failingWriter{}, tree, time.Unix(0, 0))
	if err == nil || !strings.Contains(err.Error(), "big") {
		t.Errorf("got %v, want an error that names the file", err)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, fs.ErrClosed }
