// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// fuzzed bounds what one input unpacks to, in bytes: it is about paths and kinds.
const fuzzed = 1 << 20

// kinds are those of an entry, by the letter that a script has for it.
var kinds = map[byte]byte{
	'f': tar.TypeReg, 'd': tar.TypeDir, 's': tar.TypeSymlink, 'h': tar.TypeLink,
	'p': tar.TypeFifo, 'c': tar.TypeChar, 'g': tar.TypeXGlobalHeader,
}

// scripted makes an archive of lines "KIND NAME TARGET", since the check sums of one
// that was changed by chance would be wrong. A file has its target as content.
func scripted(script string) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for line := range strings.Lines(script) {
		f := strings.Split(strings.TrimSuffix(line, "\n")+"  ", " ")
		kind := kinds[(f[0] + " ")[0]]
		hdr := tar.Header{Name: f[1], Linkname: f[2], Typeflag: kind, Mode: 0o4755, Format: tar.FormatPAX}
		if kind == tar.TypeReg {
			hdr.Size, hdr.Linkname = int64(len(f[2])), ""
		}
		if w.WriteHeader(&hdr) == nil && hdr.Size > 0 {
			io.WriteString(w, f[2])
		}
	}
	w.Close()
	return out.Bytes()
}

// FuzzLayer: whatever archives say, nothing outside of the image changes.
func FuzzLayer(f *testing.F) {
	f.Add("d d\nf d/a 1\ns l d\nh h d/a\n", archive(f, dir("d/"), reg("d/a", "1")))
	f.Add("s out ../outside\nf out/secret 2\nh x out/secret\n", []byte{0x1f, 0x8b, 8, 0})
	f.Add("s a /../../outside\nd a/b\nf ../outside/secret 2\nf /abs 3\n", []byte{0x28, 0xb5, 0x2f, 0xfd, 0})
	f.Add("f d/.wh.a\nf .wh..wh..opq\nf ../.wh.outside\nf .wh...\nf .wh..\n", []byte(nil))
	f.Add("s rootfs ..\nd rootfs/outside\np rootfs/outside/secret\nc dev/zero\n", []byte(nil))
	f.Fuzz(func(t *testing.T, script string, raw []byte) {
		base := t.TempDir()
		root, secret := filepath.Join(base, "rootfs"), filepath.Join(base, "outside/secret")
		for _, folder := range []string{root, filepath.Dir(secret)} {
			if err := os.Mkdir(folder, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(secret, []byte("1"), 0o600); err != nil {
			t.Fatal(err)
		}
		u, err := newUnpacker(root)
		if err != nil {
			t.Fatal(err)
		}
		defer u.close()
		u.room, u.entries = fuzzed, 1000
		layer := scripted(script)
		for _, data := range [][]byte{layer, raw, layer} { // again, over itself
			if r, err := decompressor(bytes.NewReader(data)); err == nil {
				u.layer(io.LimitReader(r, fuzzed))
				r.Close()
			}
		}
		u.finish()
		wantOutside(t, base, secret)
	})
}

// wantOutside is an error if anything beside the image is not as it was.
func wantOutside(t *testing.T, base, secret string) {
	t.Helper()
	info, err := os.Lstat(secret)
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm() != 0o600 {
		t.Fatalf("the file outside is %v, %v", info, err)
	}
	content, _ := os.ReadFile(secret)
	beside, _ := os.ReadDir(base)
	outside, _ := os.ReadDir(filepath.Dir(secret))
	if string(content) != "1" || len(beside) != 2 || len(outside) != 1 {
		t.Fatalf("outside there is %q, %v, %v", content, beside, outside)
	}
}

// FuzzIndex: whoever serves an image writes its index and manifests.
func FuzzIndex(f *testing.F) {
	const digest = `"digest":"sha256:f8902e114ef118304e561c3ecd4d0b543adc226b7a07f675f56564185ffe0c07","size":1`
	f.Add([]byte(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{`+digest+`,"platform":{"os":"linux","architecture":"amd64"}}]}`), "application/json")
	f.Add([]byte(`{"manifests":[{`+digest+`},{"platform":{"os":"unknown"}}]}`), "x; y")
	f.Add([]byte(`{"manifests":[{`+digest+`}]}`), "")
	f.Add([]byte(`{"config":{`+digest+`},"layers":[{`+digest+`}]}`), "application/vnd.docker.distribution.manifest.v2+json")
	f.Add([]byte(`{"manifests":[{"platform":null,"digest":"sha256:"}]}`), "")
	ref, err := name.ParseReference("registry.example.com/app:1")
	if err != nil {
		f.Fatal(err)
	}
	p := &Puller{cfg: Config{Platform: v1.Platform{OS: "linux", Architecture: "amd64"}}}
	f.Fuzz(func(t *testing.T, raw []byte, header string) {
		manifestKind(header, raw)
		if manifest, err := v1.ParseManifest(bytes.NewReader(raw)); err == nil {
			(&source{manifest: manifest}).size()
			for _, layer := range manifest.Layers {
				checkLayerType(layer)
			}
		}
		index, err := v1.ParseIndexManifest(bytes.NewReader(raw))
		if err != nil {
			return
		}
		chosen, err := p.choose(ref, index)
		switch {
		case err != nil:
			if !strings.Contains(err.Error(), ref.Name()) || !strings.Contains(err.Error(), "linux/amd64") {
				t.Errorf("the error says neither image nor platform: %v", err)
			}
		case chosen.Platform != nil && !p.runsHere(*chosen.Platform), chosen.Platform == nil && len(index.Manifests) != 1:
			t.Errorf("chosen is %+v", chosen)
		}
	})
}
