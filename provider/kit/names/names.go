// SPDX-License-Identifier: Apache-2.0

// Package names makes names of instances by which a cloud refuses a second one.
package names

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/outrigger/outrigger/provider"
)

const (
	// longest is what a DNS label may have (RFC 1035).
	longest = 63
	// hashed is how many digits tell instances apart: 48 bits.
	hashed = 12
)

// Hashed returns a name with that of the pod, for humans, and a hash of cluster and key: two clusters may use
// one key. Whoever relies on the cloud refusing a second instance of a name gives no podName: the same key may
// come with another.
func Hashed(podName, cluster, key string) string {
	sum := sha256.Sum256([]byte(cluster + "/" + key))
	human := provider.InstanceName(podName, key)
	human = human[:min(len(human), longest-hashed-1)]
	return strings.TrimRight(human, "-") + "-" + hex.EncodeToString(sum[:])[:hashed]
}

// IsHashed reports whether Hashed can have returned a name.
func IsHashed(name string) bool {
	rest, ours := strings.CutPrefix(name, "podvm")
	human := len(rest) - hashed - 1
	return ours && len(name) <= longest && human >= 0 && rest[human] == '-' &&
		consistsOf(rest[:human], letters+digits+"-") && consistsOf(rest[human+1:], hexDigits)
}

// IsUUID reports whether an id is a UUID in lower case.
func IsUUID(id string) bool {
	if len(id) != 36 || id[8] != '-' || id[13] != '-' || id[18] != '-' || id[23] != '-' {
		return false
	}
	return consistsOf(id[:8], hexDigits) && consistsOf(id[9:13], hexDigits) && consistsOf(id[14:18], hexDigits) &&
		consistsOf(id[19:23], hexDigits) && consistsOf(id[24:], hexDigits)
}

const (
	letters   = "abcdefghijklmnopqrstuvwxyz"
	digits    = "0123456789"
	hexDigits = digits + "abcdef"
)

// consistsOf is a regular expression's work, ten times as fast: a list has names by the ten thousand.
func consistsOf(text, characters string) bool { return strings.Trim(text, characters) == "" }

// RegionOf returns the region of a zone whose name is the region's and a part of its own, such as us-south-1.
func RegionOf(zone string) string { return zone[:max(strings.LastIndexByte(zone, '-'), 0)] }
