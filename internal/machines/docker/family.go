// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"net/netip"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/outrigger/outrigger/provider"
)

// families are the address families of a cluster's pods and Services, as its network
// has them in labelFamilies. Its endpoint and its load balancer have an address of the first.
type families string

const (
	onlyIPv4  families = "IPv4"
	onlyIPv6  families = "IPv6"
	firstIPv4          = onlyIPv4 + "," + onlyIPv6
	firstIPv6          = onlyIPv6 + "," + onlyIPv4
)

// has6 reports whether there is IPv6, and begins6 whether it is the first family.
func (f families) has6() bool    { return strings.Contains(string(f), string(onlyIPv6)) }
func (f families) begins6() bool { return strings.HasPrefix(string(f), string(onlyIPv6)) }

// familiesOf returns the families that a Cluster's ranges have, IPv4 if it has none. The
// API server's address has the family of the first range of Services.
func familiesOf(cluster *clusterv1.Cluster) (families, error) {
	if cluster == nil {
		return onlyIPv4, nil
	}
	ranges := cluster.Spec.ClusterNetwork
	services, pods := familiesIn(ranges.Services.CIDRBlocks), familiesIn(ranges.Pods.CIDRBlocks)
	switch {
	case len(services)+len(pods) == 0:
		return onlyIPv4, nil
	case len(services) == 0:
		services = pods
	case len(pods) == 0:
		pods = services
	}
	if !slices.ContainsFunc(services, func(f families) bool { return slices.Contains(pods, f) }) {
		return "", because(ReasonIPFamily, provider.ErrInvalidArgument,
			"spec.clusterNetwork of Cluster %s has %s ranges for pods and %s ranges for services: a Service reaches only pods of its own family; name ranges of the same families for both", cluster.Name, pods[0], services[0])
	}
	switch both := len(services)+len(pods) > 2; {
	case both && services[0] == onlyIPv6:
		return firstIPv6, nil
	case both:
		return firstIPv4, nil
	}
	return services[0], nil
}

// familiesIn returns the families of ranges, each once; Cluster API checks the ranges.
func familiesIn(blocks []string) (list []families) {
	for _, block := range blocks {
		p, err := netip.ParsePrefix(block)
		f := onlyIPv4
		if err == nil && p.Addr().Is6() {
			f = onlyIPv6
		}
		if err == nil && !slices.Contains(list, f) {
			list = append(list, f)
		}
	}
	return list
}

// addresses are those of a container in its cluster's network. The second is invalid in
// a network without IPv6.
type addresses struct{ v4, v6 netip.Addr }

// first returns the address of a cluster's first family.
func (a addresses) first(f families) netip.Addr {
	if f.begins6() {
		return a.v6
	}
	return a.v4
}

// labels adds the addresses to a container's labels. With IPv6 they say which of them a
// Node is to have, the first family's first.
func (a addresses) labels(labels map[string]string, f families) map[string]string {
	labels[labelAddress] = a.v4.String()
	if !a.v6.IsValid() {
		return labels
	}
	labels[labelAddress6] = a.v6.String()
	switch f {
	case onlyIPv6:
		labels[labelNodeIPs] = a.v6.String()
	case firstIPv6:
		labels[labelNodeIPs] = a.v6.String() + "," + a.v4.String()
	default:
		labels[labelNodeIPs] = a.v4.String() + "," + a.v6.String()
	}
	return labels
}

// nodeIPs returns the addresses that a container's Node is to have; nil leaves that to
// kubelet, which finds the only one.
func nodeIPs(labels map[string]string) []string {
	if labels[labelNodeIPs] == "" {
		return nil
	}
	return strings.Split(labels[labelNodeIPs], ",")
}

// addressesIn returns all addresses in a container's labels, that of its cluster's first
// family first; none if the container has no labels of ours.
func addressesIn(labels map[string]string) []string {
	list := nodeIPs(labels)
	for _, label := range []string{labelAddress, labelAddress6} {
		if text := labels[label]; text != "" && !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	return list
}
