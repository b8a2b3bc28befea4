// SPDX-License-Identifier: Apache-2.0

package cloudconfig

import (
	"maps"
	"slices"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
)

var all = slices.Sorted(maps.Keys(validators))

func TestPlatformsWithoutRulesAreLeftAlone(t *testing.T) {
	for _, p := range []Platform{GCP, IBMCloud, PowerVS, Nutanix, AlibabaCloud, Libvirt, Docker, QEMU} {
		for _, source := range []string{"", "anything = \"at\" all"} {
			if got, err := Transform(p, source, Cluster{}); err != nil || got != source {
				t.Errorf("%s: %q became %q, %v", p, source, got, err)
			}
		}
	}
	if _, err := Transform("moon", "", Cluster{}); err == nil || err.Error() != `no transformer for platform "moon"` {
		t.Error(err)
	}
	if err := Validate("moon", ""); err == nil || err.Error() != `no rules for platform "moon"` {
		t.Error(err)
	}
}

func TestPlatformOf(t *testing.T) {
	for of, want := range map[configv1.PlatformType]Platform{
		configv1.AWSPlatformType: AWS, configv1.AzurePlatformType: Azure, configv1.GCPPlatformType: GCP, configv1.VSpherePlatformType: VSphere, configv1.IBMCloudPlatformType: IBMCloud,
		configv1.PowerVSPlatformType: PowerVS, configv1.OpenStackPlatformType: OpenStack, configv1.NutanixPlatformType: Nutanix,
		configv1.BareMetalPlatformType: "", configv1.NonePlatformType: "", configv1.ExternalPlatformType: "", configv1.AlibabaCloudPlatformType: "", configv1.LibvirtPlatformType: "", "": "",
	} {
		if got, ok := PlatformOf(&configv1.PlatformStatus{Type: of}); got != want || ok != (want != "") {
			t.Errorf("%s is %q, %v; want %q", of, got, ok, want)
		}
	}
	if got, _ := PlatformOf(onAzure("AzureStackCloud").Infrastructure.Status.PlatformStatus); got != AzureStackHub {
		t.Errorf("Azure Stack is %q", got)
	}
}

func TestValid(t *testing.T) {
	for p, texts := range map[Platform][]string{
		AWS:           {"", awsDefaults, "[ServiceOverride \"1\"]\nService=ec2\nRegion=r\nURL=https://x\nSigningRegion=r\n", "[Future]\nx\n"},
		Azure:         {`{"cloud":"AzurePublicCloud","useInstanceMetadata":true,"cloudProviderBackoffRetries":6,"vmType":"vmss","future":[]}`},
		AzureStackHub: {`{"vmType":"standard"}`},
		GCP:           {"", "[Global]\nmultizone = true\nnode-tags = a\nnode-tags = b\n"},
		IBMCloud:      {"", "[global]\nversion = 1.1.0\n[kubernetes]\nconfig-file = \"\"\n"},
		PowerVS:       {"", "[provider]\nregion = lon\n"},
		OpenStack:     {"", openstackGlobal + openstackBalancer, "[LoadBalancer]\nmonitor-delay = 5s\n"},
		VSphere:       {vsphereYAML, vsphereINI, "global: {server: vc1, insecureFlag: yes, ipFamily: [IPv6]}\n"},
		Nutanix:       {"", `{"prismCentral":{"address":"pc","port":9440}}`},
		AlibabaCloud:  {"", "ALIBABACLOUD_REGION=x\n"},
		Libvirt:       {"", "# ours\n\nLIBVIRT_URI=qemu:///system?a=b\nCCM_INSTANCE_TAGS=a=b\n"},
		Docker:        {"", "DOCKER_HOST=unix:///x\n"},
		QEMU:          {""},
	} {
		for _, text := range texts {
			if err := Validate(p, text); err != nil {
				t.Errorf("%s: %q: %v", p, text, err)
			}
		}
	}
}

func TestInvalid(t *testing.T) {
	for _, c := range []struct {
		platform   Platform
		text, want string
	}{
		{AWS, "[Global]\nDisableSecurityGroupIngress = perhaps\n", "line 2: [Global] DisableSecurityGroupIngress: true or false is expected"},
		{AWS, "[Global]\nClusterServiceLoadBalancerHealthProbeMode = shared\n", "line 2: [Global] ClusterServiceLoadBalancerHealthProbeMode: Shared or ServiceNodePort is expected"},
		{AWS, "[Global]\nClusterServiceSharedLoadBalancerHealthProbePort = http\n", "line 2: [Global] ClusterServiceSharedLoadBalancerHealthProbePort: a number of 0 or more is expected"},
		{AWS, "[Global]\nNodeIPFamilies = ipv4\nNodeIPFamilies = ipv5\n", "line 3: [Global] NodeIPFamilies: ipv4 or ipv6 is expected"},
		{AWS, "[ServiceOverride \"1\"]\nService=ec2\n", "line 1: [ServiceOverride \"1\"]: key Region is missing or empty"},
		{AWS, "[ServiceOverride \"1\"]\nService=a\nRegion=r\nURL=u\nSigningRegion=r\n[ServiceOverride \"2\"]\nService=a\nRegion=r\nURL=u\nSigningRegion=r\n", `line 6: [ServiceOverride "2"] overrides the same service in the same region as [ServiceOverride "1"]`},
		{Azure, "", "it is empty"},
		{Azure, `{"vmType":"big"}`, `key "vmType": standard or vmss or vmssflex is expected`},
		{Azure, `{"useInstanceMetadata":"true"}`, `key "useInstanceMetadata": a JSON boolean is expected`},
		{Azure, `{"aadClientSecret":5,"cloudProviderBackoffRetries":"6"}`, "key \"aadClientSecret\": a JSON string is expected\nkey \"cloudProviderBackoffRetries\": a JSON number is expected"},
		{AzureStackHub, "[Global]", "line 1: "},
		{GCP, "[global]\nregional = x\n", "line 2: [global] regional: true or false is expected"},
		{IBMCloud, "{}", "line 1: expected section header"},
		{PowerVS, "[provider\n", "line 1: [provider: expected right bracket"},
		{OpenStack, "[LoadBalancer]\nmax-shared-lb = few\nmonitor-delay = 5\n", "line 2: [LoadBalancer] max-shared-lb: a number of 0 or more is expected\nline 3: [LoadBalancer] monitor-delay: a duration such as 30s is expected"},
		{VSphere, "", "vSphere config is empty"},
		{VSphere, "global: {}\n", `key "vcenter": at least one vCenter is expected`},
		{VSphere, "vcenter:\n  a:\n    port: x\n", "line 3: key \"vcenter.a.port\": a number of 0 or more is expected\nline 3: key \"vcenter.a.server\" is missing"},
		{VSphere, "global:\n  server: x\n  datacenters: DC1\n  insecureFlag: \"true\"\n  ipFamily: [ipv5]\n", "line 3: key \"global.datacenters\": a list is expected\nline 4: key \"global.insecureFlag\": true or false is expected\nline 5: key \"global.ipFamily\": ipv4 or ipv6 is expected"},
		{VSphere, "global: {server: x}\nnodes:\n  externalNetworkSubnetCidr: 192.0.2.0/24, nowhere\n", `line 3: key "nodes.externalNetworkSubnetCidr": "nowhere" is not a range`},
		{Nutanix, "[Global]\n", "line 1: "},
		{Nutanix, "{}", `key "prismCentral": an object is expected`},
		{Nutanix, `{"prismCentral":{"address":1}}`, `key "prismCentral.address": a string is expected`},
		{AlibabaCloud, "[Global]\n", "line 1: want VARIABLE=VALUE"},
		{Libvirt, "A=1\nB\n", "line 2: want VARIABLE=VALUE"},
		{Docker, "A=1\nA=2\n", "line 2: A is set in line 1 already"},
		{QEMU, "A=\xff\n", "line 1: not UTF-8 text"},
	} {
		if err := Validate(c.platform, c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q: %v; want %s", c.platform, c.text, err, c.want)
		}
	}
}

// TestErrorsShowNoSecret gives each platform a secret wherever something may be
// wrong.
func TestErrorsShowNoSecret(t *testing.T) {
	const secret = "hunter2"
	for _, p := range all {
		for _, text := range []string{
			secret, "[Global]\npassword = \"" + secret, "[Global]\npassword \\" + secret, "[Global]\npassword = \\" + secret,
			`{"aadClientSecret":"` + secret, `{"aadClientSecret":` + secret + `}`, `"` + secret + `"`,
			"global:\n  password: " + secret + "\n\tx: y", "global:\n  password: {" + secret, "global: " + secret, "global:\n  password: *" + secret, "global:\n  password: !" + secret + " x", "global:\n  password: &" + secret,
			"global:\n  password: %" + secret, "global:\n  password: @" + secret, "global:\n  password: \"\\q" + secret, "global:\n  password: " + secret + ": x: y", "PASSWORD " + secret, "A=1\nA=" + secret,
		} {
			c := on(configv1.VSpherePlatformType)
			_, err := Transform(p, text, c)
			for _, err := range []error{err, Validate(p, text)} {
				if err != nil && strings.Contains(err.Error(), secret) {
					t.Errorf("%s: %q: %v", p, text, err)
				}
			}
		}
	}
}

// TestWhatIsMadeIsValid: what a transformer makes of nothing but what it needs
// is a configuration.
func TestWhatIsMadeIsValid(t *testing.T) {
	for p, c := range map[Platform]struct {
		source  string
		cluster Cluster
	}{
		AWS: {"", Cluster{}}, Azure: {"{}", onAzure("")}, AzureStackHub: {"{}", onAzure("AzureStackCloud")}, OpenStack: {"", on(configv1.OpenStackPlatformType)},
		VSphere: {nothing, onVSphere(spec(networking)).serving(net4, net6)},
	} {
		got, err := Transform(p, c.source, c.cluster)
		if err == nil {
			err = Validate(p, got)
		}
		if err != nil {
			t.Errorf("%s: %v", p, err)
		}
	}
}
