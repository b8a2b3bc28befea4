// SPDX-License-Identifier: Apache-2.0

package cloudconfig

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
)

const openstackGlobal = `[Global]
use-clouds = true
clouds-file = /etc/openstack/secret/clouds.yaml
cloud = openstack
`

const openstackBalancer = `
[LoadBalancer]
max-shared-lb = 1
manage-security-groups = true
`

func TestOpenStack(t *testing.T) {
	for name, c := range map[string]struct{ source, want string }{
		"empty":          {"", openstackGlobal + openstackBalancer},
		"legacy keys":    {"[Global]\nsecret-name = openstack-credentials\nsecret-namespace = kube-system\n", openstackGlobal + openstackBalancer},
		"empty path":     {"[Global]\nsecret-name = openstack-credentials\nsecret-namespace = kube-system\nkubeconfig-path =\n", openstackGlobal + openstackBalancer},
		"block storage":  {"[BlockStorage]\nignore-volume-az = yes\n", openstackGlobal + openstackBalancer},
		"octavia":        {"[LoadBalancer]\nuse-octavia = true\n", "[LoadBalancer]\nmax-shared-lb = 1\nmanage-security-groups = true\n\n" + openstackGlobal},
		"balancer's own": {"[LoadBalancer]\nmanage-security-groups = false\nmax-shared-lb = 3\n", "[LoadBalancer]\nmanage-security-groups = false\nmax-shared-lb = 3\n\n" + openstackGlobal},
		"what nobody knows": {
			"[Global]\nregion = r\nsecret-name = openstack-credentials\nsecret-namespace = kube-system\n[Networking]\npublic-network-name = a\npublic-network-name = b\n[LoadBalancerClass \"x\"]\nsubnet-id = s\n",
			"[Global]\nregion = r\nuse-clouds = true\nclouds-file = /etc/openstack/secret/clouds.yaml\ncloud = openstack\n" +
				"\n[Networking]\npublic-network-name = a\npublic-network-name = b\n\n[LoadBalancerClass \"x\"]\nsubnet-id = s\n" + openstackBalancer,
		},
		"overridden": {
			"[Global]\nsecret-name = openstack-credentials\nsecret-namespace = kube-system\nuse-clouds = false\ncloud = other\nclouds-file = /x\n",
			"[Global]\nuse-clouds = true\ncloud = openstack\nclouds-file = /etc/openstack/secret/clouds.yaml\n" + openstackBalancer,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Transform(OpenStack, c.source, on(configv1.OpenStackPlatformType))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if again, err := Transform(OpenStack, got, on(configv1.OpenStackPlatformType)); err != nil || again != got {
				t.Errorf("again: %v\n%s", err, cmp.Diff(got, again))
			}
		})
	}
}

func TestOpenStackErrors(t *testing.T) {
	const legacy = "secret-name = openstack-credentials\nsecret-namespace = kube-system\n"
	for source, want := range map[string]string{
		"[Global]\nsecret-name = other\nsecret-namespace = kube-system\n": "'[Global] secret-name' is set to a non-default value",
		"[Global]\nregion = r\n": "'[Global] secret-name' is set to a non-default value",
		"[Global]\n":             "'[Global] secret-name' is set to a non-default value",
		"[Global]\nsecret-name = openstack-credentials\n":                             "'[Global] secret-namespace' is set to a non-default value",
		"[Global]\nsecret-name = openstack-credentials\nsecret-namespace = default\n": "'[Global] secret-namespace' is set to a non-default value",
		"[Global]\n" + legacy + "kubeconfig-path = /x\n":                              "'[Global] kubeconfig-path' is set to a non-default value",
		"[Global]\nkey: value\n":                                                      "failed to read the cloud.conf: line 2: [Global] key: expected '='",
	} {
		if _, err := Transform(OpenStack, source, on(configv1.OpenStackPlatformType)); err == nil || err.Error() != want {
			t.Errorf("%q: %v; want %s", source, err, want)
		}
	}
	for _, c := range []Cluster{on(configv1.AWSPlatformType), {}, {Infrastructure: &configv1.Infrastructure{}}} {
		if _, err := Transform(OpenStack, "", c); err == nil || err.Error() != "invalid platform, expected to be OpenStack" {
			t.Error(err)
		}
	}
}
