// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/outrigger/outrigger/provider"
)

// namespace is the UUID under which sandbox ids are hashed. It never changes:
// an instance would not be found again.
var namespace = uuid.MustParse("8e6b0b65-4e5f-4bd0-a9cf-7d0f4df3a9d6")

// instanceID returns the UUID of a sandbox's instance (RFC 9562, version 5).
// Nova gives the server one of its own.
func instanceID(key string) string { return uuid.NewSHA1(namespace, []byte(key)).String() }

// macOf returns the MAC address of an instance's port. fe: is a locally
// administered unicast address outside fa:16:3e, which Neutron chooses from.
func macOf(id string) string {
	sum := sha256.Sum256([]byte(id))
	return net.HardwareAddr{0xfe, sum[0], sum[1], sum[2], sum[3], sum[4]}.String()
}

// Names of ports and servers.
const namePrefix = "podvm-"

// portName returns the name by which an instance's port is found.
func portName(id string) string { return namePrefix + id }

// short returns the part of an id that ends the name of a server.
func short(id string) string { return id[:8] }

// serverName returns a name for humans that ends with a part of the id. It is also the
// host name.
func serverName(name, id string) string {
	const room = 63 - 9 // a DNS label (RFC 1035) with room for the end
	return strings.TrimRight(name[:min(len(name), room)], "-") + "-" + short(id)
}

// Keys of a server's metadata beside the tags.
const (
	metaID   = "outrigger-id"
	metaName = "outrigger-name"
)

// maxMetadata is the most characters of a key and of a value (Nova, and the
// database behind it).
const maxMetadata = 255

// maxItems is the most items of metadata that a server has, by Nova's default
// (quota metadata_items), and ownItems how many of them are this provider's and
// the owner's.
const (
	maxItems = 128
	ownItems = 16
)

// metadataKey is what Nova takes as a key (api/validation/parameter_types.py,
// metadata).
var metadataKey = regexp.MustCompile(`^[a-zA-Z0-9-_:. ]{1,255}$`)

func checkMetadata(key, value string) error {
	if !metadataKey.MatchString(key) {
		return fmt.Errorf("%w: tag %.64q: Nova takes keys of 1 to %d letters, digits, blanks, '-', '_', ':' and '.'", provider.ErrInvalidArgument, key, maxMetadata)
	}
	if utf8.RuneCountInString(value) > maxMetadata {
		return fmt.Errorf("%w: tag %.64q: OpenStack takes values of up to %d characters", provider.ErrInvalidArgument, key, maxMetadata)
	}
	return nil
}

// checkItems checks the number of tags.
func checkItems(tags, room int) error {
	if tags > maxItems-room {
		return fmt.Errorf("%w: %d tags: a server takes %d items of metadata, of which %d are kept for the owner's", provider.ErrInvalidArgument, tags, maxItems, room)
	}
	return nil
}

// A port carries the owner tags in its description, which is set in the call
// that makes it, and those that do not fit there in tags.
const (
	descriptionPrefix = "outrigger "
	maxDescription    = 255
	ownerPrefix       = "outrigger-"
)

var plainValue = regexp.MustCompile(`^[A-Za-z0-9._:-]*$`)

// describe returns the description, and the tags that are not in it. Key and
// cluster come first: who deletes by owner needs them most.
func describe(tags map[string]string) (description string, rest []string) {
	keys := slices.Sorted(maps.Keys(tags))
	slices.SortStableFunc(keys, func(a, b string) int { return rank(a) - rank(b) })
	var parts []string
	length := len(descriptionPrefix)
	for _, key := range keys {
		part := strings.TrimPrefix(key, ownerPrefix) + "=" + tags[key]
		if !strings.HasPrefix(key, ownerPrefix) || !plainValue.MatchString(tags[key]) || length+len(part)+1 > maxDescription {
			rest = append(rest, key+"="+tags[key])
			continue
		}
		parts = append(parts, part)
		length += len(part) + 1
	}
	return descriptionPrefix + strings.Join(parts, " "), rest
}

func rank(key string) int {
	if i := slices.Index([]string{provider.TagKey, provider.TagCluster, provider.TagCreated}, key); i >= 0 {
		return i
	}
	return 3
}

// tagsOf reads what describe wrote.
func tagsOf(description string, rest []string) map[string]string {
	tags := map[string]string{}
	if text, ok := strings.CutPrefix(description, descriptionPrefix); ok {
		for _, part := range strings.Fields(text) {
			if key, value, ok := strings.Cut(part, "="); ok {
				tags[ownerPrefix+key] = value
			}
		}
	}
	for _, part := range rest {
		if key, value, ok := strings.Cut(part, "="); ok {
			tags[key] = value
		}
	}
	return tags
}
