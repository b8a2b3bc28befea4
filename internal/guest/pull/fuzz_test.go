// SPDX-License-Identifier: Apache-2.0

package pull

import (
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

// FuzzLayer: whatever an archive says, nothing outside of the image changes.
func FuzzLayer(f *testing.F) {
	for _, layer := range [][]file{
		{dir("d/"), reg("d/a", "1"), sym("l", "d"), hard("h", "d/a")},
		{sym("out", "../outside"), reg("out/secret", "2"), hard("x", "out/secret")},
		{sym("a", "/../../outside"), dir("a/b/"), reg("../outside/secret", "2"), reg("/abs", "3")},
		{reg("d/.wh.a", ""), reg(".wh..wh..opq", ""), reg("../.wh.outside", ""), reg(".wh...", ""), reg(".wh..", "")},
	} {
		f.Add(archive(f, layer...))
	}
	f.Add([]byte{0x1f, 0x8b, 8, 0})
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
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
		for range 2 { // once more, over itself
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
