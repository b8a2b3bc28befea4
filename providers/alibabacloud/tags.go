// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/outrigger/outrigger/provider"
)

// Tags of ours, besides the owner's.
const (
	ownPrefix = "outrigger-"
	// tagAttempt differs with each call that makes an instance, so that no two
	// calls have the same parameters.
	tagAttempt = ownPrefix + "attempt"
	// tagAddress is on an instance with an address of its own, with its
	// purpose.
	tagAddress = ownPrefix + "address"
	// tagInstance is on such an address: the instance it belongs to.
	tagInstance = ownPrefix + "instance"
)

// Values of tagAddress.
const (
	addressPrimary = "primary" // by which nodes reach the VM
	addressEgress  = "egress"  // of the second interface
)

// The cloud's limits of tags (RunInstances, Tag.N).
const (
	maxTag  = 128
	maxTags = 20
)

// checkTag returns why the cloud would refuse a tag, its value's length apart.
func checkTag(key, value string) error {
	switch {
	case key == "":
		return errors.New("a key is empty")
	case len(key) > maxTag:
		return fmt.Errorf("key %.32q… has more than %d characters", key, maxTag)
	case strings.HasPrefix(key, "acs:"), strings.HasPrefix(key, "aliyun"):
		return fmt.Errorf("%q: keys must not begin with acs: or aliyun", key)
	case strings.Contains(key+value, "http://"), strings.Contains(key+value, "https://"):
		return fmt.Errorf("%q: keys and values must not hold http:// or https://", key)
	}
	return nil
}

// truncateTag cuts a value to what the cloud allows; a hash keeps values apart that
// differ only behind the cut.
func truncateTag(value string) string {
	if len(value) <= maxTag {
		return value
	}
	sum := sha256.Sum256([]byte(value))
	hash := "-" + hex.EncodeToString(sum[:8])
	return strings.ToValidUTF8(value[:maxTag-len(hash)], "") + hash
}

func fitAll(tags map[string]string) map[string]string {
	fitting := make(map[string]string, len(tags))
	for key, value := range tags {
		fitting[key] = truncateTag(value)
	}
	return fitting
}

// allTags returns the tags of everything that belongs to an instance.
func (p *Provider) allTags(key string, owner map[string]string) (map[string]string, error) {
	tags := maps.Clone(p.cfg.Tags)
	if tags == nil {
		tags = map[string]string{}
	}
	maps.Copy(tags, fitAll(owner))
	tags[provider.TagKey] = key
	for name, value := range tags {
		if err := checkTag(name, value); err != nil {
			return nil, fmt.Errorf("%w: tags: %w", provider.ErrInvalidArgument, err)
		}
	}
	if len(tags)+2 > maxTags {
		return nil, fmt.Errorf("%w: %d tags; the cloud allows %d in all", provider.ErrInvalidArgument, len(tags)+2, maxTags)
	}
	return tags, nil
}

// shown returns the tags without those that only this package needs.
func shown(tags map[string]string) map[string]string {
	rest := maps.Clone(tags)
	for _, name := range []string{tagAttempt, tagAddress, tagInstance} {
		delete(rest, name)
	}
	return rest
}

// pairs returns tags as a request has them, in the order of their keys so that
// requests with a client token are the same each time.
func pairs[T any](tags map[string]string, pair func(key, value string) T) []T {
	var list []T
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		list = append(list, pair(key, tags[key]))
	}
	return list
}

// clientToken returns 64 characters, the most that the cloud allows.
func clientToken(parts ...string) string {
	sum := sha256.New()
	for _, part := range append([]string{Name}, parts...) {
		fmt.Fprintf(sum, "%d:%s;", len(part), part)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
