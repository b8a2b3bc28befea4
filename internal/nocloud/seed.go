// SPDX-License-Identifier: Apache-2.0

// Package nocloud makes seed disks of cloud-init's data source NoCloud, which
// local hypervisors give their guests in place of a metadata service.
package nocloud

import (
	"fmt"

	"go.yaml.in/yaml/v2"
)

// Label is the volume label by which guests know a seed.
const Label = "cidata"

// Seed is what a guest learns about itself.
type Seed struct {
	// InstanceID changes when the guest shall take itself for another one.
	InstanceID string
	Hostname   string
	UserData   string
	Network    Network
}

// Network is cloud-init's network configuration, version 2.
type Network struct {
	Version   int                 `yaml:"version"`
	Ethernets map[string]Ethernet `yaml:"ethernets"`
}

// Ethernet is one interface.
type Ethernet struct {
	Match       Match        `yaml:"match"`
	SetName     string       `yaml:"set-name"`
	MTU         int          `yaml:"mtu,omitempty"`
	DHCP4       bool         `yaml:"dhcp4"`
	Addresses   []string     `yaml:"addresses,omitempty"`
	Routes      []Route      `yaml:"routes,omitempty"`
	Nameservers *Nameservers `yaml:"nameservers,omitempty"`
}

// Match says which interface is meant.
type Match struct {
	MACAddress string `yaml:"macaddress"`
}

// Route leads to a prefix, or to "default".
type Route struct {
	To  string `yaml:"to"`
	Via string `yaml:"via"`
}

// Nameservers are addresses of DNS servers.
type Nameservers struct {
	Addresses []string `yaml:"addresses"`
}

type metaData struct {
	InstanceID    string `yaml:"instance-id"`
	LocalHostname string `yaml:"local-hostname"`
}

// Image is the seed as an ISO 9660 image. The same seed gives the same bytes.
func (s Seed) Image() ([]byte, error) {
	meta, err := yaml.Marshal(metaData{InstanceID: s.InstanceID, LocalHostname: s.Hostname})
	if err != nil {
		return nil, fmt.Errorf("encode meta-data: %w", err)
	}
	network, err := yaml.Marshal(s.Network)
	if err != nil {
		return nil, fmt.Errorf("encode network-config: %w", err)
	}
	return isoImage(Label, []isoFile{
		{"META-DATA", meta}, {"NETWORK-CONFIG", network}, {"USER-DATA", []byte(s.UserData)},
	}), nil
}
