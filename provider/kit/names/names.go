// SPDX-License-Identifier: Apache-2.0

// Package names makes names of instances by which a cloud refuses a second one.
package names

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
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
// one key.
func Hashed(podName, cluster, key string) string {
	sum := sha256.Sum256([]byte(cluster + "/" + key))
	human := provider.InstanceName(podName, key)
	human = human[:min(len(human), longest-hashed-1)]
	return strings.TrimRight(human, "-") + "-" + hex.EncodeToString(sum[:])[:hashed]
}

var hashedSyntax = regexp.MustCompile(`^podvm[-a-z0-9]*-[0-9a-f]{12}$`)

// IsHashed reports whether Hashed can have returned a name.
func IsHashed(name string) bool { return len(name) <= longest && hashedSyntax.MatchString(name) }

var uuidSyntax = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// IsUUID reports whether an id is a UUID in lower case.
func IsUUID(id string) bool { return uuidSyntax.MatchString(id) }

// RegionOf returns the region of a zone whose name is the region's and a part of its own, such as us-south-1.
func RegionOf(zone string) string { return zone[:max(strings.LastIndexByte(zone, '-'), 0)] }
