// SPDX-License-Identifier: Apache-2.0

package cloudconfig

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/outrigger/outrigger/internal/nodes/operator/cloudconfig/ini"
	"github.com/outrigger/outrigger/internal/nodes/operator/cloudconfig/jsonobject"
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

var azureClouds = []configv1.AzureCloudEnvironment{
	configv1.AzurePublicCloud, configv1.AzureUSGovernmentCloud, configv1.AzureChinaCloud, configv1.AzureGermanCloud, configv1.AzureStackCloud,
}

func azureCloud(s *configv1.PlatformStatus) configv1.AzureCloudEnvironment {
	if s.Azure == nil || s.Azure.CloudName == "" {
		return configv1.AzurePublicCloud
	}
	return s.Azure.CloudName
}

func transformAzure(source string, c Cluster) (string, error) {
	status := c.platform()
	cloud := azureCloud(&status)
	if status.Type != configv1.AzurePlatformType || cloud == configv1.AzureStackCloud {
		return "", fmt.Errorf("invalid platform, expected CloudName to be %s", configv1.AzurePublicCloud)
	}
	config, err := readAzure(source)
	if err != nil {
		return "", err
	}
	if !slices.Contains(azureClouds, cloud) {
		return "", field.NotSupported(field.NewPath("status", "platformStatus", "azure", "cloudName"), cloud, azureClouds)
	}
	given, err := config.Text("cloud")
	if err != nil {
		return "", err
	}
	if given != "" && !strings.EqualFold(given, string(cloud)) {
		return "", fmt.Errorf(`invalid user-provided cloud.conf: "cloud" field in user-provided cloud.conf conflicts with infrastructure object: it is %q, and that says %q`, given, cloud)
	}
	config["cloud"] = string(cloud)
	config.Set("clusterServiceLoadBalancerHealthProbeMode", "shared")
	return config.Write()
}

func transformAzureStackHub(source string, c Cluster) (string, error) {
	status := c.platform()
	if status.Type != configv1.AzurePlatformType || azureCloud(&status) != configv1.AzureStackCloud {
		return "", fmt.Errorf("invalid platform, expected CloudName to be %s", configv1.AzureStackCloud)
	}
	config, err := readAzure(source)
	if err != nil {
		return "", err
	}
	return config.Write()
}

// readAzure reads a configuration, and sets what both clouds need.
func readAzure(source string) (jsonobject.Object, error) {
	config, err := jsonobject.Parse(source)
	if err != nil {
		return nil, fmt.Errorf("failed to unmarshal the cloud.conf: %w", err)
	}
	return config, config.Default("vmType", "standard")
}

// Where the in-tree cloud provider had its credentials. Nothing else is
// understood, and none of it is needed now.
var openstackLegacy = []struct{ key, value string }{
	{"secret-name", "openstack-credentials"},
	{"secret-namespace", "kube-system"},
	{"kubeconfig-path", ""},
}

// Where the controller manager has its credentials.
var openstackClouds = []struct{ key, value string }{
	{"use-clouds", "true"},
	{"clouds-file", "/etc/openstack/secret/clouds.yaml"},
	{"cloud", "openstack"},
}

func transformOpenStack(source string, c Cluster) (string, error) {
	if c.platform().Type != configv1.OpenStackPlatformType {
		return "", wrongPlatform(configv1.OpenStackPlatformType)
	}
	file, err := ini.Parse(source)
	if err != nil {
		return "", unreadable(err)
	}
	if global := file.Section("Global", ""); global != nil && !usesClouds(global) {
		if err := dropLegacy(global); err != nil {
			return "", err
		}
	}
	global := file.Add("Global")
	for _, o := range openstackClouds {
		global.Set(o.key, o.value)
	}
	file.Remove("BlockStorage")
	balancer := file.Add("LoadBalancer")
	balancer.Delete("use-octavia")
	setIfAbsent(balancer, "max-shared-lb", "1")
	setIfAbsent(balancer, "manage-security-groups", "true")
	return file.String(), nil
}

func wrongPlatform(want any) error { return fmt.Errorf("invalid platform, expected to be %s", want) }

// usesClouds reports whether the section is already as it is to be, as it is when
// what we wrote is given again.
func usesClouds(global *ini.Section) bool {
	for _, o := range openstackClouds {
		if value, _ := global.Get(o.key); value != o.value {
			return false
		}
	}
	for _, o := range openstackLegacy {
		if _, ok := global.Get(o.key); ok {
			return false
		}
	}
	return true
}

func dropLegacy(global *ini.Section) error {
	for _, o := range openstackLegacy {
		if value, _ := global.Get(o.key); value != o.value {
			return fmt.Errorf("'[Global] %s' is set to a non-default value", o.key)
		}
		global.Delete(o.key)
	}
	return nil
}

func setIfAbsent(s *ini.Section, key, value string) {
	if _, ok := s.Get(key); !ok {
		s.Set(key, value)
	}
}
