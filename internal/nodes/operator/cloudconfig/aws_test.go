// SPDX-License-Identifier: Apache-2.0

package cloudconfig

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"

	"github.com/outrigger/outrigger/internal/nodes/operator/openshift"
)

const awsDefaults = `[Global]
DisableSecurityGroupIngress = false
ClusterServiceLoadBalancerHealthProbeMode = Shared
ClusterServiceSharedLoadBalancerHealthProbePort = 0
`

func TestAWS(t *testing.T) {
	on, off := openshift.Gates{gateNLBSecurityGroup: true}, openshift.Gates{gateNLBSecurityGroup: false}
	for name, c := range map[string]struct {
		source string
		gates  openshift.Gates
		want   string
	}{
		"empty":                  {"", nil, awsDefaults},
		"empty section":          {"[Global]\n", off, awsDefaults},
		"gate on":                {"", on, awsDefaults + "NLBSecurityGroupMode = Managed\n"},
		"gate on overrides":      {"[Global]\nNLBSecurityGroupMode = Other\n", on, awsDefaults + "NLBSecurityGroupMode = Managed\n"},
		"gate off keeps":         {"[Global]\nNLBSecurityGroupMode = Managed\n", off, awsDefaults + "NLBSecurityGroupMode = Managed\n"},
		"gate unknown":           {"", openshift.Gates{"Other": true}, awsDefaults},
		"empty strings dropped":  {"[Global]\nZone =\nVPC = \"\"\n", nil, awsDefaults},
		"empty mode is unset":    {"[Global]\nClusterServiceLoadBalancerHealthProbeMode =\n", nil, awsDefaults},
		"other case is the same": {"[GLOBAL]\ndisablesecuritygroupingress = false\n", nil, "[GLOBAL]\ndisablesecuritygroupingress = false\nClusterServiceLoadBalancerHealthProbeMode = Shared\nClusterServiceSharedLoadBalancerHealthProbePort = 0\n"},
		"IPv4 first": {
			"[Global]\nNodeIPFamilies = ipv4\nNodeIPFamilies = ipv6\n", nil,
			"[Global]\nDisableSecurityGroupIngress = false\nNodeIPFamilies = ipv4\nNodeIPFamilies = ipv6\nClusterServiceLoadBalancerHealthProbeMode = Shared\nClusterServiceSharedLoadBalancerHealthProbePort = 0\n",
		},
		"all that is set, in order, with what nobody knows": {
			"; comment\n[ServiceOverride \"2\"]\nURL = https://b\nService = s3\n[Surprise]\nx = y\n[ServiceOverride \"1\"]\nSigningRegion = r\nService = ec2\n" +
				"[Global]\nFuture = 1\nNodeIPFamilies = ipv6\nNodeIPFamilies = ipv4\nClusterServiceSharedLoadBalancerHealthProbePort = 10256\n" +
				"ClusterServiceLoadBalancerHealthProbeMode = ServiceNodePort\nDisableSecurityGroupIngress = true\nZone = us-east-1a\n", nil,
			"[Global]\nZone = us-east-1a\nDisableSecurityGroupIngress = true\nNodeIPFamilies = ipv6\nNodeIPFamilies = ipv4\n" +
				"ClusterServiceLoadBalancerHealthProbeMode = ServiceNodePort\nClusterServiceSharedLoadBalancerHealthProbePort = 10256\nFuture = 1\n" +
				"\n[ServiceOverride \"1\"]\nService = ec2\nSigningRegion = r\n\n[ServiceOverride \"2\"]\nService = s3\nURL = https://b\n\n[Surprise]\nx = y\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Transform(AWS, c.source, Cluster{Gates: c.gates})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if again, err := Transform(AWS, got, Cluster{Gates: c.gates}); err != nil || again != got {
				t.Errorf("again: %v\n%s", err, cmp.Diff(got, again))
			}
		})
	}
}

func TestAWSChecksNoPlatform(t *testing.T) {
	if _, err := Transform(AWS, "", on(configv1.GCPPlatformType)); err != nil {
		t.Error(err)
	}
	if _, err := Transform(AWS, "[Global\n", Cluster{}); err == nil || err.Error() != "failed to read the cloud.conf: line 1: [Global: expected right bracket" {
		t.Error(err)
	}
}

// on is a cluster on a platform.
func on(p configv1.PlatformType) Cluster {
	i := &configv1.Infrastructure{}
	i.Status.PlatformStatus = &configv1.PlatformStatus{Type: p}
	return Cluster{Infrastructure: i}
}
