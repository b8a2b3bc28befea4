// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/tags"
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
	// tagVolume is on a disk or snapshot that was made as such: system disks have
	// the tags of their instance. tagFrom is on a copy of a disk.
	tagVolume = ownPrefix + "volume"
	tagFrom   = ownPrefix + "from"
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
	all := tags.Merge(p.cfg.Tags, fitAll(owner), map[string]string{provider.TagKey: key})
	return all, checkTags(all, 2)
}

// checkTags refuses what the cloud would, with room for more tags.
func checkTags(tags map[string]string, room int) error {
	for name, value := range tags {
		if err := checkTag(name, value); err != nil {
			return fmt.Errorf("%w: tags: %w", provider.ErrInvalidArgument, err)
		}
	}
	if len(tags)+room > maxTags {
		return fmt.Errorf("%w: %d tags; the cloud allows %d in all", provider.ErrInvalidArgument, len(tags)+room, maxTags)
	}
	return nil
}

// shown returns the tags without those that only this package needs.
func shown(tags map[string]string) map[string]string {
	rest := maps.Clone(tags)
	for _, name := range []string{tagAttempt, tagAddress, tagInstance, tagVolume, tagFrom} {
		delete(rest, name)
	}
	return rest
}

// clientToken returns 64 characters, the most that the cloud allows.
func clientToken(parts ...string) string {
	sum := sha256.New()
	for _, part := range append([]string{Name}, parts...) {
		fmt.Fprintf(sum, "%d:%s;", len(part), part)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
