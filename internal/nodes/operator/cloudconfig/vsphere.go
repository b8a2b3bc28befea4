// SPDX-License-Identifier: Apache-2.0

package cloudconfig

import (
	"net/netip"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
)

// Categories of tags that say in which zone and region a machine is.
const (
	vsphereZone   = "openshift-zone"
	vsphereRegion = "openshift-region"
)

// ovnAddress is an address that each node of the cluster's network has for
// itself; a machine reports it among its own.
const ovnAddress = "fd69::2/128"

func transformVSphere(source string, c Cluster) (string, error) {
	status := c.platform()
	if status.Type != configv1.VSpherePlatformType {
		return "", wrongPlatform(configv1.VSpherePlatformType)
	}
	config, err := readVSphere(source)
	if err != nil {
		return "", unreadable(err)
	}
	if spec := c.Infrastructure.Spec.PlatformSpec.VSphere; spec != nil {
		families := ipFamilies(c.Network)
		if len(families) > 0 {
			config.section("global").setList("ipFamily", families)
		}
		setNodes(config, spec.NodeNetworking, sharedAddresses(status.VSphere, families))
		setVCenters(config, spec, len(families) > 0)
		if len(spec.FailureDomains) > 1 {
			labels := config.section("labels")
			labels.setText("zone", vsphereZone)
			labels.setText("region", vsphereRegion)
		}
	}
	return config.String()
}

// ipFamilies returns those of the cluster, the first one first, or none when it
// has IPv4 alone, which is the default.
func ipFamilies(n *configv1.Network) []string {
	if n == nil {
		return nil
	}
	var families []string
	for _, r := range n.Spec.ServiceNetwork {
		switch prefix, err := netip.ParsePrefix(r); {
		case err != nil:
		case prefix.Addr().Is4():
			families = append(families, "ipv4")
		default:
			families = append(families, "ipv6")
		}
	}
	if families = slices.Compact(families); slices.Equal(families, []string{"ipv4"}) {
		return nil
	}
	return families
}

// sharedAddresses returns the addresses that are on a node but not its own: they move
// between nodes, or all nodes have them. With IPv4 alone they caused no problems, so
// it returns none then.
func sharedAddresses(s *configv1.VSpherePlatformStatus, families []string) []string {
	if !slices.Contains(families, "ipv6") {
		return nil
	}
	var ranges []string
	if s != nil {
		for _, address := range slices.Concat(s.APIServerInternalIPs, s.IngressIPs) {
			bits := "/128"
			if ip, err := netip.ParseAddr(address); err == nil && ip.Is4() {
				bits = "/32"
			}
			ranges = append(ranges, address+bits)
		}
	}
	return append(ranges, ovnAddress)
}

func setNodes(config *document, n configv1.VSpherePlatformNodeNetworking, excluded []string) {
	nodes := config.section("nodes")
	for _, setting := range [][2]string{ // in the order in which they are written
		{"internalNetworkSubnetCidr", strings.Join(n.Internal.NetworkSubnetCIDR, ",")},
		{"externalNetworkSubnetCidr", strings.Join(n.External.NetworkSubnetCIDR, ",")},
		{"internalVmNetworkName", n.Internal.Network},
		{"externalVmNetworkName", n.External.Network},
		{"excludeInternalNetworkSubnetCidr", strings.Join(slices.Concat(n.Internal.ExcludeNetworkSubnetCIDR, excluded), ",")},
		{"excludeExternalNetworkSubnetCidr", strings.Join(slices.Concat(n.External.ExcludeNetworkSubnetCIDR, excluded), ",")},
	} {
		if name, value := setting[0], setting[1]; value == "" {
			nodes.remove(name)
		} else {
			nodes.setText(name, value)
		}
	}
	if nodes.empty() {
		config.remove("nodes")
	}
}

// setVCenters sets the vCenters to those of the cluster. Other settings of a vCenter in
// the configuration are kept.
func setVCenters(config *document, spec *configv1.VSpherePlatformSpec, families bool) {
	old := config.section("vcenter")
	vcenters := newMapping()
	add := func(server string, port int32, datacenters []string) {
		v := old.entry(server)
		v.setText("server", server)
		if port == 0 {
			v.remove("port")
		} else {
			v.setNumber("port", int(port))
		}
		v.setList("datacenters", datacenters)
		if families {
			// Otherwise the vCenter's setting would hide the cluster's.
			v.remove("ipFamily")
		}
		vcenters.set(server, v)
	}
	for _, v := range spec.VCenters {
		add(v.Server, v.Port, datacentersOf(v.Server, v.Datacenters, spec.FailureDomains))
	}
	for _, d := range spec.FailureDomains {
		if vcenters.get(d.Server) == nil {
			add(d.Server, 0, datacentersOf(d.Server, nil, spec.FailureDomains))
		}
	}
	config.set("vcenter", vcenters)
}

// datacentersOf returns these datacenters and those of a vCenter's failure
// domains.
func datacentersOf(server string, datacenters []string, domains []configv1.VSpherePlatformFailureDomainSpec) []string {
	all := slices.Clone(datacenters)
	for _, d := range domains {
		if d.Server == server && d.Topology.Datacenter != "" && !slices.Contains(all, d.Topology.Datacenter) {
			all = append(all, d.Topology.Datacenter)
		}
	}
	return all
}
