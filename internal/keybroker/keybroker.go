// SPDX-License-Identifier: Apache-2.0

// Package keybroker has the messages between a VM and a key broker, which gives keys to
// VMs that attest: the protocol of Trustee's Key Broker Service (kbs/docs/kbs_attestation_protocol.md
// there), which packages client and server speak.
package keybroker

import "encoding/json"

// Request begins a session: POST auth.
type Request struct {
	Version string `json:"version"`
	TEE     string `json:"tee"`
	// ExtraParams is an object, or the empty string of older clients.
	ExtraParams json.RawMessage `json:"extra-params"`
}

// Challenge is what the broker wants to be in the evidence.
type Challenge struct {
	Nonce       string          `json:"nonce"`
	ExtraParams json.RawMessage `json:"extra-params"`
}
