// SPDX-License-Identifier: Apache-2.0

package signed

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

const keyURI = "kbs:///default/cosign-public-key/1"

// p256 is a key of the size that cosign makes. Making it takes no time.
func p256(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func publicPEM(t testing.TB, key crypto.Signer) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// broker has keys by their URIs.
type broker map[string][]byte

func (b broker) Resource(_ context.Context, uri string) ([]byte, error) {
	if key, is := b[uri]; is {
		return key, nil
	}
	return nil, errors.New("404 not found")
}

// repository has signatures.
type repository struct {
	manifests map[string][]byte
	blobs     map[string][]byte
	asked     int
}

func (r *repository) Manifest(_ context.Context, tag string) ([]byte, error) {
	if raw, is := r.manifests[tag]; is {
		return raw, nil
	}
	return nil, fmt.Errorf("manifest: %w", &transport.Error{StatusCode: http.StatusNotFound})
}

func (r *repository) Blob(_ context.Context, digest string) ([]byte, error) {
	r.asked++
	if blob, is := r.blobs[digest]; is {
		return blob, nil
	}
	return nil, errors.New("there is no such blob")
}

func hash(content []byte) v1.Hash {
	h, _, _ := v1.SHA256(bytes.NewReader(content))
	return h
}

// add puts layers into the image with the signatures of a digest.
func (r *repository) add(t testing.TB, digest v1.Hash, layers ...v1.Descriptor) {
	t.Helper()
	raw, err := json.Marshal(v1.Manifest{SchemaVersion: 2, Config: v1.Descriptor{Digest: digest}, Layers: layers})
	if err != nil {
		t.Fatal(err)
	}
	r.manifests[signatureTag(digest)] = raw
}

// signature returns the layer of a signature, and keeps what is signed.
func (r *repository) signature(t testing.TB, reference string, digest v1.Hash, key crypto.Signer) v1.Descriptor {
	t.Helper()
	layer, err := signatureLayer(mustParse(t, reference), digest, key)
	if err != nil {
		t.Fatal(err)
	}
	content, err := layer.Layer.Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(content); err != nil {
		t.Fatal(err)
	}
	return r.layer(text.Bytes(), layer.Annotations[signatureAnnotation])
}

// layer returns the layer of any text and signature.
func (r *repository) layer(text []byte, signature string) v1.Descriptor {
	r.blobs[hash(text).String()] = text
	return v1.Descriptor{MediaType: payloadMediaType, Digest: hash(text), Size: int64(len(text)), Annotations: map[string]string{signatureAnnotation: signature}}
}

func mustParse(t testing.TB, text string) name.Reference {
	t.Helper()
	reference, err := name.ParseReference(text)
	if err != nil {
		t.Fatal(err)
	}
	return reference
}

func newRepository() *repository {
	return &repository{manifests: map[string][]byte{}, blobs: map[string][]byte{}}
}

// signedBy is a policy of one requirement, with members after its type.
func signedBy(more string) string {
	return `{"default":[{"type":"sigstoreSigned",` + more + `}]}`
}

var (
	byKey    = signedBy(`"keyPath":"` + keyURI + `"`)
	manifest = hash([]byte("manifest"))
	index    = hash([]byte("index"))
)

const reference = "registry.example/team/app:v1"

func verify(t testing.TB, policy, reference string, from *repository, keys Resources) error {
	t.Helper()
	p, err := ParsePolicy([]byte(policy))
	if err != nil {
		t.Fatalf("%s: %v", policy, err)
	}
	return p.Verify(t.Context(), Image{from, mustParse(t, reference), []v1.Hash{manifest, index}}, keys)
}

func TestKinds(t *testing.T) {
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, edwards, _ := ed25519.GenerateKey(rand.Reader)
	rsaKey, err := rsa.GenerateKey(rand.Reader, minRSA)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []crypto.Signer{p256(t), p384, edwards, rsaKey} {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		read, err := ParsePrivateKey(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
		if err != nil {
			t.Fatal(err)
		}
		text := publicPEM(t, key)
		inData, _ := json.Marshal(string(text))
		for _, policy := range []string{byKey, signedBy(`"keyData":"` + base64.StdEncoding.EncodeToString(text) + `"`), signedBy(`"keyData":` + string(inData))} {
			from := newRepository()
			from.add(t, manifest, from.signature(t, reference, manifest, p256(t)), from.signature(t, reference, manifest, read))
			if err := verify(t, policy, reference, from, broker{keyURI: text}); err != nil {
				t.Errorf("%T: %v", key, err)
			}
			from.add(t, manifest, from.signature(t, reference, manifest, p256(t)))
			if err := verify(t, policy, reference, from, broker{keyURI: text}); err == nil || !strings.Contains(err.Error(), "not signed by the key of") {
				t.Errorf("%T: signed by another: %v", key, err)
			}
		}
	}
	message := []byte("message")
	long := sha512.Sum384(message)
	signature, _ := p384.Sign(rand.Reader, long[:], crypto.SHA384)
	if !verifySignature(p384.Public(), message, signature) {
		t.Error("a P-384 key and SHA-384")
	}
	if verifySignature(p384.Public(), []byte("other"), signature) || verifySignature(nil, message, signature) {
		t.Error("another message, or no key")
	}
}

// TestIndexIsSigned: cosign signs what a tag names.
func TestIndexIsSigned(t *testing.T) {
	key := p256(t)
	from := newRepository()
	from.add(t, index, from.signature(t, reference, index, key))
	if err := verify(t, byKey, reference, from, broker{keyURI: publicPEM(t, key)}); err != nil {
		t.Error(err)
	}
}

func TestSignaturesThatAreRefused(t *testing.T) {
	key := p256(t)
	keys := broker{keyURI: publicPEM(t, key)}
	signed := func(text string) func(*repository) v1.Descriptor {
		sum := sha256.Sum256([]byte(text))
		signature, err := key.Sign(rand.Reader, sum[:], crypto.SHA256)
		if err != nil {
			t.Fatal(err)
		}
		return func(r *repository) v1.Descriptor {
			return r.layer([]byte(text), base64.StdEncoding.EncodeToString(signature))
		}
	}
	of := func(reference string, digest v1.Hash) func(*repository) v1.Descriptor {
		return func(r *repository) v1.Descriptor { return r.signature(t, reference, digest, key) }
	}
	changed := func(change func(*v1.Descriptor)) func(*repository) v1.Descriptor {
		return func(r *repository) v1.Descriptor {
			desc := r.signature(t, reference, manifest, key)
			change(&desc)
			return desc
		}
	}
	for _, row := range []struct {
		name  string
		keys  Resources
		layer func(*repository) v1.Descriptor // nil for no signature
		want  string
	}{
		{"no signature", keys, nil, "there is no signature: registry.example/team/app has no tag sha256-" + manifest.Hex + ".sig"},
		{"no broker", nil, of(reference, manifest), "no key broker is configured"},
		{"no key", broker{}, of(reference, manifest), keyURI + ": 404"},
		{"key that is none", broker{keyURI: []byte("-")}, of(reference, manifest), keyURI + ": is not one PEM block"},
		{"other key", broker{keyURI: publicPEM(t, p256(t))}, of(reference, manifest), "not signed by the key of " + keyURI},
		{"other digest", keys, of(reference, hash([]byte("other"))), "another image is signed"},
		{"index's at the manifest's tag", keys, of(reference, index), "another image is signed"},
		{"other repository", keys, of("registry.example/team/other:v1", manifest), `it is for "registry.example/team/other:v1"`},
		{"other tag", keys, of("registry.example/team/app:v2", manifest), `it is for "registry.example/team/app:v2"`},
		{"no tag", keys, of("registry.example/team/app@"+manifest.String(), manifest), `{"type":"matchRepository"}`},
		{"no name", keys, signed(`{"critical":{"image":{"docker-manifest-digest":"` + manifest.String() + `"},"type":"cosign container image signature"}}`), `name "", which is none`},
		{"other type", keys, signed(`{"critical":{"type":"atomic container signature"}}`), `a "atomic container signature"`},
		{"no JSON", keys, signed(`-`), "what is signed: invalid character"},
		{"other media type", keys, changed(func(d *v1.Descriptor) { d.MediaType = "text/plain" }), `type "text/plain"`},
		{"no annotation", keys, changed(func(d *v1.Descriptor) { d.Annotations = nil }), "no annotation"},
		{"no base64", keys, changed(func(d *v1.Descriptor) { d.Annotations[signatureAnnotation] = "%" }), "illegal base64"},
		{"long signature", keys, changed(func(d *v1.Descriptor) { d.Annotations[signatureAnnotation] = strings.Repeat("A", 1<<20) }), "has 1048576 bytes"},
		{"long payload", keys, changed(func(d *v1.Descriptor) { d.Size = 1 << 40 }), "for a payload of 1099511627776"},
		{"no blob", keys, changed(func(d *v1.Descriptor) { d.Digest = index }), "no such blob"},
	} {
		from := newRepository()
		if row.layer != nil {
			from.add(t, manifest, row.layer(from))
		}
		err := verify(t, byKey, reference, from, row.keys)
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v; want %q", row.name, err, row.want)
			continue
		}
		for _, part := range []string{reference, manifest.String(), "default", "sigstoreSigned"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v; want %q in it", row.name, err, part)
			}
		}
	}
}

func TestManySignatures(t *testing.T) {
	key := p256(t)
	keys, from := broker{keyURI: publicPEM(t, key)}, newRepository()
	bad := from.signature(t, reference, manifest, p256(t))
	many := []v1.Descriptor{from.signature(t, reference, manifest, key)}
	for range 5000 {
		many = append(many, bad)
	}
	from.add(t, manifest, many...)
	if err := verify(t, byKey, reference, from, keys); err == nil || !strings.Contains(err.Error(), "has 5001 signatures, more than 64") || from.asked > 0 {
		t.Errorf("%v; %d blobs were fetched", err, from.asked)
	}
	from.manifests[signatureTag(manifest)] = []byte("-")
	if err := verify(t, byKey, reference, from, keys); err == nil || !strings.Contains(err.Error(), "manifest sha256-") {
		t.Errorf("a manifest that is none: %v", err)
	}
}

func TestIdentities(t *testing.T) {
	byDigest := "registry.example/team/app@" + manifest.String()
	for _, row := range []struct {
		identity, asked, signed string
		allowed                 bool
	}{
		{``, reference, reference, true},
		{``, reference, "registry.example/team/app:v2", false},
		{``, reference, "registry.example/team/app", false},
		{``, byDigest, "registry.example/team/app", true},
		{``, byDigest, "registry.example/team/app:v2", true},
		{``, byDigest, "registry.example/team/app2:v2", false},
		{``, "busybox", "docker.io/library/busybox:latest", true},
		{``, "busybox", "index.docker.io/library/busybox:latest", true},
		{``, "busybox", "docker.io/team/busybox:latest", false},
		{`{"type":"matchRepoDigestOrExact"}`, byDigest, "registry.example/team/app:v2", true},
		{`{"type":"matchExact"}`, reference, reference, true},
		{`{"type":"matchExact"}`, byDigest, reference, false},
		{`{"type":"matchRepository"}`, reference, "registry.example/team/app", true},
		{`{"type":"matchRepository"}`, reference, "registry.example/team/app2", false},
		{`{"type":"matchRepository"}`, reference, "other.example/team/app", false},
		{`{"type":"exactReference","dockerReference":"a.example/b:1"}`, reference, "a.example/b:1", true},
		{`{"type":"exactReference","dockerReference":"a.example/b:1"}`, reference, "a.example/b:2", false},
		{`{"type":"exactReference","dockerReference":"a.example/b:1"}`, reference, reference, false},
		{`{"type":"exactRepository","dockerRepository":"a.example/b"}`, reference, "a.example/b:2", true},
		{`{"type":"exactRepository","dockerRepository":"a.example/b"}`, reference, reference, false},
		{`{"type":"exactRepository","dockerRepository":"a.example/b"}`, reference, "%%", false},
	} {
		members := `"keyPath":"` + keyURI + `"`
		if row.identity != "" {
			members += `,"signedIdentity":` + row.identity
		}
		p, err := ParsePolicy([]byte(signedBy(members)))
		if err != nil {
			t.Errorf("%s: %v", row.identity, err)
			continue
		}
		if err := p.byDefault[0].SignedIdentity.allows(mustParse(t, row.asked), row.signed); (err == nil) != row.allowed {
			t.Errorf("%s %s for %s: %v", row.identity, row.signed, row.asked, err)
		}
	}
}

func TestScopes(t *testing.T) {
	for asked, want := range map[string][]string{
		"busybox": {"docker.io/library/busybox:latest", "docker.io/library/busybox", "docker.io/library", "docker.io", "*.io", ""},
		"a.b.example:5000/x/y@" + manifest.String(): {"a.b.example:5000/x/y@" + manifest.String(), "a.b.example:5000/x/y", "a.b.example:5000/x", "a.b.example:5000", "*.b.example", "*.example", ""},
	} {
		if diff := cmp.Diff(want, scopes(mustParse(t, asked))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", asked, diff)
		}
	}
	const policy = `{"default":[{"type":"reject"}],"transports":{"docker":{
		"registry.example/team/app:v1":[{"type":"insecureAcceptAnything"}],
		"registry.example/team":[{"type":"reject"}],
		"registry.example":[{"type":"insecureAcceptAnything"}],
		"*.test":[{"type":"insecureAcceptAnything"},{"type":"reject"}]},
		"oci":{"":[{"type":"insecureAcceptAnything"}]}}}`
	for asked, want := range map[string]string{
		"registry.example/team/app:v1":    "",
		"registry.example/team/app:v2":    `scope "registry.example/team"`,
		"registry.example/other/app:v2":   "",
		"registry.example:5000/other/app": "default",
		"a.b.test/app":                    `scope "*.test"`,
		"busybox":                         "default",
	} {
		err := verify(t, policy, asked, newRepository(), nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want+", requirement reject: it is for no image")) {
			t.Errorf("%s: %v; want %q", asked, err, want)
		}
	}
}

func TestPoliciesThatAreRefused(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	member := func(text string) string { return signedBy(`"keyPath":"` + keyURI + `",` + text) }
	for policy, want := range map[string]string{
		``:                                      "EOF",
		`{}`:                                    `has no "default"`,
		`null`:                                  `has no "default"`,
		`{"default":[]}`:                        "without requirements",
		`{"default":[{"type":"reject"}]}{`:      "more after its end",
		`{"default":[{"type":"reject"}],"x":1}`: `unknown field "x"`,
		`{"default":[{"type":"reject"}],"transports":{"docker":{"a":[]}}}`: "without requirements",
		`{"default":[{"type":"reject"}],"transports":{"docker":{"a":{}}}}`: "cannot unmarshal",
		`{"default":[{"type":"reject","keyPath":"x"}]}`:                    "requirement reject takes no more",
		`{"default":[{}]}`:                      `type "" is not known`,
		`{"default":[{"type":"notarySigned"}]}`: `type "notarySigned" is not known`,
		`{"default":[{"type":"signedBy","keyType":"GPGKeys","keyPath":"/x"}]}`:                 "requirement signedBy: signatures of GPG",
		`{"default":[{"type":"sigstoreSigned"}]}`:                                              "either keyPath or keyData",
		member(`"keyData":"x"`):                                                                "either keyPath or keyData",
		member(`"rekorPublicKeyPath":"/x"`):                                                    `unknown field "rekorPublicKeyPath"`,
		signedBy(`"keyPath":"/etc/cosign.pub"`):                                                "not a URI of a key broker",
		signedBy(`"keyData":"%"`):                                                              "keyData: illegal base64",
		signedBy(`"keyData":"AAAA"`):                                                           "not one PEM block",
		signedBy(`"keyData":"` + base64.StdEncoding.EncodeToString(publicPEM(t, small)) + `"`): "RSA key of 1024 bits",
		member(`"signedIdentity":{"type":"remapIdentity","prefix":"a","signedPrefix":"b"}`):    `"remapIdentity" is not known here`,
		member(`"signedIdentity":{"type":"matchExact","dockerReference":"a:1"}`):               "members of another type",
		member(`"signedIdentity":{"type":"exactReference","dockerReference":"a"}`):             "neither a tag nor a digest",
		member(`"signedIdentity":{"type":"exactRepository"}`):                                  "signedIdentity exactRepository:",
		strings.Repeat(" ", maxPolicy+1):                                                       "more than",
	} {
		if _, err := ParsePolicy([]byte(policy)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "policy for images") {
			t.Errorf("%.100s: %v; want %q", policy, err, want)
		}
	}
}

func TestPrivateKeysThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"": "is not PEM",
		"-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED SIGSTORE PRIVATE KEY-----\n": "without a password",
		"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n":                                       "asn1",
	} {
		if _, err := ParsePrivateKey([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}

// FuzzPolicyJSON: nothing panics, and a policy that says reject about all that it names lets nothing pass.
func FuzzPolicyJSON(f *testing.F) {
	f.Add([]byte(byKey))
	f.Add([]byte(`{"default":[{"type":"reject"}],"transports":{"docker":{"*.example":[{"type":"insecureAcceptAnything"}]}}}`))
	f.Add([]byte(signedBy(`"keyPath":"kbs:///a/b/c","signedIdentity":{"type":"exactReference","dockerReference":"a:1"}`)))
	f.Add([]byte(`{"default":[{"type":"signedBy"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := ParsePolicy(text)
		if err != nil {
			return
		}
		err = p.Verify(t.Context(), Image{newRepository(), mustParse(t, reference), []v1.Hash{manifest}}, broker{})
		if err == nil && !bytes.Contains(bytes.ToLower(text), []byte(`insecure`)) && !bytes.Contains(text, []byte(`\u`)) {
			t.Errorf("%s lets an unsigned image pass", text)
		}
	})
}

// FuzzSimpleSigning: of what others write into a repository, only what the key has signed for this image is taken.
func FuzzSimpleSigning(f *testing.F) {
	key := p256(f)
	keys := broker{keyURI: publicPEM(f, key)}
	from := newRepository()
	desc := from.signature(f, reference, manifest, key)
	right := from.blobs[desc.Digest.String()]
	f.Add(right, desc.Annotations[signatureAnnotation])
	f.Add([]byte(`{"critical":{"identity":{"docker-reference":"a"},"image":{},"type":"x"},"optional":null}`), "AAAA")
	f.Add([]byte(nil), "")
	p, err := ParsePolicy([]byte(byKey))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte, signature string) {
		from := newRepository()
		from.add(t, manifest, from.layer(text, signature))
		err := p.Verify(t.Context(), Image{from, mustParse(t, reference), []v1.Hash{manifest}}, keys)
		if err == nil && !bytes.Equal(text, right) {
			t.Errorf("%q is taken", text)
		}
		p.byDefault[0].checkPayload(text, Image{Reference: mustParse(t, reference)}, manifest)
	})
}
