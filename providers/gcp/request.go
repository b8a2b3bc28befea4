// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"encoding/base64"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/names"
	"github.com/outrigger/outrigger/provider/kit/places"
	"github.com/outrigger/outrigger/provider/kit/tags"
)

// request is one call of CreateInstance.
type request struct {
	cluster, key, name string
	spec               provider.InstanceTypeSpec
	tags               map[string]string
	userData           string
}

func newRequest(podName, key string, spec provider.InstanceTypeSpec) *request {
	cluster := spec.Tags[provider.TagCluster]
	return &request{
		cluster: cluster, key: key, name: names.Hashed(podName, cluster, key), spec: spec,
		tags: tags.Merge(spec.Tags, map[string]string{provider.TagKey: key}),
	}
}

// owns reports whether an instance is the one that is asked for.
func (r *request) owns(i *instance) bool {
	tags := tagsOf(i.Description)
	return tags[provider.TagKey] == r.key && tags[provider.TagCluster] == r.cluster
}

// namespace is that of the ids of our requests.
var namespace = uuid.MustParse("6f0e6ee0-4a2f-5c53-9a2b-7d3d1f1b0c11")

// requestID returns the id of the request that makes the instance with this type in
// this zone. It is the same in every process. Each type has its own, since each is a
// new attempt.
func (r *request) requestID(c places.Place) uuid.UUID {
	return uuid.NewSHA1(namespace, []byte(r.cluster+"/"+r.key+" "+c.Zone+" "+c.Type.Name))
}

// maxMetadata is the longest value in an instance's metadata (discovery
// document, Metadata.items.value).
const maxMetadata = 256 << 10

// userDataItems returns user-data in the form that the guest's agents expect. Text
// that JSON or the metadata server could change is encoded as base64 and marked so.
func userDataItems(text string) ([]metadataItem, error) {
	if text == "" {
		return nil, nil
	}
	items := []metadataItem{{Key: "user-data", Value: text}}
	if !isText(text) {
		items = []metadataItem{
			{Key: "user-data", Value: base64.StdEncoding.EncodeToString([]byte(text))},
			{Key: "user-data-encoding", Value: "base64"},
		}
	}
	if n := len(items[0].Value); n > maxMetadata {
		return nil, fmt.Errorf("%w: the user-data has %d bytes, and Compute Engine takes %d", provider.ErrInvalidArgument, n, maxMetadata)
	}
	return items, nil
}

func isText(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool {
		return unicode.IsControl(r) && r != '\n' && r != '\t'
	})
}
