// SPDX-License-Identifier: Apache-2.0

// Package apf is the configuration that the node hands to
// agent-protocol-forwarder in the pod VM: /run/peerpod/apf.json.
package apf

import (
	"encoding/json"
	"fmt"

	"github.com/outrigger/outrigger/internal/peerpods/podnetwork"
)

// DefaultPath is where process-user-data puts the file in the VM.
const DefaultPath = "/run/peerpod/apf.json"

// Config is the whole file. Its keys are those of cloud-api-adaptor v0.22.
type Config struct {
	// PodNetwork is nil for a sandbox without a network namespace.
	PodNetwork   *podnetwork.Config `json:"pod-network,omitempty"`
	PodNamespace string             `json:"pod-namespace"`
	PodName      string             `json:"pod-name"`

	// TLSServerKey and TLSServerCert are the VM's identity, PEM.
	TLSServerKey  string `json:"tls-server-key,omitempty"`
	TLSServerCert string `json:"tls-server-cert,omitempty"`
	// TLSClientCA is what the node's certificate must chain to, PEM.
	TLSClientCA string `json:"tls-client-ca,omitempty"`
	// TLSMinVersion is VersionTLS12 or VersionTLS13.
	TLSMinVersion   string   `json:"tls-min-version,omitempty"`
	TLSCipherSuites []string `json:"tls-cipher-suites,omitempty"`
}

// Parse reads a file. Unknown keys are ignored, since other adaptors write
// some; anything after the object is an error.
func Parse(data []byte) (*Config, error) {
	var cfg Config
	if err := json.Unmarshal(data, &cfg); err != nil {
		return nil, fmt.Errorf("apf.json: %w", err)
	}
	return &cfg, nil
}

// Marshal writes a file.
func (c *Config) Marshal() ([]byte, error) {
	return json.MarshalIndent(c, "", "  ")
}
