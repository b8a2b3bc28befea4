// SPDX-License-Identifier: Apache-2.0

package kubectl

import "time"

// Names that an installation has.
const (
	// RuntimeClass is the class of pods that run in VMs, and its handler.
	RuntimeClass = "kata-remote"

	configMapName = "peer-pods-cm"
	secretName    = "peer-pods-secret"
	// workerLabel marks the nodes that may have pod VMs.
	workerLabel = "node.kubernetes.io/worker"

	adaptorName    = "cloud-api-adaptor-daemonset"
	adaptorAccount = "cloud-api-adaptor"
	relayName      = "agent-relay"
	controllerName = "peerpod-ctrl"
	webhookName    = "peerpods-webhook"
	crdName        = "peerpods.confidentialcontainers.org"
)

// stuckAfter is how long a removal may take before somebody should look.
const stuckAfter = 10 * time.Minute
