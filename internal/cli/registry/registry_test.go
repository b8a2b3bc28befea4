// SPDX-License-Identifier: Apache-2.0

package registry_test

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	upstream "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/outrigger/outrigger/internal/accounts"
	"github.com/outrigger/outrigger/internal/cli/registry"
)

const passwd = "root:x:0:0:root:/root:/bin/sh\nweb:x:101:102:web:/srv:/bin/sh\n"

func newImage(t *testing.T, user, arch string, layers ...map[string]string) v1.Image {
	t.Helper()
	img := empty.Image
	for _, files := range layers {
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return tarOf(files), nil })
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.AppendLayers(img, l); err != nil {
			t.Fatal(err)
		}
	}
	cfg, _ := img.ConfigFile()
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture = "linux", arch
	cfg.Config = v1.Config{User: user, Cmd: []string{"sh"}, Env: []string{"A=1"}}
	img, err := mutate.ConfigFile(img, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func tarOf(files map[string]string) io.ReadCloser {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for name, data := range files {
		kind := byte(tar.TypeReg)
		if strings.HasSuffix(name, "/") {
			kind = tar.TypeDir
		}
		w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data)), Typeflag: kind})
		io.WriteString(w, data)
	}
	w.Close()
	return io.NopCloser(&buf)
}

func writeLayout(t *testing.T, images map[string]v1.Image) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "layout")
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	for tag, img := range images {
		cfg, _ := img.ConfigFile()
		err := p.AppendImage(img, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag}),
			layout.WithPlatform(v1.Platform{OS: "linux", Architecture: cfg.Architecture}))
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func digest(t *testing.T, img v1.Image) string {
	d, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

func TestOpenLayout(t *testing.T) {
	one := newImage(t, "", runtime.GOARCH, map[string]string{"a": "1"})
	two := newImage(t, "", runtime.GOARCH, map[string]string{"a": "2"})
	foreign := newImage(t, "", "s390x", map[string]string{"a": "3"})
	single := writeLayout(t, map[string]v1.Image{"v1": one, "z": foreign})
	both := writeLayout(t, map[string]v1.Image{"v1": one, "v2": two, "z": foreign})
	for ref, want := range map[string]any{
		"oci:" + single:                          one,
		"oci:" + single + ":v1":                  one,
		"oci:" + both + ":v2":                    two,
		"oci:" + both + "@" + digest(t, two):     two,
		"oci:" + both:                            "several images",
		"oci:" + both + ":v3":                    `no image "v3"`,
		"oci:" + both + ":z":                     "nothing for linux/" + runtime.GOARCH,
		"oci:" + filepath.Join(single, "absent"): "no such file",
		"oci:":                                   "path is missing",
		"oci:" + t.TempDir():                     "not an OCI layout",
		"docker-archive:/dev/null":               "no usable archive",
		"UPPER CASE":                             "invalid image reference",
	} {
		img, err := registry.Open(t.Context(), ref, registry.Options{})
		switch want := want.(type) {
		case v1.Image:
			if err != nil || img.Digest.String() != digest(t, want) {
				t.Errorf("%s: %v", ref, err)
			}
		case string:
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want %q", ref, err, want)
			}
		}
	}
}

func TestServeGivesTheGuestTheImage(t *testing.T) {
	want := newImage(t, "", runtime.GOARCH, map[string]string{"a": strings.Repeat("data", 1000)}, map[string]string{"b": "2"})
	archive := filepath.Join(t.TempDir(), "image.tar")
	tag, _ := name.NewTag("example.com/app:v1")
	if err := tarball.WriteToFile(archive, tag, want); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"oci:" + writeLayout(t, map[string]v1.Image{"v1": want}), "docker-archive:" + archive, "docker-archive:" + archive + ":example.com/app:v1"} {
		img, err := registry.Open(t.Context(), ref, registry.Options{})
		if err != nil {
			t.Fatal(err)
		}
		wantWhole(t, img)
	}
}

func TestServeIsReadOnlyAndOnlyThatImage(t *testing.T) {
	dir := writeLayout(t, map[string]v1.Image{"v1": newImage(t, "", runtime.GOARCH, map[string]string{"a": "1"})})
	img, err := registry.Open(t.Context(), "oci:"+dir, registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := registry.Serve(netip.MustParseAddr("127.0.0.1"), img)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	host, _, _ := strings.Cut(s.Reference(), "/")
	for _, test := range []struct {
		method, path string
		want         int
	}{
		{"GET", "/v2/", 200},
		{"POST", "/v2/outrigger/image/blobs/uploads/", 405},
		{"PUT", "/v2/outrigger/image/manifests/latest", 405},
		{"DELETE", "/v2/outrigger/image/manifests/" + img.Digest.String(), 405},
		{"GET", "/v2/outrigger/image/manifests/latest", 404},
		{"GET", "/v2/outrigger/image/manifests/" + img.Digest.String(), 200},
		{"GET", "/v2/other/manifests/" + img.Digest.String(), 404},
		{"GET", "/v2/outrigger/image/blobs/../../../../etc/passwd", 404},
		{"GET", "/v2/_catalog", 404},
	} {
		req, _ := http.NewRequest(test.method, "http://"+host+test.path, nil)
		req.URL.Opaque = "//" + host + test.path // keep ".."
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != test.want {
			t.Errorf("%s %s: %d, want %d", test.method, test.path, resp.StatusCode, test.want)
		}
	}
}

func TestOpenRemotePinsTheDigest(t *testing.T) {
	server := httptest.NewServer(upstream.New(upstream.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	ref := strings.TrimPrefix(server.URL, "http://") + "/app:v1"
	img := newImage(t, "web", runtime.GOARCH, map[string]string{"etc/passwd": passwd})
	tag, _ := name.NewTag(ref)
	if err := remote.Write(tag, img); err != nil {
		t.Fatal(err)
	}
	got, err := registry.Open(t.Context(), ref, registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.TrimSuffix(ref, ":v1") + "@" + digest(t, img); got.Reference != want {
		t.Errorf("reference %s, want %s", got.Reference, want)
	}
	if _, err := registry.Open(t.Context(), ref+"x", registry.Options{}); err == nil {
		t.Error("an image that does not exist was opened")
	}
	if _, err := registry.Open(t.Context(), ref, registry.Options{Platform: "linux/s390x"}); err == nil {
		t.Error("an image for another platform was opened")
	}
}

// TestVariantForEveryProcessor: of amd64/v4 and amd64 the second, which every VM runs,
// from a registry and from a folder.
func TestVariantForEveryProcessor(t *testing.T) {
	plain, newest := newImage(t, "", runtime.GOARCH, map[string]string{"a": "plain"}), newImage(t, "", runtime.GOARCH, map[string]string{"a": "v4"})
	index := v1.ImageIndex(empty.Index)
	for _, variant := range []struct {
		name  string
		image v1.Image
	}{{"v4", newest}, {"", plain}} {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: variant.image, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH, Variant: variant.name}}})
	}
	server := httptest.NewServer(upstream.New(upstream.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	ref := strings.TrimPrefix(server.URL, "http://") + "/app:v1"
	tag, _ := name.NewTag(ref)
	if err := remote.WriteIndex(tag, index); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := layout.Write(dir, index); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{ref, "oci:" + dir} {
		for platform, want := range map[string]v1.Image{"": plain, "linux/" + runtime.GOARCH + "/v4": newest} {
			got, err := registry.Open(t.Context(), ref, registry.Options{Platform: platform})
			if err != nil || got.Digest.String() != digest(t, want) {
				t.Errorf("%s for %q: %v, %v", ref, platform, got, err)
			}
		}
	}
}

func TestUser(t *testing.T) {
	img := func(t *testing.T, user string) *registry.Image {
		dir := writeLayout(t, map[string]v1.Image{"v1": newImage(t, user, runtime.GOARCH,
			map[string]string{"etc/passwd": "web:x:1:1:old:/old:/bin/sh\n", "etc/group": "wheel:x:10:web\nstaff:x:50:other\n"},
			map[string]string{"./etc/passwd": passwd})})
		img, err := registry.Open(t.Context(), "oci:"+dir, registry.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return img
	}
	for _, test := range []struct {
		image, flag string
		want        accounts.User
	}{
		{"", "", accounts.User{Home: "/root"}},
		{"web", "", accounts.User{UID: 101, GID: 102, Additional: []uint32{10}, Home: "/srv"}},
		{"web", "0", accounts.User{Home: "/root"}},
		{"", "101", accounts.User{UID: 101, GID: 102, Additional: []uint32{10}, Home: "/srv"}},
		{"", "5000:6000", accounts.User{UID: 5000, GID: 6000}},
		{"", "web:staff", accounts.User{UID: 101, GID: 50, Home: "/srv"}},
	} {
		got, err := img(t, test.image).User(test.flag)
		if err != nil {
			t.Errorf("%+v: %v", test, err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%+v: %s", test, diff)
		}
	}
	for _, bad := range []string{"ghost", "web:ghost", ":1", "web:", "-1", "99999999999"} {
		if _, err := img(t, "").User(bad); err == nil {
			t.Errorf("user %q was taken", bad)
		}
	}
}

func TestUpperLayerHidesThePasswdBelow(t *testing.T) {
	for _, upper := range []string{"etc/.wh.passwd", "etc/.wh..wh..opq", "etc/passwd/"} {
		dir := writeLayout(t, map[string]v1.Image{"v1": newImage(t, "", runtime.GOARCH,
			map[string]string{"etc/passwd": passwd}, map[string]string{upper: ""})})
		img, err := registry.Open(t.Context(), "oci:"+dir, registry.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := img.User("web"); err == nil {
			t.Errorf("the passwd below %s was read", upper)
		}
	}
}

func TestMain(m *testing.M) {
	os.Setenv("DOCKER_CONFIG", "/nonexistent")       // nobody's credentials may steer tests
	if dir := os.Getenv("TEST_PULL_TO"); dir != "" { // the process that TestPullIsKilled kills
		if _, _, err := (registry.Store{Dir: dir}).Pull(context.Background(), os.Args[1], "", func(v1.Update) {}); err != nil {
			log.Fatal(err)
		}
		return
	}
	os.Exit(m.Run())
}

// TestErrorsOfRegistriesHaveAdvice: what users can do about them.
func TestErrorsOfRegistriesHaveAdvice(t *testing.T) {
	for status, want := range map[int]string{http.StatusNotFound: "has no such image or tag", http.StatusUnauthorized: "`docker login 127.0.0.1", 0: "cannot be reached from this host"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v2/" {
				w.WriteHeader(status)
			}
		}))
		defer server.Close()
		if status == 0 {
			server.Close()
		}
		host := server.Listener.Addr().String()
		_, err := registry.Open(t.Context(), host+"/app:v1", registry.Options{Policy: registry.Guest})
		if err == nil || !strings.Contains(err.Error(), "registry "+host+" ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v, want %q", status, err, want)
		}
	}
}
