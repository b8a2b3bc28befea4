// SPDX-License-Identifier: Apache-2.0

// Package cloudconfig makes of the configuration that somebody wrote for a
// cloud the one that the cloud's controller manager gets, and says what is
// wrong with either. No cloud's SDK is needed for that: files are read as what
// they are, sections and keys, JSON or YAML, and what is not to be changed,
// known or not, stays as it was. Comments may go.
//
// Errors name the line or the key, and never show a value that may be a secret.
package cloudconfig

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"go.yaml.in/yaml/v3"

	"github.com/outrigger/outrigger/internal/nodes/operator/cloudconfig/ini"
	"github.com/outrigger/outrigger/internal/nodes/operator/cloudconfig/jsonobject"
	"github.com/outrigger/outrigger/internal/nodes/operator/openshift"
)

// Platform is a cloud as bundles name it.
type Platform string

// The platforms whose configuration is known.
const (
	AWS           Platform = "aws"
	Azure         Platform = "azure"
	AzureStackHub Platform = "azurestackhub"
	GCP           Platform = "gcp"
	IBMCloud      Platform = "ibmcloud"
	PowerVS       Platform = "powervs"
	OpenStack     Platform = "openstack"
	VSphere       Platform = "vsphere"
	Nutanix       Platform = "nutanix"

	AlibabaCloud Platform = "alibabacloud"
	Libvirt      Platform = "libvirt"
	Docker       Platform = "docker"
	QEMU         Platform = "qemu"
)

// Cluster is what transformers take from a cluster of OpenShift. Network may be
// nil; gates that are missing are off.
type Cluster struct {
	Infrastructure *configv1.Infrastructure
	Network        *configv1.Network
	Gates          openshift.Gates
}

// platform returns the status of the cluster's platform, or one without type.
func (c Cluster) platform() configv1.PlatformStatus {
	if c.Infrastructure == nil || c.Infrastructure.Status.PlatformStatus == nil {
		return configv1.PlatformStatus{}
	}
	return *c.Infrastructure.Status.PlatformStatus
}

// PlatformOf returns the platform of a cluster of OpenShift; false when nothing
// is to be done for it.
func PlatformOf(s *configv1.PlatformStatus) (Platform, bool) {
	if s.Type == configv1.AzurePlatformType && azureCloud(s) == configv1.AzureStackCloud {
		return AzureStackHub, true
	}
	p, ok := map[configv1.PlatformType]Platform{
		configv1.AWSPlatformType: AWS, configv1.AzurePlatformType: Azure, configv1.GCPPlatformType: GCP, configv1.IBMCloudPlatformType: IBMCloud,
		configv1.PowerVSPlatformType: PowerVS, configv1.OpenStackPlatformType: OpenStack, configv1.VSpherePlatformType: VSphere, configv1.NutanixPlatformType: Nutanix,
	}[s.Type]
	return p, ok
}

// PrefersManaged reports whether the configuration is read from
// openshift-config-managed before openshift-config.
func (p Platform) PrefersManaged() bool { return p == AWS || p == Azure }

// GateMultiVCenter is the gate with which vSphere's configuration is managed by
// us in openshift-config-managed too.
const GateMultiVCenter = "VSphereMultiVCenterDay2"

// Manages reports whether openshift-config-managed gets what was made of a
// platform's configuration.
func (p Platform) Manages(g openshift.Gates) bool { return p == VSphere && g[GateMultiVCenter] }

// Minimal returns the configuration to use if one is named but does not exist, on
// platforms with [Platform.Manages]: the cluster's objects contain everything that is
// needed.
func (p Platform) Minimal() string {
	if p == VSphere {
		return "global: {}\nvcenter: {}\n"
	}
	return ""
}

var transformers = map[Platform]func(source string, c Cluster) (string, error){
	AWS: transformAWS, Azure: transformAzure, AzureStackHub: transformAzureStackHub,
	OpenStack: transformOpenStack, VSphere: transformVSphere,
}

// Transform makes the configuration that the controller manager gets. That of
// platforms without rules of their own is left alone.
func Transform(p Platform, source string, c Cluster) (string, error) {
	if transform, ok := transformers[p]; ok {
		return transform(source, c)
	}
	if !Known(p) {
		return "", fmt.Errorf("no transformer for platform %q", p)
	}
	return source, nil
}

func unreadable(err error) error { return fmt.Errorf("failed to read the cloud.conf: %w", err) }

// Same reports whether two configurations say the same to a platform's controller
// manager: order, spaces and comments do not count, and what is empty is as what is
// not there. Whoever takes the place of another operator leaves what that wrote in its
// own form, since pods restart for each byte.
func Same(p Platform, a, b string) bool {
	if a == b {
		return true
	}
	read := map[Platform]func(string) any{
		AWS: iniValues, OpenStack: iniValues, Azure: jsonValues, AzureStackHub: jsonValues, VSphere: yamlValues,
	}[p]
	if read == nil {
		return false
	}
	one, other := read(a), read(b)
	return one != nil && reflect.DeepEqual(one, other)
}

// iniValues returns the values by section and key; nil if text is not an INI file.
func iniValues(text string) any {
	file, err := ini.Parse(text)
	if err != nil {
		return nil
	}
	all := map[[3]string][]string{}
	for _, s := range file.Sections {
		// A section alone is something to those who ask whether it is there.
		all[[3]string{strings.ToLower(s.Name), s.Sub}] = nil
		for _, k := range s.Keys {
			name := [3]string{strings.ToLower(s.Name), s.Sub, strings.ToLower(k.Name)}
			all[name] = append(all[name], k.Text())
		}
	}
	return all
}

// azureUnset are the keys for which false is not the same as no value: the only ones that
// the provider reads into a *bool (pkg/provider/config/azure.go of
// sigs.k8s.io/cloud-provider-azure v1.36.3). One more is in a list, which counts whole.
var azureUnset = map[string]bool{"excludemasterfromstandardlb": true, "disableoutboundsnat": true}

func jsonValues(text string) any {
	o, err := jsonobject.Parse(text)
	if err != nil {
		return nil
	}
	all := map[string]any{}
	for key, value := range o {
		if key = strings.ToLower(key); value == false && azureUnset[key] || !empty(value) {
			all[key] = value
		}
	}
	return all
}

func yamlValues(text string) any {
	var all map[string]any
	if yaml.Unmarshal([]byte(text), &all) != nil || all == nil {
		return nil
	}
	return withoutEmpty(all)
}

func withoutEmpty(value any) any {
	if m, is := value.(map[string]any); is {
		maps.DeleteFunc(m, func(key string, v any) bool {
			m[key] = withoutEmpty(v)
			return empty(m[key])
		})
	}
	return value
}

// empty reports whether a value is that of a field that nobody sets.
func empty(value any) bool {
	switch v := value.(type) {
	case json.Number:
		return v == "0"
	case nil, bool, string, int:
		return v == nil || reflect.ValueOf(v).IsZero()
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}
