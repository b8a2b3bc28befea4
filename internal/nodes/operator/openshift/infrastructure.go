// SPDX-License-Identifier: Apache-2.0

package openshift

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PlatformType is the cloud that the cluster runs on, as Infrastructure spells
// it.
type PlatformType string

// Platforms that Infrastructure knows.
const (
	AlibabaCloud PlatformType = "AlibabaCloud"
	AWS          PlatformType = "AWS"
	Azure        PlatformType = "Azure"
	BareMetal    PlatformType = "BareMetal"
	EquinixMetal PlatformType = "EquinixMetal"
	External     PlatformType = "External"
	GCP          PlatformType = "GCP"
	IBMCloud     PlatformType = "IBMCloud"
	KubeVirt     PlatformType = "KubeVirt"
	Libvirt      PlatformType = "Libvirt"
	None         PlatformType = "None"
	Nutanix      PlatformType = "Nutanix"
	OpenStack    PlatformType = "OpenStack"
	PowerVS      PlatformType = "PowerVS"
	VSphere      PlatformType = "VSphere"
)

// TopologyMode says how many nodes a control plane has.
type TopologyMode string

// SingleReplica is the topology in which nothing runs twice.
const SingleReplica TopologyMode = "SingleReplica"

// AzureStackCloud is the cloud name of Azure Stack Hub, which Infrastructure
// lists under [Azure].
const AzureStackCloud = "AzureStackCloud"

// Infrastructure says what the cluster runs on.
//
// +kubebuilder:object:root=true
type Infrastructure struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   InfrastructureSpec   `json:"spec"`
	Status InfrastructureStatus `json:"status"`
}

// InfrastructureSpec is what administrators may change.
type InfrastructureSpec struct {
	// CloudConfig names the ConfigMap in openshift-config with the
	// configuration of the cloud provider, and its key.
	CloudConfig  ConfigMapFileReference `json:"cloudConfig"`
	PlatformSpec PlatformSpec           `json:"platformSpec,omitempty"`
}

// ConfigMapFileReference is a key of a ConfigMap of a known namespace.
type ConfigMapFileReference struct {
	Name string `json:"name"`
	Key  string `json:"key,omitempty"`
}

// PlatformSpec is what administrators may change of a platform.
type PlatformSpec struct {
	Type    PlatformType         `json:"type"`
	VSphere *VSpherePlatformSpec `json:"vsphere,omitempty"`
}

// VSpherePlatformSpec is where the cluster's machines are.
type VSpherePlatformSpec struct {
	VCenters       []VSphereVCenter       `json:"vcenters,omitempty"`
	FailureDomains []VSphereFailureDomain `json:"failureDomains,omitempty"`
	NodeNetworking VSphereNodeNetworking  `json:"nodeNetworking,omitempty"`
}

// VSphereVCenter is a vCenter. Port 0 is the default.
type VSphereVCenter struct {
	Server      string   `json:"server"`
	Port        int32    `json:"port,omitempty"`
	Datacenters []string `json:"datacenters"`
}

// VSphereFailureDomain is a zone. Server is that of one of the vCenters.
type VSphereFailureDomain struct {
	Server   string          `json:"server"`
	Topology VSphereTopology `json:"topology"`
}

// VSphereTopology is where machines of a failure domain are made.
type VSphereTopology struct {
	Datacenter string `json:"datacenter"`
}

// VSphereNodeNetworking says which of a machine's addresses are the node's.
type VSphereNodeNetworking struct {
	External VSphereNodeNetwork `json:"external"`
	Internal VSphereNodeNetwork `json:"internal"`
}

// VSphereNodeNetwork chooses addresses by network name and range.
type VSphereNodeNetwork struct {
	NetworkSubnetCIDR        []string `json:"networkSubnetCidr,omitempty"`
	Network                  string   `json:"network,omitempty"`
	ExcludeNetworkSubnetCIDR []string `json:"excludeNetworkSubnetCidr,omitempty"`
}

// InfrastructureStatus is what the installer found.
type InfrastructureStatus struct {
	InfrastructureName string `json:"infrastructureName"`
	// PlatformStatus is nil until the installer has written it.
	PlatformStatus       *PlatformStatus `json:"platformStatus,omitempty"`
	ControlPlaneTopology TopologyMode    `json:"controlPlaneTopology"`
}

// PlatformStatus is what the installer found of the platform. The platform's
// own part may be missing.
type PlatformStatus struct {
	Type     PlatformType           `json:"type"`
	Azure    *AzurePlatformStatus   `json:"azure,omitempty"`
	VSphere  *VSpherePlatformStatus `json:"vsphere,omitempty"`
	External *ExternalStatus        `json:"external,omitempty"`
}

// awaiting are the platforms whose kubelets start with --cloud-provider=external.
var awaiting = map[PlatformType]bool{
	AlibabaCloud: true, AWS: true, Azure: true, GCP: true, IBMCloud: true, KubeVirt: true, Nutanix: true, OpenStack: true, PowerVS: true, VSphere: true,
}

// AwaitsManager reports whether the Nodes of a platform wait for a cloud controller
// manager, whoever deploys it.
func (s *PlatformStatus) AwaitsManager() bool {
	if s.Type == External {
		return s.External != nil && s.External.CloudControllerManager.State == ExternalManager
	}
	return awaiting[s.Type]
}

// AzurePlatformStatus is Azure's part.
type AzurePlatformStatus struct {
	// CloudName is that of the Azure cloud; empty means AzurePublicCloud.
	CloudName string `json:"cloudName,omitempty"`
}

// VSpherePlatformStatus is vSphere's part: the addresses that move between
// nodes, and so are none of a node's own.
type VSpherePlatformStatus struct {
	APIServerInternalIPs []string `json:"apiServerInternalIPs"`
	IngressIPs           []string `json:"ingressIPs"`
}

// ExternalStatus is that of a platform that OpenShift does not know.
type ExternalStatus struct {
	CloudControllerManager struct {
		// State is ExternalManager, None, or nothing, which means None.
		State string `json:"state"`
	} `json:"cloudControllerManager"`
}

// ExternalManager is the State with which kubelets wait for a manager.
const ExternalManager = "External"
