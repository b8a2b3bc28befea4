// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

import (
	"net/netip"
	"strings"
	"time"

	"github.com/outrigger/outrigger/provider"
)

// newVM is the body of a creation ("Create a new Power VM Instance" in the
// API's reference).
type newVM struct {
	ServerName  string       `json:"serverName"`
	ImageID     string       `json:"imageID"`
	Memory      float64      `json:"memory"` // GiB
	Processors  float64      `json:"processors"`
	ProcType    string       `json:"procType"`
	SysType     string       `json:"sysType,omitempty"`
	Networks    []networkRef `json:"networks"`
	KeyPairName string       `json:"keyPairName,omitempty"`
	UserData    string       `json:"userData,omitempty"` // base64
	UserTags    []string     `json:"userTags,omitempty"`
	// StoragePoolAffinity is false where disks of any storage pool can be attached.
	StoragePoolAffinity *bool `json:"storagePoolAffinity"`
}

type networkRef struct {
	NetworkID string `json:"networkID"`
}

// vm is an instance. A list leaves out the tags and more.
type vm struct {
	ID         string    `json:"pvmInstanceID"`
	Name       string    `json:"serverName"`
	Status     string    `json:"status"`
	Created    time.Time `json:"creationDate"`
	SysType    string    `json:"sysType"`
	Processors float64   `json:"processors"`
	Memory     float64   `json:"memory"`
	Networks   []nic     `json:"networks"`
	UserTags   []string  `json:"userTags"`
	Fault      *struct {
		Details string `json:"details"`
		Message string `json:"message"`
	} `json:"fault"`
}

type nic struct {
	IPAddress  string `json:"ipAddress"`
	ExternalIP string `json:"externalIP"`
	MAC        string `json:"macAddress"`
	NetworkID  string `json:"networkID"`
	Type       string `json:"type"`
}

// States of a VM, as far as they matter.
const (
	statusBuild   = "BUILD"
	statusActive  = "ACTIVE"
	statusError   = "ERROR"
	statusShutoff = "SHUTOFF"
	statusDeleted = "DELETED"
)

func (v *vm) status() string { return strings.ToUpper(v.Status) }

func (v *vm) state() provider.InstanceState {
	switch v.status() {
	case statusActive:
		return provider.StateRunning
	case statusShutoff:
		return provider.StateStopped
	case "DELETING":
		return provider.StateDeleting
	}
	return provider.StatePending
}

// failure returns the reason that a VM in error reports.
func (v *vm) failure() string {
	if v.Fault == nil {
		return "it says not why"
	}
	if v.Fault.Details != "" {
		return v.Fault.Details
	}
	return v.Fault.Message
}

// addresses returns the addresses in the configured network that the API knows.
func (v *vm) addresses(network string, public bool) []netip.Addr {
	for _, n := range v.Networks {
		text := n.IPAddress
		if public {
			text = n.ExternalIP
		}
		if addr, err := netip.ParseAddr(text); err == nil && (n.NetworkID == network || n.NetworkID == "") {
			return []netip.Addr{addr}
		}
	}
	return nil
}

// dhcpServer is a DHCP service of the workspace, with its leases when it is
// asked for alone.
type dhcpServer struct {
	ID      string `json:"id"`
	Network struct {
		ID string `json:"id"`
	} `json:"network"`
	Leases []struct {
		IP  string `json:"instanceIP"`
		MAC string `json:"instanceMacAddress"`
	} `json:"leases"`
}
