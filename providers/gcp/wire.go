// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"encoding/json"
	"net/netip"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/names"
)

// The parts of the API's resources that this provider uses, by the names of
// the discovery document.
type (
	instance struct {
		Name              string             `json:"name"`
		ID                string             `json:"id,omitempty"`
		Description       string             `json:"description,omitempty"`
		Zone              string             `json:"zone,omitempty"`
		MachineType       string             `json:"machineType,omitempty"`
		Status            string             `json:"status,omitempty"`
		CreationTimestamp string             `json:"creationTimestamp,omitempty"`
		Labels            map[string]string  `json:"labels,omitempty"`
		Disks             []attachedDisk     `json:"disks,omitempty"`
		Interfaces        []networkInterface `json:"networkInterfaces,omitempty"`
		Metadata          *metadata          `json:"metadata,omitempty"`
		Scheduling        *scheduling        `json:"scheduling,omitempty"`
		Confidential      *confidential      `json:"confidentialInstanceConfig,omitempty"`
		Tags              *networkTags       `json:"tags,omitempty"`
		Params            *instanceParams    `json:"params,omitempty"`
	}
	attachedDisk struct {
		Boot       bool            `json:"boot"`
		AutoDelete bool            `json:"autoDelete"`
		Type       string          `json:"type"`
		Source     string          `json:"source,omitempty"`
		Device     string          `json:"deviceName,omitempty"`
		Mode       string          `json:"mode,omitempty"`
		Params     *diskParameters `json:"initializeParams,omitempty"`
		Key        *diskKey        `json:"diskEncryptionKey,omitempty"`
	}
	diskKey struct {
		Name string `json:"kmsKeyName"`
	}
	diskParameters struct {
		Description string            `json:"description,omitempty"`
		SizeGB      int64             `json:"diskSizeGb,string"`
		Type        string            `json:"diskType"`
		Image       string            `json:"sourceImage"`
		Labels      map[string]string `json:"labels,omitempty"`
	}
	networkInterface struct {
		Network    string         `json:"network,omitempty"`
		Subnetwork string         `json:"subnetwork,omitempty"`
		IP         string         `json:"networkIP,omitempty"`
		StackType  string         `json:"stackType,omitempty"`
		Access     []accessConfig `json:"accessConfigs,omitempty"`
	}
	accessConfig struct {
		Name string `json:"name,omitempty"`
		Type string `json:"type,omitempty"`
		IP   string `json:"natIP,omitempty"`
	}
	metadata struct {
		Items []metadataItem `json:"items"`
	}
	metadataItem struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	}
	scheduling struct {
		Restart      bool   `json:"automaticRestart"`
		Maintenance  string `json:"onHostMaintenance,omitempty"`
		Model        string `json:"provisioningModel,omitempty"`
		OnPreemption string `json:"instanceTerminationAction,omitempty"`
	}
	confidential struct {
		Type string `json:"confidentialInstanceType"`
	}
	networkTags struct {
		Items []string `json:"items"`
	}
	instanceParams struct {
		ManagerTags map[string]string `json:"resourceManagerTags,omitempty"`
	}
)

type (
	operation struct {
		Name       string `json:"name"`
		Status     string `json:"status"`
		Progress   int64  `json:"progress"`
		TargetID   string `json:"targetId"`
		TargetLink string `json:"targetLink"`
		EndTime    string `json:"endTime"`
		HTTPStatus int    `json:"httpErrorStatusCode"`
		Error      *struct {
			Errors []struct {
				Code    string `json:"code"`
				Message string `json:"message"`
			} `json:"errors"`
		} `json:"error"`
	}
	machineType struct {
		Name         string          `json:"name"`
		CPUs         int64           `json:"guestCpus"`
		MemoryMB     int64           `json:"memoryMb"`
		Architecture string          `json:"architecture"`
		Deprecated   json.RawMessage `json:"deprecated"`
		Accelerators []struct {
			Type  string `json:"guestAcceleratorType"`
			Count int64  `json:"guestAcceleratorCount"`
		} `json:"accelerators"`
	}
	image struct {
		Status   string         `json:"status"`
		SizeGB   int64          `json:"diskSizeGb,string"`
		Features []imageFeature `json:"guestOsFeatures"`
	}
	imageFeature struct {
		Type string `json:"type"`
	}
)

// states of an instance, as the discovery document describes them. The ones
// that are not here are on the way to one of these or to nothing, which the
// API does not tell apart.
var states = map[string]provider.InstanceState{
	"PENDING":      provider.StatePending,
	"PROVISIONING": provider.StatePending,
	"STAGING":      provider.StatePending,
	"RUNNING":      provider.StateRunning,
	"REPAIRING":    provider.StatePending,
	"TERMINATED":   provider.StateStopped,
	"STOPPED":      provider.StateStopped,
	"SUSPENDED":    provider.StateStopped,
}

// hasResources reports whether the cloud has given the instance its resources.
func (i *instance) hasResources() bool {
	switch i.Status {
	case "STAGING", "RUNNING", "REPAIRING":
		return true
	}
	return false
}

func (i *instance) stopped() bool { return states[i.Status] == provider.StateStopped }

func (i *instance) location() location { return location{base(i.Zone), i.Name} }

// addresses returns the address by which a node reaches the VM, or none yet. A
// second interface is the VM's way out and no address for the tunnel.
func (i *instance) addresses(public bool) []netip.Addr {
	if len(i.Interfaces) == 0 {
		return nil
	}
	first := i.Interfaces[0]
	text := first.IP
	if public {
		text = ""
		if len(first.Access) > 0 {
			text = first.Access[0].IP
		}
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return nil
	}
	return []netip.Addr{addr}
}

// answer returns the instance of the contract.
func (i *instance) answer(public bool) *provider.Instance {
	return i.tagged(tagsOf(i.Description), public)
}

// tagged is answer where the tags are known.
func (i *instance) tagged(tags map[string]string, public bool) *provider.Instance {
	at := i.location()
	return &provider.Instance{
		ID: at.String(), Name: i.Name, IPs: i.addresses(public), Key: tags[provider.TagKey], Tags: tags,
		Created: timeOf(i.CreationTimestamp), State: states[i.Status],
		Zone: at.zone, Region: names.RegionOf(at.zone), Type: base(i.MachineType),
	}
}

// timeOf reads a time stamp; what does not parse is unknown.
func timeOf(text string) time.Time {
	at, _ := time.Parse(time.RFC3339Nano, text)
	return at.UTC()
}
