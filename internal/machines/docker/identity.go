// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Labels of everything that is made.
const (
	labelPrefix = "infrastructure.outrigger.dev/"
	// labelKey is the identity of the object that a thing was made for, and
	// labelCluster that of its cluster.
	labelKey     = labelPrefix + "key"
	labelCluster = labelPrefix + "cluster-key"
	// labelNamespace and labelName are the object's, for people.
	labelNamespace = labelPrefix + "namespace"
	labelName      = labelPrefix + "name"
	labelRole      = labelPrefix + "role"
	labelDomain    = labelPrefix + "failure-domain"
	labelAddress   = labelPrefix + "address"
	labelPort      = labelPrefix + "port"
	// labelAddress6 is the IPv6 address beside labelAddress. labelNodeIPs has those that a
	// machine's Node is to have, separated by commas, if its cluster has IPv6.
	labelAddress6 = labelPrefix + "address-ipv6"
	labelNodeIPs  = labelPrefix + "node-ips"
	// labelFamilies are a network's address families; without it there is IPv4 alone.
	labelFamilies = labelPrefix + "families"
	// labelSpec identifies the wanted configuration of a load balancer, and
	// labelPinned a network whose subnet is final.
	labelSpec   = labelPrefix + "spec"
	labelPinned = labelPrefix + "pinned"
	// labelPool is the range of the engine's that a network's subnet is a part of.
	labelPool = labelPrefix + "pool"
)

// Roles.
const (
	roleControlPlane = "control-plane"
	roleWorker       = "worker"
	roleLoadBalancer = "loadbalancer"
	roleNetwork      = "network"
)

// identity is the owner of a container, volume or network.
type identity struct {
	key, cluster, namespace, name, role string
}

func (i identity) labels() map[string]string {
	return map[string]string{labelKey: i.key, labelCluster: i.cluster, labelNamespace: i.namespace, labelName: i.name, labelRole: i.role}
}

// maxReadable is how much of an object's name is in the name of what it has at
// the engine; a host name may have 63 letters in all.
const maxReadable = 50

// unique returns a readable name that no other object has, whatever its namespace.
func (i identity) unique() string {
	sum := sha256.Sum256([]byte(i.key))
	name := i.name
	if len(name) > maxReadable {
		name = name[:maxReadable]
	}
	return strings.TrimRight(name, "-.") + "-" + hex.EncodeToString(sum[:5])
}

func with(labels map[string]string, more ...string) map[string]string {
	for i := 0; i+1 < len(more); i += 2 {
		if more[i+1] != "" {
			labels[more[i]] = more[i+1]
		}
	}
	return labels
}

// has reports whether labels include pairs of a name and a value. The engine's own
// filter also matches a part of a value.
func has(labels map[string]string, pairs ...string) bool {
	for i := 0; i+1 < len(pairs); i += 2 {
		if labels[pairs[i]] != pairs[i+1] {
			return false
		}
	}
	return true
}
