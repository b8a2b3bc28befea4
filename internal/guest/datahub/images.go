// SPDX-License-Identifier: Apache-2.0

package datahub

import (
	"context"
	"errors"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/outrigger/outrigger/internal/attest/eventlog"
	"github.com/outrigger/outrigger/internal/guest/pull"
	"github.com/outrigger/outrigger/internal/ociimage/encrypted"
	"github.com/outrigger/outrigger/internal/ociimage/signed"
)

// AdmitImage asks the pod's policy for images, if it has one.
func (h *Hub) AdmitImage(ctx context.Context, c *pull.Candidate) error {
	policy, err := h.imagePolicy(ctx)
	if err != nil {
		return fmt.Errorf("the pod's policy for images: %w", err)
	}
	if policy == nil {
		return nil
	}
	return policy.Verify(ctx, signed.Image{Repository: c, Reference: c.Reference, Digests: c.Digests}, h)
}

// imagePolicy reads the policy at its first use: it may be the broker's.
func (h *Hub) imagePolicy(ctx context.Context) (*signed.Policy, error) {
	h.policyLock.Lock()
	defer h.policyLock.Unlock()
	text := []byte(h.settings.imagePolicy)
	switch {
	case h.policy != nil:
		return h.policy, nil
	case h.settings.imagePolicyURI != "":
		var err error
		if text, err = h.Resource(ctx, h.settings.imagePolicyURI); err != nil {
			return nil, err
		}
	case len(text) == 0:
		return nil, nil
	}
	policy, err := signed.ParsePolicy(text)
	if err == nil {
		h.policy = policy
	}
	return policy, err
}

// DecryptLayer makes the plain layer of an encrypted one.
func (h *Hub) DecryptLayer(ctx context.Context, layer v1.Descriptor, ciphertext io.Reader) (io.Reader, error) {
	return encrypted.Decrypter(h)(ctx, layer, ciphertext)
}

// Pulled records an image that the pod runs, once, if the TEE has a register for events.
func (h *Hub) Pulled(image, digest string) error {
	event, err := eventlog.PullImage(image, digest)
	if err != nil {
		return err
	}
	h.mu.Lock()
	known := h.recorded[event]
	h.mu.Unlock()
	if known {
		return nil
	}
	if err := h.cfg.Attester.Extend(context.Background(), event); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("record the image in the event log: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.recorded[event] = true
	return nil
}

// RegistryAuth returns the pod's credentials for registries, a Docker config.json, or nil.
func (h *Hub) RegistryAuth(ctx context.Context) ([]byte, error) {
	if h.settings.authURI == "" {
		return nil, nil
	}
	return h.Resource(ctx, h.settings.authURI)
}
