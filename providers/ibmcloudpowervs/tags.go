// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// User tags ("Working with tags" in IBM's documentation): at most 128
// characters, letters, digits, spaces and _-.: and all in lower case.
const maxTag = 128

var (
	plainName  = regexp.MustCompile(`^[a-z0-9_-]+$`)
	plainValue = regexp.MustCompile(`^[a-z0-9_.:-]+$`)
)

// encodedPrefix begins the tags that hold a part of a pair that does not fit:
// PREFIX-<hash of the pair>-<part>-<parts>:<base32 of name, NUL, value>.
const encodedPrefix = "outrigger.enc"

const chunk = 90

var base32Lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// encodeTags returns pairs as user tags, sorted.
func encodeTags(tags map[string]string) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		value := tags[name]
		if plain := name + ":" + value; plainName.MatchString(name) && plainValue.MatchString(value) && len(plain) <= maxTag {
			list = append(list, plain)
			continue
		}
		list = append(list, encodePair(name, value)...)
	}
	return list
}

func encodePair(name, value string) []string {
	sum := sha256.Sum256([]byte(name + "\x00" + value))
	text := base32Lower.EncodeToString([]byte(name + "\x00" + value))
	parts := slices.Collect(slices.Chunk([]byte(text), chunk))
	var list []string
	for n, part := range parts {
		list = append(list, fmt.Sprintf("%s-%s-%d-%d:%s", encodedPrefix, hex.EncodeToString(sum[:6]), n, len(parts), part))
	}
	return list
}

var encodedTag = regexp.MustCompile(`^` + regexp.QuoteMeta(encodedPrefix) + `-([0-9a-f]{12})-([0-9]+)-([0-9]+):([a-z2-7]*)$`)

// decodeTags returns the pairs in user tags, whose order is not kept. What is
// not a pair is left out.
func decodeTags(list []string) map[string]string {
	tags := map[string]string{}
	encoded := map[string]map[string]string{} // hash, part number, text
	for _, tag := range list {
		if m := encodedTag.FindStringSubmatch(tag); m != nil {
			if encoded[m[1]] == nil {
				encoded[m[1]] = map[string]string{}
			}
			encoded[m[1]][m[2]] = m[4]
			continue
		}
		if name, value, ok := strings.Cut(tag, ":"); ok {
			tags[name] = value
		}
	}
	for sum, parts := range encoded {
		if name, value, ok := decodePair(sum, parts); ok {
			tags[name] = value
		}
	}
	return tags
}

// decodePair puts parts together; the hash reports whether all are there.
func decodePair(sum string, parts map[string]string) (name, value string, ok bool) {
	var text strings.Builder
	for n := range len(parts) {
		text.WriteString(parts[fmt.Sprint(n)])
	}
	pair, err := base32Lower.DecodeString(text.String())
	if err != nil {
		return "", "", false
	}
	got := sha256.Sum256(pair)
	name, value, ok = strings.Cut(string(pair), "\x00")
	return name, value, ok && hex.EncodeToString(got[:6]) == sum
}
