// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
)

// file is an archive entry; Typeflag 0 is a regular file.
type file struct {
	tar.Header
	content string
}

func dir(name string) file {
	return file{Header: tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755}}
}
func reg(name, content string) file {
	return file{Header: tar.Header{Name: name, Mode: 0o644}, content: content}
}
func sym(name, target string) file {
	return file{Header: tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}}
}
func hard(name, target string) file {
	return file{Header: tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: target}}
}

func archive(t testing.TB, files ...file) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range files {
		hdr := f.Header
		hdr.Size = int64(len(f.content))
		if hdr.Typeflag == 0 {
			hdr.Typeflag = tar.TypeReg
		}
		if err := w.WriteHeader(&hdr); err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, f.content)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func gzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	w.Write(data)
	w.Close()
	return buf.Bytes()
}

func gzipLayer(t *testing.T, files ...file) v1.Layer {
	return static.NewLayer(gzipped(t, archive(t, files...)), types.OCILayer)
}

func image(t *testing.T, layers ...v1.Layer) v1.Image {
	t.Helper()
	return platformImage(t, v1.Platform{OS: "linux", Architecture: "amd64"}, layers...)
}

func platformImage(t *testing.T, p v1.Platform, layers ...v1.Layer) v1.Image {
	t.Helper()
	img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	for _, layer := range layers {
		kind, _ := layer.MediaType()
		var err error
		if img, err = mutate.Append(img, mutate.Addendum{Layer: layer, MediaType: kind}); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture, cfg.Config.Cmd = p.OS, p.Architecture, []string{"/bin/" + p.Architecture}
	if img, err = mutate.ConfigFile(img, cfg); err != nil {
		t.Fatal(err)
	}
	return img
}

// world is a registry, with a door in front of it that a test can trouble,
// and a puller.
type world struct {
	*Puller
	t        *testing.T
	host     string
	registry http.Handler
	blobs    atomic.Int32 // requests for blobs

	mu   sync.Mutex
	door func(http.ResponseWriter, *http.Request)
	log  bytes.Buffer
}

func newWorld(t *testing.T, change func(*Config)) *world {
	t.Helper()
	w := &world{t: t, registry: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	w.through(w.registry.ServeHTTP)
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	w.host = strings.TrimPrefix(server.URL, "http://")
	cfg := Config{
		Dir: t.TempDir(), Platform: v1.Platform{OS: "linux", Architecture: "amd64"},
		InsecureRegistries: []string{w.host},
		Backoff:            time.Millisecond, Log: slog.New(slog.NewTextHandler(&w.log, nil)),
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if w.Puller, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	return w
}

// through sets who answers requests from now on.
func (w *world) through(door func(http.ResponseWriter, *http.Request)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.door = door
}

func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
		w.blobs.Add(1)
	}
	w.mu.Lock()
	door := w.door
	w.mu.Unlock()
	door(rw, r)
}

func (w *world) ref(path string) string { return w.host + "/" + path }

func (w *world) push(path string, img v1.Image) {
	w.t.Helper()
	ref, err := name.ParseReference(w.ref(path))
	if err != nil {
		w.t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) pull(ref string) *Image {
	w.t.Helper()
	img, err := w.Pull(w.t.Context(), ref, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return img
}

func (w *world) pullFails(ref string, want ...string) error {
	w.t.Helper()
	_, err := w.Pull(w.t.Context(), ref, nil)
	if err == nil {
		w.t.Fatalf("pull %s succeeded", ref)
	}
	for _, part := range want {
		if !strings.Contains(err.Error(), part) {
			w.t.Errorf("pull %s: %v\nlacks %q", ref, err, part)
		}
	}
	left, _ := filepath.Glob(filepath.Join(w.cfg.Dir, "images", "*"))
	if len(left) != 0 {
		w.t.Errorf("left behind: %v", left)
	}
	return err
}

// tree is what a folder holds: "dir/", "link -> target", "file=content".
func tree(t *testing.T, root string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		switch {
		case d.IsDir():
			rel += "/"
		case d.Type()&os.ModeSymlink != 0:
			target, _ := os.Readlink(path)
			rel += " -> " + target
		case d.Type().IsRegular():
			content, _ := os.ReadFile(path)
			rel += "=" + string(content)
		default:
			rel += " " + d.Type().String()
		}
		all = append(all, rel)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func wantTree(t *testing.T, root string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, tree(t, root)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestPullByTagAndByDigestIsOneImage(t *testing.T) {
	w := newWorld(t, nil)
	img := image(t, gzipLayer(t, dir("bin/"), reg("bin/sh", "shell")))
	w.push("a/b:1", img)
	digest, _ := img.Digest()

	first := w.pull(w.ref("a/b:1"))
	wantTree(t, first.RootFS, "bin/", "bin/sh=shell")
	if first.Digest != digest || first.Config.Cmd[0] != "/bin/amd64" {
		t.Errorf("digest %s, command %v", first.Digest, first.Config.Cmd)
	}
	before := w.blobs.Load()
	second := w.pull(w.ref("a/b@" + digest.String()))
	if second.RootFS != first.RootFS {
		t.Errorf("unpacked again at %s", second.RootFS)
	}
	if got := w.blobs.Load() - before; got != 1 {
		t.Errorf("%d blobs fetched for an image that is here; want its config only", got)
	}
}

func TestLayerFormats(t *testing.T) {
	plain := archive(t, reg("plain", "1"))
	var packed bytes.Buffer
	enc, _ := zstd.NewWriter(&packed)
	enc.Write(archive(t, reg("zstd", strings.Repeat("z", 1<<20))))
	enc.Close()
	w := newWorld(t, nil)
	w.push("x", image(t,
		static.NewLayer(plain, types.OCIUncompressedLayer),
		static.NewLayer(packed.Bytes(), types.OCILayerZStd),
		static.NewLayer(gzipped(t, archive(t, reg("docker", "3"))), types.DockerLayer)))
	wantTree(t, w.pull(w.ref("x")).RootFS, "docker=3", "plain=1", "zstd="+strings.Repeat("z", 1<<20))
}

func TestConcurrentPullsOfOneImageDownloadOnce(t *testing.T) {
	w := newWorld(t, nil)
	w.push("x", image(t, gzipLayer(t, reg("f", "1"))))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := w.Pull(t.Context(), w.ref("x"), nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := w.blobs.Load(); got != 8+1 {
		t.Errorf("%d blob requests, want 8 configs and one layer", got)
	}
}

func TestPlatforms(t *testing.T) {
	w := newWorld(t, nil)
	amd64, arm64 := v1.Platform{OS: "linux", Architecture: "amd64"}, v1.Platform{OS: "linux", Architecture: "arm64", Variant: "v8"}
	index := func(platforms ...v1.Platform) v1.ImageIndex {
		idx := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
		for _, p := range platforms {
			img := platformImage(t, p, gzipLayer(t, reg(p.Architecture, "")))
			idx = mutate.AppendManifests(idx, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &p}})
		}
		return idx
	}
	push := func(path string, idx v1.ImageIndex) {
		ref, _ := name.ParseReference(w.ref(path))
		if err := remote.WriteIndex(ref, idx); err != nil {
			t.Fatal(err)
		}
	}
	push("none", index(arm64, v1.Platform{OS: "unknown", Architecture: "unknown"}))
	w.pullFails(w.ref("none"), w.ref("none")+":latest has no linux/amd64; it has linux/arm64/v8")
	w.push("single", platformImage(t, arm64, gzipLayer(t, reg("f", ""))))
	w.pullFails(w.ref("single"), "has no linux/amd64; it has linux/arm64")

	push("both", index(arm64, amd64))
	wantTree(t, w.pull(w.ref("both")).RootFS, "amd64=")

	newest, newer := amd64, amd64
	newest.Variant, newer.Variant = "v4", "v3"
	idx := index(newest, newer)
	plain := platformImage(t, amd64, gzipLayer(t, reg("for-all", "")))
	push("variants", mutate.AppendManifests(idx, mutate.IndexAddendum{Add: plain, Descriptor: v1.Descriptor{Platform: &amd64}}))
	wantTree(t, w.pull(w.ref("variants")).RootFS, "for-all=")
}

func TestCredentialsComeFromTheAuthFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "auth.json")
	w := newWorld(t, func(cfg *Config) { cfg.AuthFile = file })
	w.push("team/app", image(t, gzipLayer(t, reg("f", ""))))
	w.through(func(rw http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user+":"+password != "me:secret" {
			rw.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			rw.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.registry.ServeHTTP(rw, r)
	})
	write := func(auths string) {
		if err := os.WriteFile(file, []byte(`{"auths":{`+auths+`}}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.pullFails(w.ref("team/app"), "credentials")
	write(`"` + w.host + `":{"auth":"bWU6d3Jvbmc="}`)
	w.pullFails(w.ref("team/app"), "credentials")
	if err := os.WriteFile(file, []byte(`{"auths":"hunter2`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.pullFails(w.ref("team/app"), file); strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error shows the file: %v", err)
	}
	// The longer path wins.
	write(`"https://` + w.host + `/v1/":{"username":"no","password":"no"},"` + w.host + `/team":{"auth":"bWU6c2VjcmV0"}`)
	w.pull(w.ref("team/app"))
}

func TestDownloadResumesWhereItBroke(t *testing.T) {
	w := newWorld(t, nil)
	content := make([]byte, 300_000)
	src := rand.NewPCG(3, 4)
	for i := range content {
		content[i] = byte(src.Uint64())
	}
	layer := static.NewLayer(gzipped(t, archive(t, reg("f", string(content)))), types.OCILayer)
	w.push("x", image(t, layer))
	digest, _ := layer.Digest()
	raw, _ := io.ReadAll(must(layer.Compressed()))
	var ranges []string
	w.through(func(rw http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, digest.String()) {
			w.registry.ServeHTTP(rw, r)
			return
		}
		ranges = append(ranges, r.Header.Get("Range"))
		from := 0
		if fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); from > 0 && len(ranges)%2 == 0 {
			rw.WriteHeader(http.StatusPartialContent)
		} else {
			from = 0 // as a server that knows no ranges
		}
		rw.Write(raw[from:min(len(raw), max(from, 100_000*(len(ranges)-1))+100_000)])
		rw.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	progress := NewProgress()
	img, err := w.Pull(t.Context(), w.ref("x"), progress)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(filepath.Join(img.RootFS, "f")); !bytes.Equal(got, content) {
		t.Error("content differs")
	}
	if len(ranges) < 3 || ranges[1] == "" {
		t.Errorf("requests with ranges %q; want several, from where it broke", ranges)
	}
	if s := progress.Wait(t.Context(), -1); s.Done != int64(len(raw)) || s.Total != s.Done || !s.Finished {
		t.Errorf("progress %+v, want %d bytes", s, len(raw))
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestTamperedLayerIsRefused(t *testing.T) {
	w := newWorld(t, nil)
	layer := gzipLayer(t, reg("f", "good"))
	w.push("x", image(t, layer))
	digest, _ := layer.Digest()
	size, _ := layer.Size()
	evil := gzipped(t, archive(t, reg("f", "evil")))
	w.through(func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, digest.String()) {
			rw.Write(append(evil, make([]byte, int(size))...)[:size])
			return
		}
		w.registry.ServeHTTP(rw, r)
	})
	w.pullFails(w.ref("x"), "digest does not match")
}

func TestServerErrorsAreRetriedAndMissingImagesAreNot(t *testing.T) {
	w := newWorld(t, nil)
	w.push("x", image(t, gzipLayer(t, reg("f", ""))))
	var asked atomic.Int32
	w.through(func(rw http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/manifests/") && asked.Add(1) < 3 {
			rw.WriteHeader(http.StatusBadGateway)
			return
		}
		w.registry.ServeHTTP(rw, r)
	})
	w.pull(w.ref("x"))
	asked.Store(100)
	if err := w.Forget(); err != nil {
		t.Fatal(err)
	}
	w.pullFails(w.ref("nothere"), "no such image")
	if got := asked.Load(); got != 101 {
		t.Errorf("asked %d times for an image that does not exist", got-100)
	}
}

func TestDeadlineLeavesTimeToSayWhy(t *testing.T) {
	w := newWorld(t, func(cfg *Config) { cfg.Backoff = time.Hour })
	w.through(func(rw http.ResponseWriter, r *http.Request) { rw.WriteHeader(http.StatusBadGateway) })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := w.Pull(ctx, w.ref("x"), nil)
	if err == nil || !strings.Contains(err.Error(), "502") {
		t.Errorf("error %v, want the server's 502", err)
	}
	if ctx.Err() != nil {
		t.Error("answered only after the caller's deadline")
	}
}

func TestMirrorIsAskedFirst(t *testing.T) {
	mirror := newWorld(t, nil)
	mirror.push("lib/x:1", image(t, gzipLayer(t, reg("from-mirror", ""))))
	w := newWorld(t, func(cfg *Config) {
		cfg.Mirrors = map[string][]string{"registry.invalid": {mirror.host}}
		cfg.InsecureRegistries = []string{mirror.host}
	})
	wantTree(t, w.pull("registry.invalid/lib/x:1").RootFS, "from-mirror=")
}

func TestBadNamesAndArtifacts(t *testing.T) {
	w := newWorld(t, nil)
	w.pullFails("UPPER/case", "UPPER/case")
	w.push("enc", image(t, static.NewLayer([]byte("x"), types.OCILayer+"+encrypted")))
	w.pullFails(w.ref("enc"), "encrypted")
	w.push("chart", image(t, static.NewLayer([]byte("x"), "application/vnd.cncf.helm.chart")))
	w.pullFails(w.ref("chart"), "is this a container image?")
}

func TestProgressWakesThoseWhoWait(t *testing.T) {
	p := NewProgress()
	got := make(chan Status)
	go func() { got <- p.Wait(t.Context(), 0) }()
	p.start(100, slog.New(slog.DiscardHandler)) // not what it waits for
	p.add(10)
	if s := <-got; s != (Status{Done: 10, Total: 100}) {
		t.Errorf("%+v", s)
	}
	go func() { got <- p.Wait(t.Context(), 10) }()
	p.finish()
	if s := <-got; !s.Finished {
		t.Errorf("%+v", s)
	}
	fresh, ctx := NewProgress(), canceled(t)
	if s := fresh.Wait(ctx, 0); s != (Status{}) {
		t.Errorf("%+v", s)
	}
}

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
