// SPDX-License-Identifier: Apache-2.0

// Package apf is the configuration that the node hands to
// agent-protocol-forwarder in the pod VM: /run/peerpod/apf.json.
package apf

import (
	"encoding/json"
	"fmt"

	"github.com/outrigger/outrigger/internal/peerpods/podnetwork"
	"github.com/outrigger/outrigger/internal/peerpods/podtls"
)

// DefaultPath is where process-user-data puts the file in the VM.
const DefaultPath = "/run/peerpod/apf.json"

const (
	// InsecureRegistriesPath is where process-user-data puts the registries that the VM may reach
	// without TLS, a line each.
	InsecureRegistriesPath = "/run/peerpod/insecure-registries"
	// NodeItself stands, in the operator's list of them, for the address at which a VM sees its node.
	NodeItself = "@node"
)

// Config is the whole file. Its keys but tls-server-identity, await-pod and prefetch-images are those of cloud-api-adaptor v0.22.
type Config struct {
	// PodNetwork is nil for a sandbox without a network namespace.
	PodNetwork   *podnetwork.Config `json:"pod-network,omitempty"`
	PodNamespace string             `json:"pod-namespace"`
	PodName      string             `json:"pod-name"`

	// TLSServerKey and TLSServerCert are the VM's identity, PEM.
	TLSServerKey  string `json:"tls-server-key,omitempty"`
	TLSServerCert string `json:"tls-server-cert,omitempty"`
	// TLSServerIdentity is the URI of the resource that has both, PEM, at the pod's key broker, in their place.
	TLSServerIdentity string `json:"tls-server-identity,omitempty"`
	// TLSClientCA is what the node's certificate must chain to, PEM.
	TLSClientCA string `json:"tls-client-ca,omitempty"`
	// TLSMinVersion is VersionTLS12 or VersionTLS13.
	TLSMinVersion   string   `json:"tls-min-version,omitempty"`
	TLSCipherSuites []string `json:"tls-cipher-suites,omitempty"`

	// AwaitPod says that the VM is one of a pool: it waits for the user-data of a pod,
	// see package handover.
	AwaitPod bool `json:"await-pod,omitempty"`
	// PrefetchImages are container images that a VM of a pool pulls before it waits.
	PrefetchImages []string `json:"prefetch-images,omitempty"`
}

// TLS returns the VM's end of the channel. What is missing is empty.
func (c *Config) TLS() (o podtls.ServerOptions, err error) {
	o.CertPEM, o.KeyPEM, o.ClientCAPEM = []byte(c.TLSServerCert), []byte(c.TLSServerKey), []byte(c.TLSClientCA)
	if o.MinVersion, err = podtls.ParseVersion(c.TLSMinVersion); err != nil {
		return o, fmt.Errorf("tls-min-version: %w", err)
	}
	if o.CipherSuites, err = podtls.ParseCipherSuites(c.TLSCipherSuites); err != nil {
		return o, fmt.Errorf("tls-cipher-suites: %w", err)
	}
	return o, nil
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
