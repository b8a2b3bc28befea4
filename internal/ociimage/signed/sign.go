// SPDX-License-Identifier: Apache-2.0

package signed

import (
	"crypto"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Sign adds a signature of what a reference names to those that are in its repository, and returns the
// digest that it has signed. The signature is for the reference's tag, if it has one.
func Sign(reference name.Reference, key crypto.Signer, options ...remote.Option) (v1.Hash, error) {
	head, err := remote.Head(reference, options...)
	if err != nil {
		return v1.Hash{}, err
	}
	layer, err := signatureLayer(reference, head.Digest, key)
	if err != nil {
		return v1.Hash{}, err
	}
	tag := reference.Context().Tag(signatureTag(head.Digest))
	image, err := remote.Image(tag, options...)
	if status := (*transport.Error)(nil); errors.As(err, &status) && status.StatusCode == http.StatusNotFound {
		image, err = mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), nil
	}
	if err != nil {
		return v1.Hash{}, err
	}
	if image, err = mutate.Append(image, layer); err != nil {
		return v1.Hash{}, err
	}
	return head.Digest, remote.Write(tag, image, options...)
}

func signatureLayer(reference name.Reference, digest v1.Hash, key crypto.Signer) (mutate.Addendum, error) {
	var p payload
	p.Critical.Type, p.Critical.Image.Digest = payloadType, digest.String()
	p.Critical.Identity.DockerReference = repositoryName(reference.Context())
	if _, byTag := reference.(name.Tag); byTag {
		p.Critical.Identity.DockerReference = canonical(reference)
	}
	text, err := json.Marshal(p)
	if err != nil {
		return mutate.Addendum{}, err
	}
	signature, err := sign(key, text)
	return mutate.Addendum{
		Layer: static.NewLayer(text, payloadMediaType), MediaType: payloadMediaType,
		Annotations: map[string]string{signatureAnnotation: base64.StdEncoding.EncodeToString(signature)},
	}, err
}
