// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/outrigger/outrigger/internal/ociimage"
)

// A bill lists what is in an image's layers: programs with their modules for
// each architecture, and the packages of Debian's files.
func TestBillOfImage(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("dpkg-query"); err != nil {
		t.Skip("needs dpkg-query; run on Debian: go test ./internal/dist")
	}
	b := &builder{
		Options: Options{Root: "../..", Prefix: "localhost/x"}, source: &source{version: "v0.1.0", date: testDate},
		work: t.TempDir(), fresh: t.TempDir(), materials: map[string]debianPackage{},
	}
	program := filepath.Join(t.TempDir(), "program")
	if out, err := exec.Command("go", "build", "-o", program, "../../cmd/oci-image").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var images []v1.Image
	for _, arch := range architectures {
		image, err := ociimage.Pack(ociimage.Files{"/usr/local/bin/example": program, "/usr/bin/dpkg": "/usr/bin/dpkg"}, ociimage.Options{Architecture: arch})
		if err != nil {
			t.Fatal(err)
		}
		images = append(images, image)
	}
	if err := os.MkdirAll(filepath.Dir(b.layout("example")), 0o755); err != nil {
		t.Fatal(err)
	}
	digest, err := ociimage.Write(b.layout("example"), b.imageName("example"), images...)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.billOfImage(t.Context(), "example"); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(b.fresh, "sbom", "image-example.spdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"name": "localhost/x/example:v0.1.0"`, digest.Hex, `"SPDXRef-Program-example-amd64"`, `"SPDXRef-Program-example-arm64"`,
		"pkg:golang/github.com/google/go-containerregistry@", "pkg:deb/debian/dpkg@",
	} {
		if !strings.Contains(string(data), want) {
			t.Errorf("the bill does not have %s", want)
		}
	}
	line, err := b.packImage("example")
	if want := digest.String() + "  localhost/x/example:v0.1.0  linux/amd64,linux/arm64\n"; line != want || err != nil {
		t.Errorf("digest %q, %v; want %q", line, err, want)
	}
	if files := b.dependencies(); len(files) != 1 || !strings.HasPrefix(files[0].URI, "pkg:deb/debian/dpkg@") {
		t.Errorf("materials: %+v", files)
	}
}

// A package of Debian is told once, with its checksum if one is known.
func TestDependencies(t *testing.T) {
	t.Parallel()
	b := &builder{source: &source{commit: "abc", changed: true}, materials: map[string]debianPackage{
		"libc6=2:1+b1": {name: "libc6", version: "2:1+b1", architecture: "amd64", sha256: "0123"},
	}}
	all := b.dependencies()
	if len(all) != 2 {
		t.Fatalf("dependencies: %+v", all)
	}
	if all[0].Digest["gitCommit"] != "abc" || all[0].Annotations["uncommittedChanges"] != true {
		t.Errorf("sources: %+v", all[0])
	}
	if all[1].URI != "pkg:deb/debian/libc6@2%3A1%2Bb1?arch=amd64" || all[1].Digest["sha256"] != "0123" {
		t.Errorf("package: %+v", all[1])
	}
}
