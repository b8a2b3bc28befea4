// SPDX-License-Identifier: Apache-2.0

package encrypted

import (
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"fmt"
	"strings"
)

// packet is how a layer's key is wrapped: version 1, which has no version and provider, or 0.1.0.
type packet struct {
	Version     string `json:"version,omitempty"`
	KeyID       string `json:"kid"`
	WrappedData []byte `json:"wrapped_data"`
	Provider    string `json:"provider,omitempty"`
	IV          []byte `json:"iv"`
	WrapType    string `json:"wrap_type"`
}

// Ways to wrap, by their names in RFC 7518. The second is not authenticated: somebody who changes
// what it has wrapped gets a layer of noise, which has not the digest in the image's config.
const (
	wrapGCM = "A256GCM"
	wrapCTR = "A256CTR"
)

// KeySize is the size of a key-encryption key in bytes, for both ways to wrap.
const KeySize = 32

// Names of the newer form's only version, and of the broker among the providers of keys.
const (
	packetVersion = "0.1.0"
	brokerName    = "kbs"
)

func (p *packet) unwrap(ctx context.Context, broker Resources) ([]byte, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	kek, err := broker.Resource(ctx, p.KeyID)
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", p.KeyID, err)
	}
	block, err := newCipher(p.KeyID, kek)
	if err != nil {
		return nil, err
	}
	if p.WrapType == wrapCTR {
		plain := make([]byte, len(p.WrappedData))
		cipher.NewCTR(block, p.IV).XORKeyStream(plain, p.WrappedData)
		return plain, nil
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	plain, err := aead.Open(nil, p.IV, p.WrappedData, nil)
	if err != nil {
		return nil, fmt.Errorf("key %s is not the one that the layer was encrypted with", p.KeyID)
	}
	return plain, nil
}

func newCipher(id string, kek []byte) (cipher.Block, error) {
	if len(kek) != KeySize {
		return nil, fmt.Errorf("key %s has %d bytes, not %d", id, len(kek), KeySize)
	}
	return aes.NewCipher(kek)
}

// check refuses what is not known before the broker is asked.
func (p *packet) check() error {
	want := map[string]int{wrapGCM: 12, wrapCTR: aes.BlockSize}[p.WrapType]
	switch {
	case cmp.Or(p.Version, packetVersion) != packetVersion:
		return fmt.Errorf("is of version %.64q; known is %s", p.Version, packetVersion)
	case cmp.Or(p.Provider, brokerName) != brokerName:
		return fmt.Errorf("its key is of provider %.64q; this agent asks a key broker (%s) only", p.Provider, brokerName)
	case checkKeyID(p.KeyID) != nil:
		return checkKeyID(p.KeyID)
	case want == 0:
		return fmt.Errorf("its key is wrapped by %.64q; known are %s and %s", p.WrapType, wrapGCM, wrapCTR)
	case len(p.IV) != want:
		return fmt.Errorf("the initialization vector of %s has %d bytes, not %d", p.WrapType, len(p.IV), want)
	}
	return nil
}

func checkKeyID(id string) error {
	if len(id) > 1024 || !strings.HasPrefix(id, "kbs://") {
		return fmt.Errorf("key %.64q is not a URI of a key broker, such as kbs:///default/key/1", id)
	}
	return nil
}

// wrap makes a packet that older agents read as well.
func wrap(plain, kek []byte, id string) (*packet, error) {
	if err := checkKeyID(id); err != nil {
		return nil, err
	}
	block, err := newCipher(id, kek)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	iv := make([]byte, aead.NonceSize())
	rand.Read(iv)
	return &packet{KeyID: id, WrapType: wrapGCM, IV: iv, WrappedData: aead.Seal(nil, iv, plain, nil)}, nil
}
