// SPDX-License-Identifier: Apache-2.0

// Package serve is the main function of a provider that lives outside of
// Outrigger's programs:
//
//	func main() { serve.Main("mycloud", config.New("mycloud", Open)) }
//
// The program that comes of it is
//
//   - a process plugin, when cloud-api-adaptor or peerpod-ctrl start it, which
//     they do when CLOUD_PROVIDER_EXTERNAL_PLUGIN_PATH names it: it serves on
//     the private socket that [SocketVariable] names, is configured by its
//     host, logs JSON to stderr, and ends when its stdin ends, since its host
//     is gone then;
//   - a socket server, with --listen unix:///path, as in a sidecar: it is
//     configured by its own flags and environment;
//   - its own proof, with --check: the checks of package conformance, run over
//     the wire on the configured cloud, with exit code 0 when none failed, 1
//     when one did, and 2 when the provider cannot be checked;
//   - with --import, the way of an image into the cloud, where the provider is a
//     provider.ImageImporter;
//   - its own documentation, with --schema (JSON), --version and --help.
//
// Flags of the provider may follow --listen, --check and --import. In all modes SIGTERM
// ends the program: calls that run may finish, within [StopTimeout].
package serve

import "time"

// SocketVariable is where a host names the socket that it calls its process
// plugin on. Providers, and what they start, do not see it.
const SocketVariable = "OUTRIGGER_PLUGIN_SOCKET"

const (
	// StopTimeout is how long calls may take to finish after SIGTERM. A pod's
	// grace period in Kubernetes is 30 s.
	StopTimeout = 20 * time.Second
	// orphanTimeout is the same when the host is gone: nobody waits for the
	// answers, and contexts have ended with the connection.
	orphanTimeout = 5 * time.Second
)
