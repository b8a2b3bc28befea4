// SPDX-License-Identifier: Apache-2.0

// Package signed says which images may run, by a policy in the format of containers-policy.json(5), and
// makes the signatures that such a policy asks for: those of cosign, "simple signing", which are layers
// of an image with the tag sha256-DIGEST.sig beside the signed one.
package signed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// maxPolicy bounds a policy, in bytes.
const maxPolicy = 256 << 10

// Resources is a key broker.
type Resources interface {
	// Resource returns what is at a URI such as kbs:///default/key/1.
	Resource(ctx context.Context, uri string) ([]byte, error)
}

// Repository is where an image is.
type Repository interface {
	// Manifest returns the manifest of a tag. Its error is a *transport.Error if there is none.
	Manifest(ctx context.Context, tag string) ([]byte, error)
	// Blob returns a small blob, whose digest it has verified.
	Blob(ctx context.Context, digest string) ([]byte, error)
}

// Image is what is to be pulled.
type Image struct {
	Repository
	// Reference is the image's as it was asked for.
	Reference name.Reference
	// Digests are those of its manifest and, if the reference names an index, of that. A signature of
	// one of them will do: the index has the manifest's digest.
	Digests []v1.Hash
}

// Policy says which images may run.
type Policy struct {
	byDefault requirements
	docker    map[string]requirements
}

type requirements []requirement

// requirement is one of a policy. All of a scope must hold.
type requirement struct {
	Type           string    `json:"type"`
	KeyPath        string    `json:"keyPath"`
	KeyData        string    `json:"keyData"`
	SignedIdentity *identity `json:"signedIdentity"`
}

// Types of requirements.
const (
	acceptAnything = "insecureAcceptAnything"
	reject         = "reject"
	sigstoreSigned = "sigstoreSigned"
)

// ParsePolicy reads a policy. What it does not know is an error: a policy with a word that is not
// understood would let pass what it should not.
func ParsePolicy(text []byte) (*Policy, error) {
	if len(text) > maxPolicy {
		return nil, fmt.Errorf("policy for images: has %d bytes, more than %d", len(text), maxPolicy)
	}
	var p struct {
		Default    requirements                       `json:"default"`
		Transports map[string]map[string]requirements `json:"transports"`
	}
	if err := strict(text, &p); err != nil {
		return nil, fmt.Errorf("policy for images: %w", err)
	}
	if p.Default == nil {
		return nil, errors.New(`policy for images: has no "default"; {"default":[{"type":"reject"}]} refuses all that it does not name`)
	}
	return &Policy{byDefault: p.Default, docker: p.Transports["docker"]}, nil
}

// strict refuses members that it does not know, and what comes after the value.
func strict(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return errors.New("there is more after its end")
	}
	return nil
}

// UnmarshalJSON implements json.Unmarshaler. An empty list would say nothing, and accept all.
func (r *requirements) UnmarshalJSON(text []byte) error {
	var list []json.RawMessage
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	if len(list) == 0 {
		return errors.New("a scope without requirements; to accept all images write " + acceptAnything)
	}
	for _, raw := range list {
		one, err := parseRequirement(raw)
		if err != nil {
			return err
		}
		*r = append(*r, one)
	}
	return nil
}

func parseRequirement(text []byte) (r requirement, err error) {
	var kind struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(text, &kind); err != nil {
		return r, err
	}
	switch kind.Type {
	case acceptAnything, reject, sigstoreSigned:
	case "signedBy":
		return r, errors.New("requirement signedBy: signatures of GPG cannot be verified here; use " + sigstoreSigned)
	default:
		return r, fmt.Errorf("requirement of type %.64q is not known", kind.Type)
	}
	if err := strict(text, &r); err != nil {
		return r, fmt.Errorf("requirement %s: %w", kind.Type, err)
	}
	if r.Type != sigstoreSigned {
		if r != (requirement{Type: r.Type}) {
			return r, fmt.Errorf("requirement %s takes no more", r.Type)
		}
		return r, nil
	}
	if err := errors.Join(r.checkKey(), r.SignedIdentity.check()); err != nil {
		return r, fmt.Errorf("requirement %s: %w", sigstoreSigned, err)
	}
	return r, nil
}

// Verify returns nil if the policy lets an image run. It fetches signatures, and keys from broker,
// which is nil if there is none.
func (p *Policy) Verify(ctx context.Context, image Image, broker Resources) error {
	scope, all := p.scope(image.Reference)
	for _, one := range all {
		if err := one.verify(ctx, image, broker); err != nil {
			return fmt.Errorf("image %s (%s) is refused by the policy for images, %s, requirement %s: %w",
				image.Reference.Name(), image.Digests[0], scope, one.Type, err)
		}
	}
	return nil
}

func (r *requirement) verify(ctx context.Context, image Image, broker Resources) error {
	switch r.Type {
	case acceptAnything:
		return nil
	case sigstoreSigned:
		return r.verifySigned(ctx, image, broker)
	}
	return errors.New("it is for no image")
}

// scope returns the requirements of the longest scope that an image is in, and what to call it.
func (p *Policy) scope(reference name.Reference) (string, requirements) {
	for _, scope := range scopes(reference) {
		if found, is := p.docker[scope]; is {
			return fmt.Sprintf("scope %q", scope), found
		}
	}
	return "default", p.byDefault
}

// scopes returns the names that a policy may have for an image, from the most exact one: the image, its
// repository, the namespaces of that, its host, wildcards for domains, and all images.
func scopes(reference name.Reference) []string {
	repo := repositoryName(reference.Context())
	all := []string{canonical(reference), repo}
	for at := strings.LastIndexByte(repo, '/'); at >= 0; at = strings.LastIndexByte(repo, '/') {
		repo = repo[:at]
		all = append(all, repo)
	}
	host, _, _ := strings.Cut(repo, ":")
	for at := strings.IndexByte(host, '.'); at >= 0; at = strings.IndexByte(host, '.') {
		host = host[at+1:]
		all = append(all, "*."+host)
	}
	return append(all, "")
}
