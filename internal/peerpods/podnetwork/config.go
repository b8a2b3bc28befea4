// SPDX-License-Identifier: Apache-2.0

// Package podnetwork carries a pod's traffic between its network namespace on
// the node and its VM: a VXLAN tunnel for each pod, tc redirects on the node,
// and the pod's own interface rebuilt inside the VM.
package podnetwork

import "net/netip"

// Config is the "pod-network" object of apf.json: what the VM must know to
// rebuild the pod's interface. The keys from podip to external-net-via-pod-vm
// are those of cloud-api-adaptor v0.22; podips, worker-node-ips,
// underlay-mtu, source-check and metadata-access are ours and absent from other adaptors' files.
type Config struct {
	// PodIP is the pod's first address with its prefix length.
	PodIP netip.Prefix `json:"podip"`
	// PodIPs holds every address of the pod, PodIP first, IPv4 and IPv6.
	PodIPs []netip.Prefix `json:"podips,omitempty"`
	// PodHwAddr is the MAC address of the pod's interface.
	PodHwAddr string `json:"pod-hw-addr"`
	// Interface is the name of the pod's interface, usually eth0.
	Interface string `json:"interface"`
	// WorkerNodeIP is the node's end of the tunnel with its prefix length.
	WorkerNodeIP netip.Prefix `json:"worker-node-ip"`
	// TunnelType is "vxlan".
	TunnelType string `json:"tunnel-type"`
	// Routes and Neighbors are those of the pod's namespace.
	Routes    []Route    `json:"routes"`
	Neighbors []Neighbor `json:"neighbors,omitempty"`
	// MTU is that of the pod's interface on the node, in bytes.
	MTU int `json:"mtu"`
	// Index numbers the pod's tunnel on this node.
	Index int `json:"index"`
	// VXLANPort is the UDP port of the tunnel; 0 means 4789 (RFC 7348).
	VXLANPort int `json:"vxlan-port,omitempty"`
	// VXLANID is the tunnel's VNI, 24 bits.
	VXLANID int `json:"vxlan-id,omitempty"`
	// Dedicated says that the tunnel ends at the VM's second interface.
	Dedicated bool `json:"dedicated"`
	// ExternalNetViaPodVM gives the pod the VM's own way to the outside.
	ExternalNetViaPodVM bool `json:"external-net-via-pod-vm,omitempty"`
	// MetadataAccess lets a pod with ExternalNetViaPodVM reach the cloud's metadata
	// service, which tells it all that it tells the VM.
	MetadataAccess bool `json:"metadata-access,omitempty"`
	// UnderlayMTU is the MTU of the node's interface that carries the tunnel,
	// in bytes; 0 when unknown, the VM then uses that of its own interface.
	UnderlayMTU int `json:"underlay-mtu,omitempty"`
	// SourceCheck makes both ends drop what others send into the tunnel.
	SourceCheck bool `json:"source-check,omitempty"`
}

// Route is one route of the pod's main table. The keys of adaptors since v0.8.2 were Dst,
// GW and Dev: encoding/json ignores their case.
type Route struct {
	// Dst is a prefix; empty means 0.0.0.0/0.
	Dst string `json:"dst,omitempty"`
	// GW is empty for a route without gateway.
	GW string `json:"gw,omitempty"`
	// Dev is the interface's name.
	Dev string `json:"dev,omitempty"`
	// Protocol is static, boot, dhcp, kernel or ra.
	Protocol string `json:"protocol,omitempty"`
	// Scope is universe (also when empty), site, link, host or nowhere.
	Scope string `json:"scope,omitempty"`
}

// Neighbor is one permanent ARP or NDP entry.
type Neighbor struct {
	IP     string `json:"ip,omitempty"`
	HwAddr string `json:"hw-addr,omitempty"`
	Dev    string `json:"dev,omitempty"`
	// State is none (also when empty), incomplete, reachable, stale, delay,
	// probe, failed, noarp or permanent.
	State string `json:"state,omitempty"`
}
