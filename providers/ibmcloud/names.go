// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/outrigger/outrigger/provider"
)

// An instance whose id nobody has heard, and a boot volume that has lost its
// instance, go by ids of ours.
const (
	byName   = "name:"
	byVolume = "volume:"
)

// User tags are key:value, of at most 128 characters, which are letters, digits,
// blanks, and _ - . : (page "Working with tags").
const maxTag = 128

var (
	tagKey   = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
	tagValue = regexp.MustCompile(`^[A-Za-z0-9_.: -]*$`)
	tagPart  = regexp.MustCompile(`^(.+) (\d\d)$`)
)

// userTags writes tags as user tags, in order. A value that is too long for one
// goes on in others, whose keys have a number after a blank.
func userTags(tags map[string]string) ([]string, error) {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		value := tags[key]
		if !tagKey.MatchString(key) || !tagValue.MatchString(value) {
			return nil, fmt.Errorf("%w: tag %.64q: %.64q: IBM Cloud takes letters, digits, '_', '-', '.' and, in values, ':'", provider.ErrInvalidArgument, key, value)
		}
		if len(key)+1+len(value) <= maxTag {
			list = append(list, key+":"+value)
			continue
		}
		room := maxTag - len(key) - len(" 00:")
		for n := 0; len(value) > 0; n++ {
			part := value[:min(room, len(value))]
			value = value[len(part):]
			list = append(list, fmt.Sprintf("%s %02d:%s", key, n, part))
		}
	}
	return list, nil
}

// tagsOf reads user tags; nil when they are none of ours.
func tagsOf(list []string) map[string]string {
	tags := map[string]string{}
	parts := map[string]map[int]string{}
	for _, tag := range list {
		key, value, _ := strings.Cut(tag, ":")
		part := tagPart.FindStringSubmatch(key)
		if part == nil {
			tags[key] = value
			continue
		}
		if parts[part[1]] == nil {
			parts[part[1]] = map[int]string{}
		}
		n, _ := strconv.Atoi(part[2])
		parts[part[1]][n] = value
	}
	for key, values := range parts {
		for n := range len(values) {
			tags[key] += values[n]
		}
	}
	if tags[provider.TagKey] == "" {
		return nil
	}
	return tags
}
