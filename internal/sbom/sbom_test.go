// SPDX-License-Identifier: Apache-2.0

package sbom

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// program builds one with a list of its modules, which a test's has not.
func program(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "oci-image")
	if out, err := exec.Command("go", "build", "-o", path, "../../cmd/oci-image").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// example is an image of two programs and a package of Debian.
func example(t *testing.T, content []byte) []byte {
	t.Helper()
	d := New("example", time.Unix(1700000000, 0))
	image := d.AddArtifact(Artifact{Name: "image/example", Version: "v0.1.0", Purpose: "CONTAINER", SHA256: strings.Repeat("a", 64)})
	for _, arch := range []string{"amd64", "arm64"} {
		if err := d.AddProgram(Program{Name: "oci-image", Version: "v0.1.0", License: "Apache-2.0", Architecture: arch, In: image}, content); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		d.AddDebian(image, "runc", "1.1.5+ds1-1", "amd64")
	}
	data, err := d.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Each thing is listed once, relationships are about what is listed, and equal
// contents give equal bytes.
func TestDocument(t *testing.T) {
	content := program(t)
	data := example(t, content)
	if again := example(t, content); string(again) != string(data) {
		t.Error("the same contents give other bytes")
	}
	var d document
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	ids, locators := map[string]bool{documentID: true}, map[string]bool{}
	for _, p := range d.Packages {
		if ids[p.SPDXID] {
			t.Errorf("%s is the name of two", p.SPDXID)
		}
		ids[p.SPDXID] = true
		for _, r := range p.ExternalRefs {
			path, _, _ := strings.Cut(r.Locator, "@")
			if locators[path] {
				t.Errorf("%s is listed twice", path)
			}
			locators[path] = true
		}
	}
	for _, want := range []string{"pkg:golang/github.com/google/go-containerregistry", "pkg:golang/stdlib", "pkg:deb/debian/runc"} {
		if !locators[want] {
			t.Errorf("%s is not listed", want)
		}
	}
	for _, r := range d.Relationships {
		if !ids[r.Element] || !ids[r.Related] {
			t.Errorf("%+v is about what is not listed", r)
		}
	}
	described := relationship{documentID, "DESCRIBES", "SPDXRef-Artifact-image-example"}
	contains := relationship{described.Related, "CONTAINS", "SPDXRef-Program-oci-image-arm64"}
	if !slices.Contains(d.Relationships, described) || !slices.Contains(d.Relationships, contains) {
		t.Errorf("there is no %+v or no %+v", described, contains)
	}
	if d.CreationInfo.Created != "2023-11-14T22:13:20Z" {
		t.Errorf("created %s", d.CreationInfo.Created)
	}
}

func TestProgramThatIsNotGo(t *testing.T) {
	if err := New("x", time.Time{}).AddProgram(Program{Name: "sh"}, []byte("#!/bin/sh\n")); err == nil {
		t.Error("a script has modules")
	}
}

func TestSourceDate(t *testing.T) {
	if got, err := SourceDate("1700000000"); got.Unix() != 1700000000 || err != nil {
		t.Errorf("source date: %s, %v", got, err)
	}
	if got, err := SourceDate(""); got.Unix() != 0 || err != nil {
		t.Errorf("without one: %s, %v", got, err)
	}
	if _, err := SourceDate("yesterday"); err == nil {
		t.Error("yesterday is a number of seconds")
	}
}
