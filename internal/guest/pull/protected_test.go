// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/outrigger/outrigger/internal/ociimage"
	"github.com/outrigger/outrigger/internal/ociimage/encrypted"
	"github.com/outrigger/outrigger/internal/ociimage/protect"
	"github.com/outrigger/outrigger/internal/ociimage/signed"
)

// broker has keys by their URIs.
type broker map[string][]byte

func (b broker) Resource(_ context.Context, uri string) ([]byte, error) {
	if key, is := b[uri]; is {
		return key, nil
	}
	return nil, errors.New("404 not found")
}

const kekURI, signerURI = "kbs:///default/key/1", "kbs:///default/cosign-public-key/1"

var kek = bytes.Repeat([]byte{7}, encrypted.KeySize)

// keyFile writes a file that only we can read.
func keyFile(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// ociImage runs a command of oci-image.
func ociImage(t *testing.T, command string, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := protect.Commands[command](&out, args); err != nil {
		t.Fatalf("%s %q: %v", command, args, err)
	}
	return strings.TrimSpace(out.String())
}

// diffLayer is a layer whose diff_id is that of its archive, as real ones are.
func diffLayer(t *testing.T, files ...file) v1.Layer {
	t.Helper()
	layer, err := ociimage.Layer(archive(t, files...))
	if err != nil {
		t.Fatal(err)
	}
	return layer
}

// signer is a private key in a file, and the broker that has its public one.
func signer(t *testing.T) (private string, keys broker) {
	t.Helper()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, _ := x509.MarshalPKCS8PrivateKey(key)
	publicDER, _ := x509.MarshalPKIXPublicKey(public)
	return keyFile(t, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		broker{signerURI: pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: publicDER})}
}

// governed makes a puller ask a policy.
func governed(t *testing.T, policy string, keys broker) func(*Config) {
	t.Helper()
	p, err := signed.ParsePolicy([]byte(policy))
	if err != nil {
		t.Fatal(err)
	}
	return func(cfg *Config) {
		cfg.Policy = func(ctx context.Context, c *Candidate) error {
			return p.Verify(ctx, signed.Image{Repository: c, Reference: c.Reference, Digests: c.Digests}, keys)
		}
	}
}

func TestEncryptedImage(t *testing.T) {
	w := newWorld(t, func(cfg *Config) { cfg.Decrypt = encrypted.Decrypter(broker{kekURI: kek}) })
	big := reg("big", strings.Repeat("content ", 100_000))
	w.push("plain", image(t, diffLayer(t, big), static.NewLayer(archive(t, reg("b", "2")), types.OCIUncompressedLayer)))
	ociImage(t, "encrypt", "-key", keyFile(t, kek), "-kid", kekURI, w.ref("plain"), w.ref("secret"))

	var sent bytes.Buffer
	w.through(func(rw http.ResponseWriter, r *http.Request) {
		w.registry.ServeHTTP(&copied{rw, &sent}, r)
	})
	img := w.pull(w.ref("secret"))
	wantTree(t, img.RootFS, "b=2", "big="+big.content)
	if bytes.Contains(sent.Bytes(), []byte("ustar")) || bytes.Contains(sent.Bytes(), kek) {
		t.Error("the registry sent something plain")
	}
	before := w.blobs.Load()
	cannot := newWorld(t, func(cfg *Config) { cfg.InsecureRegistries = []string{w.host} })
	cannot.pullFails(w.ref("secret"), "is encrypted; this agent cannot decrypt images")
	if n := w.blobs.Load() - before; n != 1 { // the config
		t.Errorf("%d blobs of an image that cannot be decrypted", n)
	}
}

// copied keeps what is sent.
type copied struct {
	http.ResponseWriter
	sent *bytes.Buffer
}

func (c *copied) Write(p []byte) (int, error) {
	c.sent.Write(p)
	return c.ResponseWriter.Write(p)
}

func TestEncryptedImageOfSeveralArchitectures(t *testing.T) {
	w := newWorld(t, func(cfg *Config) { cfg.Decrypt = encrypted.Decrypter(broker{kekURI: kek}) })
	index := v1.ImageIndex(empty.Index)
	for _, arch := range []string{"arm64", "amd64"} {
		platform := v1.Platform{OS: "linux", Architecture: arch}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        platformImage(t, platform, diffLayer(t, reg("arch", arch))),
			Descriptor: v1.Descriptor{Platform: &platform},
		})
	}
	tag, _ := name.NewTag(w.ref("plain:1"))
	if err := remote.WriteIndex(tag, index); err != nil {
		t.Fatal(err)
	}
	byDigest := ociImage(t, "encrypt", "-key", keyFile(t, kek), "-kid", kekURI, w.ref("plain:1"), w.ref("secret:1"))
	wantTree(t, w.pull(w.ref("secret:1")).RootFS, "arch=amd64")
	wantTree(t, w.pull(byDigest).RootFS, "arch=amd64")
}

// TestChangedCiphertext: somebody who may write into the registry changes a byte, and all digests with it.
func TestChangedCiphertext(t *testing.T) {
	w := newWorld(t, func(cfg *Config) { cfg.Decrypt = encrypted.Decrypter(broker{kekURI: kek}) })
	w.push("plain", image(t, static.NewLayer(archive(t, reg("a", strings.Repeat("x", 1<<16))), types.OCIUncompressedLayer)))
	ociImage(t, "encrypt", "-key", keyFile(t, kek), "-kid", kekURI, w.ref("plain"), w.ref("secret"))
	ref, _ := name.ParseReference(w.ref("secret"))
	secret, err := remote.Image(ref)
	if err != nil {
		t.Fatal(err)
	}
	manifest, _ := secret.Manifest()
	layer, _ := secret.LayerByDigest(manifest.Layers[0].Digest)
	content, err := layer.Compressed()
	if err != nil {
		t.Fatal(err)
	}
	ciphertext, err := io.ReadAll(content)
	if err != nil {
		t.Fatal(err)
	}
	ciphertext[4096] ^= 1 // in the file's content: the archive is a whole one still
	changed, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1), mutate.Addendum{
		Layer: static.NewLayer(ciphertext, manifest.Layers[0].MediaType), MediaType: manifest.Layers[0].MediaType, Annotations: manifest.Layers[0].Annotations,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.push("changed", changed)
	w.pullFails(w.ref("changed"), "decrypt layer sha256:", "hmac")
	wantTree(t, w.pull(w.ref("secret")).RootFS, "a="+strings.Repeat("x", 1<<16))
}

// TestPlainLayerIsThatOfTheConfig: who has the key may have encrypted another layer than the one that the config is of.
func TestPlainLayerIsThatOfTheConfig(t *testing.T) {
	w := newWorld(t, func(cfg *Config) { cfg.Decrypt = encrypted.Decrypter(broker{kekURI: kek}) })
	img := image(t, diffLayer(t, reg("a", "1")))
	for want, change := range map[string]func(*v1.RootFS){
		"digest does not match: the plain layer is sha256:": func(r *v1.RootFS) { r.DiffIDs = []v1.Hash{{Algorithm: "sha256", Hex: strings.Repeat("0", 64)}} },
		"no SHA-256 diff_id": func(r *v1.RootFS) { r.DiffIDs = nil },
	} {
		config, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		config = config.DeepCopy()
		change(&config.RootFS)
		changed, err := mutate.ConfigFile(img, config)
		if err != nil {
			t.Fatal(err)
		}
		w.push("plain", changed)
		ociImage(t, "encrypt", "-key", keyFile(t, kek), "-kid", kekURI, w.ref("plain"), w.ref("secret"))
		w.pullFails(w.ref("secret"), want)
	}
}

func TestWrongKeyIsAskedForFirst(t *testing.T) {
	keys := broker{kekURI: bytes.Repeat([]byte{8}, encrypted.KeySize)}
	w := newWorld(t, func(cfg *Config) { cfg.Decrypt = encrypted.Decrypter(keys) })
	w.push("plain", image(t, gzipLayer(t, reg("a", "1"))))
	ociImage(t, "encrypt", "-key", keyFile(t, kek), "-kid", kekURI, w.ref("plain"), w.ref("secret"))
	before := w.blobs.Load()
	w.pullFails(w.ref("secret"), "is not the one that the layer was encrypted with")
	delete(keys, kekURI)
	w.pullFails(w.ref("secret"), kekURI+": 404")
	if n := w.blobs.Load() - before; n != 2 { // the config, twice
		t.Errorf("%d blobs were fetched", n)
	}
}

const bySigner = `{"default":[{"type":"reject"}],"transports":{"docker":{"127.0.0.1":[{"type":"reject"}],"HOST/team":[{"type":"sigstoreSigned","keyPath":"` + signerURI + `"}]}}}`

func TestSignedImage(t *testing.T) {
	private, keys := signer(t)
	w := newWorld(t, nil)
	governed(t, strings.ReplaceAll(bySigner, "HOST", w.host), keys)(&w.cfg)
	w.push("team/app:1", image(t, gzipLayer(t, reg("a", "1"))))
	w.push("other/app:1", image(t, gzipLayer(t, reg("a", "1"))))
	before := w.blobs.Load()
	w.pullFails(w.ref("team/app:1"), "there is no signature", ".sig", w.ref("team/app:1"), `scope "`+w.host+`/team"`, "sigstoreSigned")
	w.pullFails(w.ref("other/app:1"), "default, requirement reject")
	if n := w.blobs.Load() - before; n != 2 {
		t.Errorf("%d blobs were fetched, not two configs", n)
	}
	stranger, _ := signer(t)
	ociImage(t, "sign", "-key", stranger, w.ref("team/app:1"))
	w.pullFails(w.ref("team/app:1"), "not signed by the key of "+signerURI)
	byDigest := ociImage(t, "sign", "-key", private, w.ref("team/app:1"))
	for _, ref := range []string{w.ref("team/app:1"), byDigest} {
		wantTree(t, w.pull(ref).RootFS, "a=1")
	}
	// The files are there already, and the policy is asked for the other name all the same.
	if _, err := w.Pull(t.Context(), w.ref("other/app:1"), nil); err == nil || !strings.Contains(err.Error(), "requirement reject") {
		t.Errorf("another name of it: %v", err)
	}
	w.push("team/app:1", image(t, gzipLayer(t, reg("a", "2"))))
	if _, err := w.Pull(t.Context(), w.ref("team/app:1"), nil); err == nil || !strings.Contains(err.Error(), "there is no signature") {
		t.Errorf("another image under the tag: %v", err)
	}
}

// TestSignedIndex: the signature is of what the tag names, and what runs is one of its images.
func TestSignedIndex(t *testing.T) {
	private, keys := signer(t)
	w := newWorld(t, nil)
	governed(t, strings.ReplaceAll(bySigner, "HOST", w.host), keys)(&w.cfg)
	platform := v1.Platform{OS: "linux", Architecture: "amd64"}
	img := image(t, gzipLayer(t, reg("a", "1")))
	tag, _ := name.NewTag(w.ref("team/app:1"))
	if err := remote.WriteIndex(tag, mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &platform}})); err != nil {
		t.Fatal(err)
	}
	ociImage(t, "sign", "-key", private, w.ref("team/app:1"))
	digest, _ := img.Digest()
	w.pullFails(w.ref("team/app@"+digest.String()), "there is no signature") // no index leads there
	wantTree(t, w.pull(w.ref("team/app:1")).RootFS, "a=1")
}

// TestTagThatMoves: the tag is asked for once, so that what was verified is what is unpacked.
func TestTagThatMoves(t *testing.T) {
	private, keys := signer(t)
	w := newWorld(t, nil)
	governed(t, strings.ReplaceAll(bySigner, "HOST", w.host), keys)(&w.cfg)
	w.push("team/app:1", image(t, gzipLayer(t, reg("a", "1"))))
	ociImage(t, "sign", "-key", private, w.ref("team/app:1"))
	asked := 0
	evil := image(t, gzipLayer(t, reg("evil", "1")))
	w.through(func(rw http.ResponseWriter, r *http.Request) {
		w.registry.ServeHTTP(rw, r)
		if strings.HasSuffix(r.URL.Path, "/manifests/1") && r.Method == http.MethodGet {
			asked++
			w.through(w.registry.ServeHTTP)
			w.push("team/app:1", evil)
		}
	})
	wantTree(t, w.pull(w.ref("team/app:1")).RootFS, "a=1")
	if asked != 1 {
		t.Errorf("the tag was asked for %d times", asked)
	}
}

// TestHugeSignatureManifest is not held in memory.
func TestHugeSignatureManifest(t *testing.T) {
	_, keys := signer(t)
	w := newWorld(t, nil)
	governed(t, strings.ReplaceAll(bySigner, "HOST", w.host), keys)(&w.cfg)
	w.push("team/app:1", image(t, gzipLayer(t, reg("a", "1"))))
	w.through(func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".sig") {
			rw.Header().Set("Content-Type", string(types.OCIManifestSchema1))
			rw.Write(bytes.Repeat([]byte(" "), maxManifest+1))
			return
		}
		w.registry.ServeHTTP(rw, r)
	})
	w.pullFails(w.ref("team/app:1"), "signatures: manifest sha256-", "is larger than")
}

func TestPulledIsToldOfEachImage(t *testing.T) {
	var told []string
	fails := errors.New("no event log")
	var answer error
	w := newWorld(t, func(cfg *Config) {
		cfg.Pulled = func(reference, digest string) error {
			told = append(told, reference+" "+digest)
			return answer
		}
	})
	img := image(t, gzipLayer(t, reg("a", "1")))
	w.push("a:1", img)
	digest, _ := img.Digest()
	w.pull(w.ref("a:1"))
	w.pull(w.ref("a:1"))
	w.Pull(t.Context(), w.ref("none:1"), nil)
	if want := w.ref("a:1") + " " + digest.String(); !slices.Equal(told, []string{want, want}) {
		t.Errorf("told %q", told)
	}
	answer = fails
	if img, err := w.Pull(t.Context(), w.ref("a:1"), nil); !errors.Is(err, fails) || img != nil {
		t.Errorf("%v, %v", img, err)
	}
}
