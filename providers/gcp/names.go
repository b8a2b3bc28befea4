// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/names"
	"github.com/outrigger/outrigger/provider/kit/rest"
)

// location is where an instance is, which is its id.
type location struct{ zone, name string }

func (p location) String() string { return p.zone + "/" + p.name }

// parseID returns false for what no instance of ours can have as its id.
func parseID(id string) (location, bool) {
	zone, name, ok := strings.Cut(id, "/")
	return location{zone, name}, ok && zoneName.MatchString(zone) && names.IsHashed(name)
}

// base returns the last part of a URL or path of a resource.
func base(link string) string { return link[strings.LastIndexByte(link, '/')+1:] }

// Resources may be named in three ways, as in gcloud: in full, by a path from
// the project on, by name. What goes to the cloud is the path.
func absolute(project, value, collection string) (string, error) {
	path := value
	if at := strings.Index(path, "/projects/"); strings.HasPrefix(path, "https://") && at >= 0 {
		path = path[at+1:]
	}
	switch {
	case !strings.Contains(path, "/"):
		path = "projects/" + project + "/" + collection + "/" + path
	case !strings.HasPrefix(path, "projects/"):
		path = "projects/" + project + "/" + path
	}
	owner, name, ok := strings.Cut(strings.TrimPrefix(path, "projects/"), "/"+collection+"/")
	name = strings.TrimPrefix(name, "family/")
	if !ok || !projectName.MatchString(owner) || !resourceName.MatchString(name) {
		return "", fmt.Errorf("%q is neither a name nor projects/PROJECT/%s/NAME", value, collection)
	}
	return path, nil
}

func imagePath(project, value string) (string, error) {
	return absolute(project, value, "global/images")
}

func networkPath(project, value string) (string, error) {
	return absolute(project, value, "global/networks")
}

// subnetworkOf returns the function that makes the path of a subnetwork; a
// name alone is taken to be in the region.
func subnetworkOf(region string) func(project, value string) (string, error) {
	return func(project, value string) (string, error) {
		if _, rest, ok := strings.Cut(value, "regions/"); ok {
			region, _, _ = strings.Cut(rest, "/")
		}
		return absolute(project, value, "regions/"+region+"/subnetworks")
	}
}

// Labels of Compute Engine: keys and values have at most 63 characters out of
// a-z, 0-9, - and _; keys begin with a letter (page "Labels overview").
var (
	labelKey   = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)
	labelValue = regexp.MustCompile(`^[a-z0-9_-]{0,63}$`)
	// hashed is the end of what encode had to change.
	hashed = regexp.MustCompile(`_h[0-9a-f]{16}$`)
)

// encode makes a label's key or value of any text. What may stand as it is
// does; the rest gets a hash of the text, so that two texts never become one.
func encode(text string, valid *regexp.Regexp) string {
	if valid.MatchString(text) && !hashed.MatchString(text) {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	readable := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, text)
	if !valid.MatchString("x" + readable) {
		readable = readable[:min(len(readable), 44)]
	}
	if readable == "" || readable[0] < 'a' || readable[0] > 'z' {
		readable = "x" + readable
	}
	return readable[:min(len(readable), 45)] + "_h" + hex.EncodeToString(sum[:8])
}

func labelsOf(tags map[string]string) map[string]string {
	labels := make(map[string]string, len(tags))
	for key, value := range tags {
		labels[encode(key, labelKey)] = encode(value, labelValue)
	}
	return labels
}

// filter returns the filter expression for resources with all these tags.
func filter(tags map[string]string) string {
	labels := labelsOf(tags)
	var terms []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		terms = append(terms, fmt.Sprintf("(labels.%s = %q)", key, labels[key]))
	}
	return strings.Join(terms, " ")
}

// maxDescription is the longest description of a resource.
const maxDescription = 2048

// describe writes the tags, word for word, as a resource's description: it is
// the one field that lists show, that the guest cannot read and that takes
// every character.
func describe(tags map[string]string) (string, error) {
	text, err := json.Marshal(tags)
	if err != nil {
		return "", err
	}
	if len(text) > maxDescription {
		return "", fmt.Errorf("%w: the tags have %d bytes, and this cloud takes %d", provider.ErrInvalidArgument, len(text), maxDescription)
	}
	return string(text), nil
}

// tagsOf reads a description; nil when it is none of ours.
func tagsOf(description string) map[string]string {
	var tags map[string]string
	if rest.DecodeRaw(rest.Raw(description), &tags) != nil || tags[provider.TagKey] == "" {
		return nil
	}
	return tags
}
