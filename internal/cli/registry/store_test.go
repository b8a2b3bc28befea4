// SPDX-License-Identifier: Apache-2.0

package registry_test

import (
	"encoding/base64"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	upstream "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/outrigger/outrigger/internal/cli/registry"
)

// source is a registry, and what it was asked for.
type source struct {
	t    *testing.T
	host string
	// password, if set, is asked of everybody.
	password string
	// blob, if set, may answer a GET of a blob in place of the registry.
	blob func(w http.ResponseWriter, digest string, content []byte) bool

	mu   sync.Mutex
	gets map[string]int // of blobs, by digest
	stop func()
}

func newSource(t *testing.T) *source {
	s := &source{t: t, gets: map[string]int{}}
	images := upstream.New(upstream.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != s.password {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, digest, ok := strings.Cut(r.URL.Path, "/blobs/sha256:")
		if !ok || r.Method != http.MethodGet {
			images.ServeHTTP(w, r)
			return
		}
		s.mu.Lock()
		s.gets["sha256:"+digest]++
		s.mu.Unlock()
		answer := httptest.NewRecorder()
		images.ServeHTTP(answer, r)
		if s.blob == nil || !s.blob(w, "sha256:"+digest, answer.Body.Bytes()) {
			w.Write(answer.Body.Bytes())
		}
	}))
	s.host, s.stop = strings.TrimPrefix(server.URL, "http://"), server.Close
	t.Cleanup(server.Close)
	return s
}

func (s *source) push(path string, img v1.Image) string {
	s.t.Helper()
	tag, err := name.NewTag(s.host + "/" + path)
	if err == nil {
		err = remote.Write(tag, img)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return s.host + "/" + path
}

func (s *source) got(digest string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gets[digest]
}

func pull(t *testing.T, s registry.Store, ref string) registry.Stored {
	t.Helper()
	img, _, err := s.Pull(t.Context(), ref, "", func(v1.Update) {})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// blobs returns the names of all files that are in the place of blobs.
func blobs(t *testing.T, s registry.Store) []string {
	t.Helper()
	files, err := filepath.Glob(s.Dir + "/blobs/sha256/*")
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// wantWhole has the guest's half of a pull from what an image's server serves, with all digests.
func wantWhole(t *testing.T, img *registry.Image) {
	t.Helper()
	s, err := registry.Serve(netip.MustParseAddr("127.0.0.1"), img)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ref, err := name.NewDigest(s.Reference())
	if err != nil {
		t.Fatal(err)
	}
	got, err := remote.Image(ref)
	if err == nil {
		err = validate.Image(got)
	}
	if err != nil {
		t.Error(err)
	}
}

func layerDigest(t *testing.T, img v1.Image, i int) string {
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	d, err := layers[i].Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

func TestPulledImagesShareLayers(t *testing.T) {
	from, store := newSource(t), registry.Store{Dir: filepath.Join(t.TempDir(), "images")}
	base := map[string]string{"etc/passwd": passwd}
	one := newImage(t, "web", runtime.GOARCH, base, map[string]string{"a": "1"})
	two := newImage(t, "", runtime.GOARCH, base, map[string]string{"a": "2"})
	first, second := from.push("app:v1", one), from.push("app:v2", two)
	pull(t, store, first)
	pull(t, store, second)
	if n := from.got(layerDigest(t, one, 0)); n != 1 {
		t.Errorf("the layer that both have was downloaded %d times", n)
	}
	if _, fresh, err := store.Pull(t.Context(), first, "", func(v1.Update) {}); fresh || err != nil {
		t.Errorf("pulled again: %v, %v", fresh, err)
	}
	from.stop()
	img, err := registry.Open(t.Context(), first, registry.Options{Store: store})
	if err != nil || !img.Held || img.Digest.String() != digest(t, one) {
		t.Fatalf("%v, %v", img, err)
	}
	if user, err := img.User(""); user.UID != 101 || err != nil {
		t.Errorf("user %v, %v", user, err)
	}
	list, err := store.List()
	if err != nil || len(list) != 2 || list[0].Name != first || list[0].Digest != digest(t, one) || list[0].Platform != "linux/"+runtime.GOARCH {
		t.Errorf("list %+v, %v", list, err)
	}
	if n := len(blobs(t, store)); n != 2*2+3 {
		t.Errorf("%d blobs", n)
	}
	if gone, err := store.Remove(t.Context(), []string{first}, false); len(gone) != 1 || err != nil {
		t.Errorf("removed %v, %v", gone, err)
	}
	wantWhole(t, img) // its files are open
	if n := len(blobs(t, store)); n != 2+2 {
		t.Errorf("%d blobs are left of one image: %v", n, blobs(t, store))
	}
	other, err := registry.Open(t.Context(), second, registry.Options{Store: store, Policy: registry.Never})
	if err != nil {
		t.Fatal(err)
	}
	wantWhole(t, other)
	if _, err := store.Remove(t.Context(), []string{digest(t, two)[7:19]}, false); err != nil {
		t.Error(err)
	}
	if left := blobs(t, store); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestPolicies(t *testing.T) {
	from, store := newSource(t), registry.Store{Dir: t.TempDir()}
	old, newer := newImage(t, "", runtime.GOARCH, map[string]string{"a": "1"}), newImage(t, "", runtime.GOARCH, map[string]string{"a": "2"})
	ref := from.push("app:v1", old)
	for _, policy := range []registry.Policy{"", registry.Missing, registry.Guest} {
		img, err := registry.Open(t.Context(), ref, registry.Options{Store: store, Policy: policy})
		if err != nil || img.Held || len(blobs(t, store)) > 0 {
			t.Errorf("%q of an image that was not pulled: %+v, %v, %v", policy, img, err, blobs(t, store))
		}
	}
	if _, err := registry.Open(t.Context(), ref, registry.Options{Store: store, Policy: registry.Never}); !errors.Is(err, registry.ErrNotPulled) {
		t.Errorf("never: %v", err)
	}
	pull(t, store, ref)
	from.push("app:v1", newer)
	for _, row := range []struct {
		ref    string
		policy registry.Policy
		held   bool
		want   v1.Image
	}{
		{ref, "", true, old},
		{ref, registry.Never, true, old},
		{ref, registry.Guest, false, newer},
		{strings.TrimSuffix(ref, ":v1") + "@" + digest(t, old), registry.Never, true, old},
		{ref, registry.Always, true, newer},
		{ref, registry.Missing, true, newer},
		{strings.TrimSuffix(ref, ":v1") + "@" + digest(t, old), registry.Missing, false, old}, // its blobs went with its name
	} {
		img, err := registry.Open(t.Context(), row.ref, registry.Options{Store: store, Policy: row.policy, Report: func(v1.Update) {}})
		if err != nil {
			t.Errorf("%s %q: %v", row.ref, row.policy, err)
			continue
		}
		pinned := strings.TrimSuffix(ref, ":v1") + "@" + digest(t, row.want)
		reference, err := img.Pinned(t.Context())
		if img.Held != row.held || img.Digest.String() != digest(t, row.want) || reference != pinned || (img.Reference == "") != row.held || err != nil {
			t.Errorf("%s %q: held %v, %s, %s, %v", row.ref, row.policy, img.Held, img.Digest, reference, err)
		}
	}
	if n := len(blobs(t, store)); n != 3 {
		t.Errorf("%d blobs: %v", n, blobs(t, store))
	}
}

func TestPullTakesOnePlatform(t *testing.T) {
	from, store := newSource(t), registry.Store{Dir: t.TempDir()}
	index := v1.ImageIndex(empty.Index)
	images := map[string]v1.Image{}
	for _, arch := range []string{runtime.GOARCH, "s390x"} {
		images[arch] = newImage(t, "", arch, map[string]string{"a": arch})
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: images[arch], Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	tag, _ := name.NewTag(from.host + "/app:v1")
	if err := remote.WriteIndex(tag, index); err != nil {
		t.Fatal(err)
	}
	pull(t, store, tag.Name())
	if n := from.got(layerDigest(t, images["s390x"], 0)); n > 0 || len(blobs(t, store)) != 3 {
		t.Errorf("the other platform's layer was downloaded %d times; %v", n, blobs(t, store))
	}
	if _, _, err := store.Pull(t.Context(), tag.Name(), "linux/s390x", func(v1.Update) {}); err != nil {
		t.Fatal(err)
	}
	img, err := registry.Open(t.Context(), tag.Name(), registry.Options{Store: store, Policy: registry.Never, Platform: "linux/s390x"})
	if err != nil || img.Digest.String() != digest(t, images["s390x"]) || len(blobs(t, store)) != 3 {
		t.Errorf("%v, %v, %v", img, err, blobs(t, store))
	}
	if _, err := registry.Open(t.Context(), tag.Name(), registry.Options{Store: store, Policy: registry.Never}); !errors.Is(err, registry.ErrNotPulled) {
		t.Errorf("the platform that was replaced: %v", err)
	}
	if img, err := registry.Open(t.Context(), tag.Name(), registry.Options{Store: store}); err != nil || img.Held || img.Digest.String() != digest(t, images[runtime.GOARCH]) {
		t.Errorf("the platform that was replaced is not asked of the registry: %v, %v", img, err)
	}
	if _, _, err := store.Pull(t.Context(), tag.Name(), "linux/riscv64", func(v1.Update) {}); err == nil || !strings.Contains(err.Error(), "nothing for linux/riscv64") {
		t.Errorf("a platform that is not there: %v", err)
	}
}

// TestPullChecksDigests: of a wrong layer, or of one that ends early, nothing stays, and the next pull mends it.
func TestPullChecksDigests(t *testing.T) {
	img := newImage(t, "", runtime.GOARCH, map[string]string{"a": strings.Repeat("x", 10000)})
	bad := layerDigest(t, img, 0)
	for what, send := range map[string]func(w http.ResponseWriter, content []byte){
		"another content": func(w http.ResponseWriter, content []byte) { w.Write(slices.Concat([]byte{^content[0]}, content[1:])) },
		"a part":          func(w http.ResponseWriter, content []byte) { w.Write(content[:len(content)/2]) },
		"more":            func(w http.ResponseWriter, content []byte) { w.Write(append(content, 'x')) },
	} {
		from, store := newSource(t), registry.Store{Dir: t.TempDir()}
		ref := from.push("app:v1", img)
		from.blob = func(w http.ResponseWriter, digest string, content []byte) bool {
			if digest != bad {
				return false
			}
			send(w, content)
			return true
		}
		_, _, err := store.Pull(t.Context(), ref, "", func(v1.Update) {})
		list, _ := store.List()
		if err == nil || !strings.Contains(err.Error(), bad) || len(list) > 0 {
			t.Errorf("%s: %v, %v", what, err, list)
		}
		for _, file := range blobs(t, store) {
			if strings.Contains(file, bad[7:]) {
				t.Errorf("%s left %s", what, file)
			}
		}
		from.blob = nil
		pull(t, store, ref)
	}
}

func TestDamagedFilesAreFound(t *testing.T) {
	from, store := newSource(t), registry.Store{Dir: t.TempDir()}
	img := newImage(t, "", runtime.GOARCH, map[string]string{"a": "1"})
	ref := from.push("app:v1", img)
	config, _ := img.ConfigName()
	for _, blob := range []string{digest(t, img)[7:], config.Hex} {
		pull(t, store, ref)
		if err := os.WriteFile(filepath.Join(store.Dir, "blobs/sha256", blob), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := registry.Open(t.Context(), ref, registry.Options{Store: store}); err == nil || !strings.Contains(err.Error(), "is damaged") {
			t.Errorf("%v", err)
		}
		if _, err := store.Remove(t.Context(), []string{ref}, false); err != nil {
			t.Error(err)
		}
	}
}

// TestPullMendsWhatIsMissing: files that somebody has removed or cut are not taken for an image, and downloaded again.
func TestPullMendsWhatIsMissing(t *testing.T) {
	from, store := newSource(t), registry.Store{Dir: t.TempDir()}
	img := newImage(t, "", runtime.GOARCH, map[string]string{"a": "1"})
	ref := from.push("app:v1", img)
	pull(t, store, ref)
	for _, file := range blobs(t, store) {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if _, err := registry.Open(t.Context(), ref, registry.Options{Store: store, Policy: registry.Never}); !errors.Is(err, registry.ErrNotPulled) {
			t.Errorf("without %s: %v", file, err)
		}
		if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		pull(t, store, ref)
		held, err := registry.Open(t.Context(), ref, registry.Options{Store: store, Policy: registry.Never})
		if err != nil {
			t.Fatal(err)
		}
		wantWhole(t, held)
	}
}

// TestPullIsKilled in the middle: there is no image, and the next pull goes on with the layer that was missing.
func TestPullIsKilled(t *testing.T) {
	from, store := newSource(t), registry.Store{Dir: t.TempDir()}
	img := newImage(t, "", runtime.GOARCH, map[string]string{"a": "1"}, map[string]string{"b": strings.Repeat("x", 1<<20)})
	ref := from.push("app:v1", img)
	whole, broken := layerDigest(t, img, 0), layerDigest(t, img, 1)
	half, release := make(chan struct{}), make(chan struct{})
	from.blob = func(w http.ResponseWriter, digest string, content []byte) bool {
		if digest != broken {
			return false
		}
		w.Write(content[:len(content)/2])
		w.(http.Flusher).Flush()
		close(half)
		<-release
		return true
	}
	cmd := exec.Command(os.Args[0], ref)
	cmd.Env = append(os.Environ(), "TEST_PULL_TO="+store.Dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-half
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		names := blobs(t, store) // the one that is downloaded has more after its digest
		if slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, whole[7:]) }) && strings.Contains(strings.Join(names, " "), broken[7:]) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("blobs after a minute: %v", blobs(t, store))
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	close(release)
	if list, err := store.List(); len(list) > 0 || err != nil {
		t.Errorf("list %v, %v", list, err)
	}
	if _, err := registry.Open(t.Context(), ref, registry.Options{Store: store, Policy: registry.Never}); !errors.Is(err, registry.ErrNotPulled) {
		t.Errorf("half an image: %v", err)
	}
	from.blob = nil
	pull(t, store, ref)
	if n := from.got(whole); n != 1 {
		t.Errorf("the layer that was there was downloaded %d times", n)
	}
	if n := len(blobs(t, store)); n != 4 {
		t.Errorf("blobs %v", blobs(t, store))
	}
	held, err := registry.Open(t.Context(), ref, registry.Options{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	wantWhole(t, held)
}

// TestTwoPullsAtOnce: the second waits for the first and downloads nothing.
func TestTwoPullsAtOnce(t *testing.T) {
	from, dir := newSource(t), t.TempDir()
	img := newImage(t, "", runtime.GOARCH, map[string]string{"a": "1"})
	ref, layer := from.push("app:v1", img), layerDigest(t, img, 0)
	begun, waits := make(chan struct{}), make(chan struct{})
	from.blob = func(_ http.ResponseWriter, digest string, _ []byte) bool {
		if digest == layer { // the lock is held now
			close(begun)
			<-waits
		}
		return false
	}
	fresh := make(chan bool, 2)
	one := func(s registry.Store) {
		_, new, err := s.Pull(t.Context(), ref, "", func(v1.Update) {})
		if err != nil {
			t.Error(err)
		}
		fresh <- new
	}
	go one(registry.Store{Dir: dir})
	<-begun
	go one(registry.Store{Dir: dir, Wait: func() { close(waits) }})
	if first, second := <-fresh, <-fresh; first == second || from.got(layer) != 1 {
		t.Errorf("fresh %v and %v, the layer was downloaded %d times", first, second, from.got(layer))
	}
}

func TestSeveralNamesOfOneImage(t *testing.T) {
	from, store := newSource(t), registry.Store{Dir: t.TempDir()}
	img := newImage(t, "", runtime.GOARCH, map[string]string{"a": "1"})
	for _, path := range []string{"app:v1", "app:v2"} {
		pull(t, store, from.push(path, img))
	}
	if n := len(blobs(t, store)); n != 3 {
		t.Errorf("%d blobs", n)
	}
	if gone, err := store.Remove(t.Context(), []string{from.host + "/app:v1"}, false); err != nil || len(gone) != 1 || len(blobs(t, store)) != 3 {
		t.Errorf("removed %v, %v; blobs %v", gone, err, blobs(t, store))
	}
	pull(t, store, from.host+"/app:v1")
	id := digest(t, img)[7:19]
	if gone, err := store.Remove(t.Context(), []string{id[:8]}, false); !errors.Is(err, registry.ErrNotPulled) || len(gone) > 0 {
		t.Errorf("by a part of the id: removed %v, %v", gone, err)
	}
	if gone, err := store.Remove(t.Context(), []string{id}, false); err != nil || len(gone) != 2 || len(blobs(t, store)) > 0 {
		t.Errorf("removed %v, %v; blobs %v", gone, err, blobs(t, store))
	}
}

// TestEntriesOfOtherTools, which write no names and platforms, are listed and removed like ours.
func TestEntriesOfOtherTools(t *testing.T) {
	img := newImage(t, "", runtime.GOARCH, map[string]string{"a": "1"})
	store := registry.Store{Dir: t.TempDir()}
	p, err := layout.Write(store.Dir, empty.Index)
	if err == nil {
		err = p.AppendImage(img)
	}
	if err != nil {
		t.Fatal(err)
	}
	from := newSource(t)
	pull(t, store, from.push("app:v1", newImage(t, "", runtime.GOARCH, map[string]string{"a": "2"})))
	if list, err := store.List(); err != nil || len(list) != 2 || list[0].Name != "" || list[0].Digest != digest(t, img) {
		t.Errorf("list %+v, %v", list, err)
	}
	if gone, err := store.Remove(t.Context(), []string{digest(t, img)}, false); err != nil || len(gone) != 1 || len(blobs(t, store)) != 3 {
		t.Errorf("removed %v, %v", gone, err)
	}
	if err := p.AppendIndex(mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: img})); err != nil {
		t.Fatal(err)
	}
	before := blobs(t, store)
	if _, err := store.Remove(t.Context(), nil, true); err == nil || !strings.Contains(err.Error(), "not outrigger's") || len(blobs(t, store)) != len(before) {
		t.Errorf("an index of images: %v; %d blobs of %d are left", err, len(blobs(t, store)), len(before))
	}
}

// TestPullWithCredentials of docker's file; what was pulled is opened without them.
func TestPullWithCredentials(t *testing.T) {
	from, store := newSource(t), registry.Store{Dir: t.TempDir()}
	ref := from.push("app:v1", newImage(t, "", runtime.GOARCH, map[string]string{"a": "1"}))
	from.password = "s3cret"
	if _, _, err := store.Pull(t.Context(), ref, "", func(v1.Update) {}); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("without credentials: %v", err)
	}
	dir := t.TempDir()
	login := base64.StdEncoding.EncodeToString([]byte("me:" + from.password))
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"auths":{"`+from.host+`":{"auth":"`+login+`"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_CONFIG", dir)
	pull(t, store, ref)
	t.Setenv("DOCKER_CONFIG", "/nonexistent")
	img, err := registry.Open(t.Context(), ref, registry.Options{Store: store})
	if err != nil || !img.Held {
		t.Fatalf("%v, %v", img, err)
	}
	wantWhole(t, img)
}

// TestNoFolder: without one nothing is written where outrigger happens to be started.
func TestNoFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, err := (registry.Store{}).Remove(t.Context(), []string{"busybox"}, true); err == nil || !strings.Contains(err.Error(), "--image-cache") {
		t.Errorf("error %v, want one that names --image-cache", err)
	}
	if left, _ := os.ReadDir("."); len(left) > 0 {
		t.Errorf("it has made %v", left)
	}
}
