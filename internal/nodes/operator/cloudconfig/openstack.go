// SPDX-License-Identifier: Apache-2.0

package cloudconfig

import (
	"fmt"

	"github.com/outrigger/outrigger/internal/nodes/operator/cloudconfig/ini"
	"github.com/outrigger/outrigger/internal/nodes/operator/openshift"
)

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
	if c.platform().Type != openshift.OpenStack {
		return "", wrongPlatform(openshift.OpenStack)
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
