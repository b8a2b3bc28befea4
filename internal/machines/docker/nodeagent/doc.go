// SPDX-License-Identifier: Apache-2.0

// Package nodeagent is the first process of a container that is a machine of a
// cluster: it starts the machine's services and runs the bootstrap data. It
// understands of cloud-config what bootstrap providers write (write_files,
// bootcmd, runcmd), and Ignition 2 and 3 (files, directories, links, units).
//
// The manager only writes files to [Dir] and reads [State]: a bootstrap
// continues without it, and after a restart of the container where it stopped.
package nodeagent

import "path/filepath"

// Dir is the agent's folder in the machine. It is on the machine's volume, so
// that it outlives restarts.
const Dir = "/var/lib/node-agent"

// Files in Dir.
const (
	// UserDataFile holds the bootstrap data. It has secrets, and is removed
	// when they are used.
	UserDataFile = "user-data"
	// SeedFile is a [Seed].
	SeedFile = "seed.json"
	// StateFile is the agent's journal, a [State].
	StateFile = "state.json"
	// ImagesDir has the images that are copied into the machine.
	ImagesDir = "images"
)

// ConfigDir has the image's configuration of the agent: services/*.json, each a
// [Service], and settings.json, a [Settings].
const ConfigDir = "/etc/node-agent"

// ProviderIDVariable is what services find the providerID in that the machine's Node is
// to have: kubelet's may give it as --provider-id.
const ProviderIDVariable = "NODE_PROVIDER_ID"

// NodeIPsVariable is what services find the Node's addresses in, separated by commas: kubelet's
// may give them as --node-ip. Empty leaves that to kubelet.
const NodeIPsVariable = "NODE_IPS"

// Formats of bootstrap data.
const (
	FormatCloudConfig = "cloud-config"
	FormatIgnition    = "ignition"
)

// Seed describes the machine.
type Seed struct {
	// Format of the bootstrap data.
	Format string `json:"format"`
	// Hostname is the machine's name, and InstanceID its identity.
	Hostname   string `json:"hostname"`
	InstanceID string `json:"instanceID"`
	ProviderID string `json:"providerID"`
	// NodeIPs are the addresses that the machine's Node is to have, at most one of each family.
	NodeIPs []string `json:"nodeIPs,omitempty"`
	// Images is how many files are coming into ImagesDir: 0.tar, 1.tar and so
	// on, each complete when there is a 0.ready beside it.
	Images int `json:"images,omitempty"`
}

// Settings are the image's.
type Settings struct {
	// Needs are files that must be there before the bootstrap begins: services
	// that it relies on have made them.
	Needs []string `json:"needs,omitempty"`
	// Private are files below /proc/sys of which the machine has copies, with
	// these values: its programs would change the settings of the whole host.
	Private map[string]string `json:"private,omitempty"`
	// ImportImage is the command that brings the image in a file into the
	// machine's container runtime; the file's name is added. It is repeated for
	// a while, since the runtime may still be starting.
	ImportImage []string `json:"importImage,omitempty"`
	// Reset is the command that makes a bootstrap that was interrupted
	// repeatable, such as kubeadm reset. After it all steps run again. Without
	// one the interrupted command is run again.
	Reset []string `json:"reset,omitempty"`
}

// Phases of a bootstrap.
const (
	PhaseRunning = "Running"
	PhaseDone    = "Done"
	PhaseFailed  = "Failed"
)

// State is how far the bootstrap is. It is written before a step begins and
// after it has ended.
type State struct {
	Phase string `json:"phase"`
	// Done is the number of steps that have ended, and Total that of all.
	Done  int `json:"done"`
	Total int `json:"total"`
	// Step is the name of the step that was begun last.
	Step string `json:"step,omitempty"`
	// Message says why it failed. It quotes neither commands nor their output,
	// which may hold secrets.
	Message string `json:"message,omitempty"`
	// Ignored are parts of the bootstrap data that the agent does not do.
	Ignored []string `json:"ignored,omitempty"`
	// UserData is the SHA-256 of the bootstrap data that this is about.
	UserData string `json:"userData"`
}

// inDir returns the path of a file of Dir below a root.
func inDir(root, name string) string { return filepath.Join(root, Dir, name) }
