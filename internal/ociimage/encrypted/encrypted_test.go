// SPDX-License-Identifier: Apache-2.0

package encrypted

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const keyID = "kbs:///default/key/1"

var kek = bytes.Repeat([]byte{7}, KeySize)

// broker has keys by their URIs.
type broker map[string][]byte

func (b broker) Resource(_ context.Context, uri string) ([]byte, error) {
	if key, is := b[uri]; is {
		return key, nil
	}
	return nil, errors.New("404 not found")
}

var keys = broker{keyID: kek}

// plainLayer is longer than what the cipher holds back until it has verified it.
var plainLayer = bytes.Repeat([]byte("a layer "), 5000)

// layer returns a layer of an encrypted image.
func layer(t testing.TB, mediaType types.MediaType) (v1.Descriptor, []byte) {
	t.Helper()
	plain, err := mutate.Append(empty.Image, mutate.Addendum{Layer: static.NewLayer(plainLayer, mediaType), MediaType: mediaType, Annotations: map[string]string{"kept": "yes"}})
	if err != nil {
		t.Fatal(err)
	}
	image, err := Encrypt(plain, Key{ID: keyID, Secret: kek}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	// Its config is the plain image's, so that validate.Image, which decompresses layers, cannot look at all of it.
	was, _ := plain.RawConfigFile()
	if is, err := image.RawConfigFile(); err != nil || !bytes.Equal(was, is) || manifest.MediaType != types.OCIManifestSchema1 {
		t.Errorf("config %s, %v, type %s", is, err, manifest.MediaType)
	}
	if err := validate.Image(image, validate.Fast); err != nil {
		t.Error(err)
	}
	one, err := image.LayerByDigest(manifest.Layers[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	content, err := one.Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	ciphertext, err := io.ReadAll(content)
	if err != nil {
		t.Fatal(err)
	}
	return manifest.Layers[0], ciphertext
}

func decrypt(t testing.TB, keys Resources, desc v1.Descriptor, ciphertext []byte) ([]byte, error) {
	t.Helper()
	plain, err := Decrypter(keys)(t.Context(), desc, bytes.NewReader(ciphertext))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(plain)
}

func TestEncryptedLayers(t *testing.T) {
	for plain, want := range map[types.MediaType]types.MediaType{
		types.OCILayer:             "application/vnd.oci.image.layer.v1.tar+gzip+encrypted",
		types.OCILayerZStd:         "application/vnd.oci.image.layer.v1.tar+zstd+encrypted",
		types.OCIUncompressedLayer: "application/vnd.oci.image.layer.v1.tar+encrypted",
		types.DockerLayer:          "application/vnd.oci.image.layer.v1.tar+gzip+encrypted",
	} {
		desc, ciphertext := layer(t, plain)
		if desc.MediaType != want || desc.Annotations["kept"] != "yes" || bytes.Contains(ciphertext, plainLayer[:32]) {
			t.Errorf("%s: %+v", plain, desc)
		}
		if got, err := decrypt(t, keys, desc, ciphertext); err != nil || !bytes.Equal(got, plainLayer) {
			t.Errorf("%s: %d bytes, %v", plain, len(got), err)
		}
	}
}

// packetOf returns the packet of a layer.
func packetOf(t testing.TB, desc v1.Descriptor) (p packet) {
	t.Helper()
	if err := decode(desc.Annotations[keysAnnotation], maxPacket, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// withPackets returns a layer with other packets.
func withPackets(t testing.TB, desc v1.Descriptor, packets ...packet) v1.Descriptor {
	t.Helper()
	var all []string
	for _, p := range packets {
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, base64.StdEncoding.EncodeToString(data))
	}
	desc.Annotations = map[string]string{optionsAnnotation: desc.Annotations[optionsAnnotation], keysAnnotation: strings.Join(all, ",")}
	return desc
}

func TestPackets(t *testing.T) {
	desc, ciphertext := layer(t, types.OCILayer)
	first := packetOf(t, desc)
	newer, other, counter := first, first, first
	newer.Version, newer.Provider = "0.1.0", "kbs"
	other.KeyID = "kbs:///not/for/us"
	private, err := first.unwrap(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := aes.NewCipher(kek)
	counter.WrapType, counter.IV, counter.WrappedData = wrapCTR, bytes.Repeat([]byte{9}, aes.BlockSize), make([]byte, len(private))
	cipher.NewCTR(block, counter.IV).XORKeyStream(counter.WrappedData, private)
	for name, changed := range map[string]v1.Descriptor{
		"version 0.1.0":   withPackets(t, desc, newer),
		"of two keys":     withPackets(t, desc, other, first),
		"wrapped by CTR":  withPackets(t, desc, counter),
		"without version": withPackets(t, desc, first),
		// As skopeo writes it where it compresses and encrypts at once.
		"digest of another": rewrapped(t, desc, func(o map[string]any) { o["digest"] = "sha256:" + strings.Repeat("0", 64) }),
	} {
		if got, err := decrypt(t, keys, changed, ciphertext); err != nil || !bytes.Equal(got, plainLayer) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}

// rewrapped returns a layer whose private options are changed by somebody who has the key.
func rewrapped(t testing.TB, desc v1.Descriptor, change func(options map[string]any)) v1.Descriptor {
	t.Helper()
	p := packetOf(t, desc)
	private, err := p.unwrap(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	var options map[string]any
	if err := json.Unmarshal(private, &options); err != nil {
		t.Fatal(err)
	}
	change(options)
	private, _ = json.Marshal(options)
	again, err := wrap(private, kek, keyID)
	if err != nil {
		t.Fatal(err)
	}
	return withPackets(t, desc, *again)
}

func TestLayersThatAreRefused(t *testing.T) {
	desc, ciphertext := layer(t, types.OCILayer)
	changed := func(change func(*packet)) v1.Descriptor {
		p := packetOf(t, desc)
		change(&p)
		return withPackets(t, desc, p)
	}
	annotated := func(name, value string) v1.Descriptor {
		other := withPackets(t, desc, packetOf(t, desc))
		other.Annotations[name] = value
		return other
	}
	options := func(text string) v1.Descriptor {
		return annotated(optionsAnnotation, base64.StdEncoding.EncodeToString([]byte(text)))
	}
	flipped := bytes.Clone(ciphertext)
	flipped[100] ^= 1
	wrongTag := packetOf(t, desc)
	wrongTag.WrappedData[3] ^= 1
	for _, row := range []struct {
		name       string
		keys       broker
		desc       v1.Descriptor
		ciphertext []byte
		want       string
	}{
		{"wrong key", broker{keyID: bytes.Repeat([]byte{8}, KeySize)}, desc, ciphertext, "is not the one that the layer was encrypted with"},
		{"no such key", broker{}, desc, ciphertext, "key kbs:///default/key/1: 404"},
		{"short key", broker{keyID: kek[1:]}, desc, ciphertext, "has 31 bytes, not 32"},
		{"flipped byte", keys, desc, flipped, "hmac"},
		{"cut", keys, desc, ciphertext[:len(ciphertext)-1], "hmac"},
		{"flipped byte of the packet", keys, withPackets(t, desc, wrongTag), ciphertext, "is not the one"},
		{"no packet", keys, annotated(keysAnnotation, ""), ciphertext, keysAnnotation + ": is missing"},
		{"no options", keys, annotated(optionsAnnotation, ""), ciphertext, optionsAnnotation + ": is missing"},
		{"no base64", keys, annotated(keysAnnotation, "%"), ciphertext, "illegal base64"},
		{"no JSON", keys, annotated(keysAnnotation, "AAAA"), ciphertext, "invalid character"},
		{"huge packet", keys, annotated(keysAnnotation, strings.Repeat("A", 1<<20)), ciphertext, "has 1048576 bytes, more than"},
		{"many packets", keys, annotated(keysAnnotation, strings.Repeat("AAAA,", 1<<16)), ciphertext, "more than 8 packets"},
		{"huge options", keys, annotated(optionsAnnotation, strings.Repeat("A", 1<<20)), ciphertext, "has 1048576 bytes, more than"},
		{"unknown wrap type", keys, changed(func(p *packet) { p.WrapType = "RSA-OAEP" }), ciphertext, `wrapped by "RSA-OAEP"`},
		{"no wrap type", keys, changed(func(p *packet) { p.WrapType = "" }), ciphertext, `wrapped by ""`},
		{"long vector", keys, changed(func(p *packet) { p.IV = make([]byte, 16) }), ciphertext, "has 16 bytes, not 12"},
		{"short vector", keys, changed(func(p *packet) { p.WrapType, p.IV = wrapCTR, nil }), ciphertext, "has 0 bytes, not 16"},
		{"other provider", keys, changed(func(p *packet) { p.Provider = "aliyun" }), ciphertext, `provider "aliyun"`},
		{"other version", keys, changed(func(p *packet) { p.Version = "0.2.0" }), ciphertext, `version "0.2.0"`},
		{"key elsewhere", keys, changed(func(p *packet) { p.KeyID = "file:///etc/shadow" }), ciphertext, "not a URI of a key broker"},
		{"unknown cipher", keys, options(`{"cipher":"ROT13","hmac":"AAAA"}`), ciphertext, "unsupported cipher type: ROT13"},
		{"no cipher", keys, options(`{}`), ciphertext, "no cipher type"},
		{"no code", keys, options(`{"cipher":"AES_256_CTR_HMAC_SHA256"}`), ciphertext, "HMAC is not provided"},
		{"other code", keys, options(`{"cipher":"AES_256_CTR_HMAC_SHA256","hmac":"AAAA"}`), ciphertext, "hmac"},
		{"short nonce", keys, rewrapped(t, desc, func(o map[string]any) { o["cipheroptions"] = map[string][]byte{"nonce": {1}} }), ciphertext, "its nonce has 1 bytes, not 16"},
		{"short layer key", keys, rewrapped(t, desc, func(o map[string]any) { o["symkey"] = []byte{1} }), ciphertext, "key length"},
		{"options that are none", keys, rewrapped(t, desc, func(o map[string]any) { o["symkey"] = 5 }), ciphertext, "encrypted with another key"},
	} {
		got, err := decrypt(t, row.keys, row.desc, row.ciphertext)
		if err == nil || !strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), desc.Digest.String()) {
			t.Errorf("%s: %v; want %q and the layer's digest", row.name, err, row.want)
		}
		if len(got) > len(plainLayer) || err != nil && strings.Contains(err.Error(), string(kek)) {
			t.Errorf("%s: %d bytes, %v", row.name, len(got), err)
		}
	}
}

// TestPublicNonce: a nonce that the registry can change is not taken.
func TestPublicNonce(t *testing.T) {
	desc, ciphertext := layer(t, types.OCILayer)
	var options map[string]any
	if err := decode(desc.Annotations[optionsAnnotation], maxOptions, &options); err != nil {
		t.Fatal(err)
	}
	options["cipheroptions"] = map[string][]byte{"nonce": {1}} // of this size it makes the cipher panic
	data, _ := json.Marshal(options)
	desc.Annotations[optionsAnnotation] = base64.StdEncoding.EncodeToString(data)
	if got, err := decrypt(t, keys, desc, ciphertext); err != nil || !bytes.Equal(got, plainLayer) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestEncryptRefuses(t *testing.T) {
	image := func(kind types.MediaType) v1.Image {
		one, err := mutate.Append(empty.Image, mutate.Addendum{Layer: static.NewLayer(plainLayer, kind), MediaType: kind})
		if err != nil {
			t.Fatal(err)
		}
		return one
	}
	for want, row := range map[string]struct {
		image v1.Image
		key   Key
	}{
		"has 5 bytes, not 32":       {image(types.OCILayer), Key{keyID, []byte("short")}},
		"not a URI of a key broker": {image(types.OCILayer), Key{"key1", kek}},
		"cannot be encrypted":       {image(types.DockerForeignLayer), Key{keyID, kek}},
		`gzip+encrypted" cannot be`: {image(types.OCILayer + suffix), Key{keyID, kek}},
	} {
		if _, err := Encrypt(row.image, row.key, t.TempDir()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

// FuzzAnnotationPacket: whatever the annotations of a layer say, nothing panics, and a packet that is
// authenticated gives the layer that was encrypted.
func FuzzAnnotationPacket(f *testing.F) {
	desc, ciphertext := layer(f, types.OCILayer)
	real, _ := base64.StdEncoding.DecodeString(desc.Annotations[keysAnnotation])
	options, _ := base64.StdEncoding.DecodeString(desc.Annotations[optionsAnnotation])
	f.Add(real, options)
	f.Add([]byte(`{"kid":"kbs:///default/key/1","wrapped_data":"AAAA","iv":"AAAAAAAAAAAAAAAAAAAAAA==","wrap_type":"A256CTR"}`), options)
	f.Add([]byte(`{"version":"0.1.0","provider":"aliyun","kid":"x","wrapped_data":"","annotations":{"a":1}}`), []byte(`{"cipher":"x"}`))
	f.Add([]byte(`[]`), []byte(`null`))
	f.Fuzz(func(t *testing.T, packet, options []byte) {
		desc := desc
		desc.Annotations = map[string]string{
			keysAnnotation: base64.StdEncoding.EncodeToString(packet), optionsAnnotation: base64.StdEncoding.EncodeToString(options),
		}
		if got, err := decrypt(t, keys, desc, ciphertext); err == nil && !bytes.Equal(got, plainLayer) && !bytes.Contains(packet, []byte(wrapCTR)) {
			t.Errorf("another layer: %q", got)
		}
	})
}
