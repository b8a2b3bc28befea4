// SPDX-License-Identifier: Apache-2.0

package cloudconfig

import (
	"cmp"
	"slices"
	"strings"

	"github.com/outrigger/outrigger/internal/nodes/operator/cloudconfig/ini"
)

// gateNLBSecurityGroup makes the controller manager care for the security
// groups of network load balancers.
const gateNLBSecurityGroup = "AWSServiceLBNetworkSecurityGroup"

// awsKeys are the keys of each section, in the order in which they are written;
// others follow in their own.
var awsKeys = map[string][]string{
	"global": {
		"Zone", "Region", "VPC", "SubnetID", "RouteTableID", "RoleARN", "SourceARN", "KubernetesClusterTag", "KubernetesClusterID",
		"DisableSecurityGroupIngress", "ElbSecurityGroup", "NodeIPFamilies",
		"ClusterServiceLoadBalancerHealthProbeMode", "ClusterServiceSharedLoadBalancerHealthProbePort",
		"ClusterServiceSharedLoadBalancerHealthProbePath", "SupportedTopologyInstanceTypePattern", "NLBSecurityGroupMode",
	},
	"serviceoverride": {"Service", "Region", "URL", "SigningRegion", "SigningMethod", "SigningName"},
}

// transformAWS needs no certain platform: clusters on AWS may have no
// configuration at all.
func transformAWS(source string, c Cluster) (string, error) {
	file, err := ini.Parse(source)
	if err != nil {
		return "", unreadable(err)
	}
	global := file.Add("Global")
	global.Default("DisableSecurityGroupIngress", "false")
	global.Default("ClusterServiceSharedLoadBalancerHealthProbePort", "0")
	// The health of nodes is that of the proxy which the cluster's network
	// serves, not a port of each Service.
	global.Default("ClusterServiceLoadBalancerHealthProbeMode", "Shared")
	if c.Gates[gateNLBSecurityGroup] {
		global.Set("NLBSecurityGroupMode", "Managed")
	}
	for _, s := range file.Sections {
		s.Keys = slices.DeleteFunc(s.Keys, func(k ini.Key) bool { return k.Text() == "" })
		slices.SortStableFunc(s.Keys, byOrder(awsKeys[strings.ToLower(s.Name)]))
	}
	slices.SortStableFunc(file.Sections, func(a, b *ini.Section) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Sub, b.Sub))
	})
	return file.String(), nil
}

func byOrder(names []string) func(a, b ini.Key) int {
	rank := func(k ini.Key) int {
		at := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, k.Name) })
		if at < 0 {
			return len(names)
		}
		return at
	}
	return func(a, b ini.Key) int { return cmp.Compare(rank(a), rank(b)) }
}
