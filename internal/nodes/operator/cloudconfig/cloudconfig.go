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
	"fmt"

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
	Infrastructure *openshift.Infrastructure
	Network        *openshift.Network
	Gates          openshift.Gates
}

// platform returns the status of the cluster's platform, or one without type.
func (c Cluster) platform() openshift.PlatformStatus {
	if c.Infrastructure == nil || c.Infrastructure.Status.PlatformStatus == nil {
		return openshift.PlatformStatus{}
	}
	return *c.Infrastructure.Status.PlatformStatus
}

// PlatformOf returns the platform of a cluster of OpenShift; false when nothing
// is to be done for it.
func PlatformOf(s *openshift.PlatformStatus) (Platform, bool) {
	if s.Type == openshift.Azure && azureCloud(s) == openshift.AzureStackCloud {
		return AzureStackHub, true
	}
	p, ok := map[openshift.PlatformType]Platform{
		openshift.AWS: AWS, openshift.Azure: Azure, openshift.GCP: GCP, openshift.IBMCloud: IBMCloud,
		openshift.PowerVS: PowerVS, openshift.OpenStack: OpenStack, openshift.VSphere: VSphere, openshift.Nutanix: Nutanix,
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
