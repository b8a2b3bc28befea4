// SPDX-License-Identifier: Apache-2.0

package cloudconfig

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
	"sigs.k8s.io/yaml"
)

const vsphereINI = `[Global]
secret-name = "vsphere-creds"
secret-namespace = "kube-system"
insecure-flag = "1"

[Workspace]
server = "vc1"
folder = "/DC1/vm/F1"

[VirtualCenter "vc1"]
datacenters = "DC1"
`

const vsphereYAML = `global:
  secretName: vsphere-creds
  secretNamespace: kube-system
  insecureFlag: true
vcenter:
  vc1:
    server: vc1
    datacenters:
      - DC1
`

func onVSphere(change ...func(*configv1.Infrastructure)) Cluster {
	c := on(configv1.VSpherePlatformType)
	c.Infrastructure.Status.PlatformStatus.VSphere = &configv1.VSpherePlatformStatus{}
	for _, f := range change {
		f(c.Infrastructure)
	}
	return c
}

// spec changes what administrators say of vSphere.
func spec(f func(*configv1.VSpherePlatformSpec)) func(*configv1.Infrastructure) {
	return func(i *configv1.Infrastructure) {
		if i.Spec.PlatformSpec.VSphere == nil {
			i.Spec.PlatformSpec.VSphere = &configv1.VSpherePlatformSpec{VCenters: []configv1.VSpherePlatformVCenterSpec{{Server: "vc1", Datacenters: []string{"DC1"}}}}
		}
		f(i.Spec.PlatformSpec.VSphere)
	}
}

func vcenter(server string, port int32, datacenters ...string) func(*configv1.VSpherePlatformSpec) {
	return func(s *configv1.VSpherePlatformSpec) {
		s.VCenters = append(s.VCenters, configv1.VSpherePlatformVCenterSpec{Server: server, Port: port, Datacenters: datacenters})
	}
}

func domains(pairs ...string) func(*configv1.VSpherePlatformSpec) {
	return func(s *configv1.VSpherePlatformSpec) {
		for i := 0; i < len(pairs); i += 2 {
			s.FailureDomains = append(s.FailureDomains, configv1.VSpherePlatformFailureDomainSpec{Server: pairs[i], Topology: configv1.VSpherePlatformTopology{Datacenter: pairs[i+1]}})
		}
	}
}

func networking(s *configv1.VSpherePlatformSpec) {
	s.NodeNetworking = configv1.VSpherePlatformNodeNetworking{
		External: configv1.VSpherePlatformNodeNetworkingSpec{Network: "ext", NetworkSubnetCIDR: []string{"198.51.100.0/24", "fe80::3/128"}, ExcludeNetworkSubnetCIDR: []string{"192.1.2.0/24"}},
		Internal: configv1.VSpherePlatformNodeNetworkingSpec{Network: "int", NetworkSubnetCIDR: []string{"192.0.3.0/24"}, ExcludeNetworkSubnetCIDR: []string{"192.0.2.0/24", "fe80::1/128"}},
	}
}

func virtualIPs(api, ingress []string) func(*configv1.Infrastructure) {
	return func(i *configv1.Infrastructure) {
		i.Status.PlatformStatus.VSphere = &configv1.VSpherePlatformStatus{APIServerInternalIPs: api, IngressIPs: ingress}
	}
}

func (c Cluster) serving(ranges ...string) Cluster {
	c.Network = &configv1.Network{Spec: configv1.NetworkSpec{ServiceNetwork: ranges}}
	return c
}

const (
	net4, net6 = "172.30.0.0/16", "fd65:172:16::/112"
	nothing    = "global: {}\nvcenter: {}\n"
	vc1        = "vcenter: {vc1: {server: vc1, datacenters: [DC1]}}\n"
)

func TestVSphere(t *testing.T) {
	for name, c := range map[string]struct {
		source  string
		cluster Cluster
		want    string
	}{
		"INI":                         {vsphereINI, onVSphere(), vsphereYAML},
		"YAML":                        {vsphereYAML, onVSphere(), vsphereYAML},
		"YAML is left without a spec": {vsphereYAML, onVSphere().serving(net6), vsphereYAML},
		"the minimum":                 {VSphere.Minimal(), onVSphere(spec(func(*configv1.VSpherePlatformSpec) {})), "global: {}\n" + vc1},
		"one vCenter goes, one comes, one stays with what else is known of it": {
			"global: {}\nvcenter:\n  vc1: {server: vc1, port: 1, datacenters: [OLD], insecureFlag: true}\n  gone: {server: gone}\n",
			onVSphere(spec(vcenter("vc2", 8443, "A", "B"))),
			"global: {}\nvcenter:\n  vc1: {server: vc1, datacenters: [DC1], insecureFlag: true}\n  vc2: {server: vc2, port: 8443, datacenters: [A, B]}\n",
		},
		"a failure domain": {
			nothing, onVSphere(spec(domains("vc1", "DC2"))),
			"global: {}\nvcenter: {vc1: {server: vc1, datacenters: [DC1, DC2]}}\n",
		},
		"failure domains": {
			nothing + "labels: {zone: mine, region: mine, other: x}\n", onVSphere(spec(domains("vc1", "DC1", "vc1", "DC2"))),
			"global: {}\nvcenter: {vc1: {server: vc1, datacenters: [DC1, DC2]}}\nlabels: {zone: openshift-zone, region: openshift-region, other: x}\n",
		},
		"one failure domain leaves the labels": {
			nothing + "labels: {zone: mine}\n", onVSphere(spec(domains("vc1", "DC1"))), "global: {}\n" + vc1 + "labels: {zone: mine}\n",
		},
		"networks of nodes": {
			nothing + "nodes: {externalVmNetworkName: old, other: x}\n", onVSphere(spec(networking)).serving(net4),
			"global: {}\n" + vc1 + "nodes: {other: x, externalVmNetworkName: ext, externalNetworkSubnetCidr: '198.51.100.0/24,fe80::3/128', excludeExternalNetworkSubnetCidr: 192.1.2.0/24," +
				"internalVmNetworkName: int, internalNetworkSubnetCidr: 192.0.3.0/24, excludeInternalNetworkSubnetCidr: '192.0.2.0/24,fe80::1/128'}\n",
		},
		"IPv4 is the default": {
			nothing, onVSphere(spec(func(*configv1.VSpherePlatformSpec) {}), virtualIPs([]string{"192.0.2.1"}, nil)).serving(net4), "global: {}\n" + vc1,
		},
		"IPv4 first": {
			nothing, onVSphere(spec(networking), virtualIPs([]string{"192.168.96.3", "fd65::200"}, []string{"192.168.96.4", "fd65::201"})).serving(net4, net6),
			"global: {ipFamily: [ipv4, ipv6]}\n" + vc1 + "nodes: {externalVmNetworkName: ext, externalNetworkSubnetCidr: '198.51.100.0/24,fe80::3/128', internalVmNetworkName: int, internalNetworkSubnetCidr: 192.0.3.0/24," +
				"excludeExternalNetworkSubnetCidr: '192.1.2.0/24,192.168.96.3/32,fd65::200/128,192.168.96.4/32,fd65::201/128,fd69::2/128'," +
				"excludeInternalNetworkSubnetCidr: '192.0.2.0/24,fe80::1/128,192.168.96.3/32,fd65::200/128,192.168.96.4/32,fd65::201/128,fd69::2/128'}\n",
		},
		"IPv6 first, over a vCenter's own": {
			"global: {ipFamily: [ipv4]}\nvcenter: {vc1: {server: vc1, ipFamily: [ipv4]}}\n", onVSphere(spec(func(*configv1.VSpherePlatformSpec) {})).serving(net6, net4),
			"global: {ipFamily: [ipv6, ipv4]}\n" + vc1 + "nodes: {excludeExternalNetworkSubnetCidr: 'fd69::2/128', excludeInternalNetworkSubnetCidr: 'fd69::2/128'}\n",
		},
		"IPv6 only": {
			nothing, onVSphere(spec(func(*configv1.VSpherePlatformSpec) {}), virtualIPs([]string{"fd65::200"}, []string{"fd65::201"})).serving(net6),
			"global: {ipFamily: [ipv6]}\n" + vc1 + "nodes: {excludeExternalNetworkSubnetCidr: 'fd65::200/128,fd65::201/128,fd69::2/128', excludeInternalNetworkSubnetCidr: 'fd65::200/128,fd65::201/128,fd69::2/128'}\n",
		},
		"texts that look otherwise, and what nobody knows": {
			"global: {user: 0123, password: 1e3, future: [1, 2]}\nvcenter: {vc1: {server: vc1, port: 443}}\nroute: {routerPath: /x}\n", onVSphere(),
			"global: {user: 0123, password: 1e3, future: [1, 2]}\nvcenter: {vc1: {server: vc1, port: 443}}\nroute: {routerPath: /x}\n",
		},
		"all of INI": {
			"[global]\nuser = 0123\npassword = \"a#b;c\"\nport = 8443\nsoap-roundtrip-count = 3\nip-family = ipv6, ipv4\napi-disable = false\nfuture-key = x\n" +
				"[VirtualCenter \"tenant\"]\nserver = vc.example\ninsecure-flag\nca-file = /x\n[Labels]\nzone = z\n[Nodes]\nexclude-internal-network-subnet-cidr = 192.0.2.0/24\n[Route]\nrouter-path = /x\n[Disk]\nscsicontrollertype = pvscsi\n",
			onVSphere(),
			"global: {user: '0123', password: 'a#b;c', port: 8443, soapRoundtripCount: 3, ipFamily: [ipv6, ipv4], apiDisable: false, futureKey: x}\n" +
				"vcenter: {tenant: {server: vc.example, insecureFlag: true, caFile: /x}}\nlabels: {zone: z}\nnodes: {excludeInternalNetworkSubnetCidr: 192.0.2.0/24}\nroute: {routerPath: /x}\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Transform(VSphere, c.source, c.cluster)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(parsed(t, c.want), parsed(t, got)); d != "" {
				t.Errorf("-want +got:\n%s\n%s", d, got)
			}
			if again, err := Transform(VSphere, got, c.cluster); err != nil || again != got {
				t.Errorf("again: %v\n%s", err, cmp.Diff(got, again))
			}
		})
	}
}

func parsed(t *testing.T, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := yaml.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return m
}

func TestScalarsAreWrittenAsTheyWere(t *testing.T) {
	source := "global:\n  user: 0123\n  password: \"1e3\"\n  thumbprint: 'AB:CD'\n  insecureFlag: yes\n"
	got, err := Transform(VSphere, source, onVSphere())
	if err != nil || got != source {
		t.Errorf("%v\n%s", err, cmp.Diff(source, got))
	}
}

// TestRegressionFailureDomainOfUnknownServer: a failure domain whose server is
// none of the vCenters was a nil dereference.
func TestRegressionFailureDomainOfUnknownServer(t *testing.T) {
	got, err := Transform(VSphere, nothing, onVSphere(spec(domains("elsewhere", "DC9", "elsewhere", "DC8", "vc1", "DC1"))))
	if err != nil {
		t.Fatal(err)
	}
	want := "global: {}\nvcenter: {vc1: {server: vc1, datacenters: [DC1]}, elsewhere: {server: elsewhere, datacenters: [DC9, DC8]}}\nlabels: {zone: openshift-zone, region: openshift-region}\n"
	if d := cmp.Diff(parsed(t, want), parsed(t, got)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestRegressionMissingStatus: a platform without its own part of the status
// was a nil dereference.
func TestRegressionMissingStatus(t *testing.T) {
	bare := on(configv1.VSpherePlatformType).serving(net6)
	spec(networking)(bare.Infrastructure)
	if _, err := Transform(VSphere, nothing, bare); err != nil {
		t.Error(err)
	}
	if _, err := Transform(Azure, "{}", on(configv1.AzurePlatformType)); err != nil {
		t.Error(err)
	}
	if p, ok := PlatformOf(on(configv1.AzurePlatformType).Infrastructure.Status.PlatformStatus); p != Azure || !ok {
		t.Errorf("Azure without status is %q", p)
	}
}

func TestVSphereErrors(t *testing.T) {
	for source, want := range map[string]string{
		"":                                  "failed to read the cloud.conf: vSphere config is empty",
		"\n \n":                             "failed to read the cloud.conf: vSphere config is empty",
		"[Global\n":                         "failed to read the cloud.conf: ini config parsing failed: line 1: [Global: expected right bracket",
		"[Global]\nuser: x\n":               "ini config parsing failed: line 2: [Global] user: expected '='",
		"[Global]\nport = many\n":           "line 2: [Global] port: a number of 0 or more is expected",
		"[Global]\nport = -1\n":             "line 2: [Global] port: a number of 0 or more is expected",
		"[Global]\ninsecure-flag = maybe\n": "line 2: [Global] insecure-flag: true or false is expected",
		"just text":                         "it is neither YAML (a mapping is expected) nor INI (line 1: expected section header)",
		"global:\n\tuser: x\n":              "it is neither YAML (yaml: line 2: found character that cannot start any token)",
		"global: {}\nglobal: {}\n":          `line 2: key "global" stands in line 1 already`,
		"global: []\n":                      `line 1: key "global": a mapping is expected`,
		"vcenter:\n  a: b\n":                `line 2: vCenter "a": a mapping is expected`,
	} {
		if _, err := Transform(VSphere, source, onVSphere()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %s", source, err, want)
		}
	}
	if _, err := Transform(VSphere, vsphereYAML, on(configv1.AWSPlatformType)); err == nil || err.Error() != "invalid platform, expected to be VSphere" {
		t.Error(err)
	}
}
