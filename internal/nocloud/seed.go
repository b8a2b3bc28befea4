// SPDX-License-Identifier: Apache-2.0

// Package nocloud makes seed disks of cloud-init's data source NoCloud, which
// local hypervisors give their guests in place of a metadata service.
package nocloud

import (
	"encoding/base64"
	"fmt"
	"time"

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
	// RandomSeed is for a guest whose own random numbers are those of others;
	// cloud-init's module seed_random takes it too.
	RandomSeed []byte
	// Time is for a guest whose clock stood still; zero says nothing.
	Time time.Time
}

// Network is cloud-init's network configuration, version 2 (cloud-init reference,
// network-config-format-v2), the part that guests use.
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
	Gateway4    string       `yaml:"gateway4,omitempty"`
	Gateway6    string       `yaml:"gateway6,omitempty"`
	Routes      []Route      `yaml:"routes,omitempty"`
	Nameservers *Nameservers `yaml:"nameservers,omitempty"`
}

// Match says which interface is meant.
type Match struct {
	MACAddress string `yaml:"macaddress"`
	Name       string `yaml:"name,omitempty"`
}

// Route leads to a prefix, or to "default".
type Route struct {
	To  string `yaml:"to"`
	Via string `yaml:"via"`
}

// Nameservers are addresses of DNS servers.
type Nameservers struct {
	Addresses []string `yaml:"addresses"`
	Search    []string `yaml:"search,omitempty"`
}

// MetaData is what a guest learns about itself beside its network.
type MetaData struct {
	InstanceID    string `yaml:"instance-id"`
	LocalHostname string `yaml:"local-hostname"`
	// RandomSeed is base64, as in cloud-init's module seed_random.
	RandomSeed string `yaml:"random_seed,omitempty"`
	// Time is as in RFC 3339.
	Time string `yaml:"outrigger-time,omitempty"`
}

// Image is the seed as an ISO 9660 image. The same seed gives the same bytes.
func (s Seed) Image() ([]byte, error) {
	data := MetaData{InstanceID: s.InstanceID, LocalHostname: s.Hostname, RandomSeed: base64.StdEncoding.EncodeToString(s.RandomSeed)}
	if !s.Time.IsZero() {
		data.Time = s.Time.UTC().Format(time.RFC3339Nano)
	}
	meta, err := yaml.Marshal(data)
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

// What a hypervisor and a guest agree on about VMs that are saved once they
// have booted, and restored for many pods. The guest's part is in
// internal/guest/guestinit, the image's in internal/guest/image.
const (
	// TemplateArg on the kernel's command line has a guest boot as far as VMs do
	// that have no identity yet, and wait for a seed.
	TemplateArg = "outrigger.template"
	// TemplateReady is what such a guest prints on its console when it waits.
	TemplateReady = "ready to be saved: waiting for a seed"
	// TemplateMark is the first file in the initramfs of a guest that knows all this.
	TemplateMark = ".outrigger-template"
)
