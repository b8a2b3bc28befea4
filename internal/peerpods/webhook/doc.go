// SPDX-License-Identifier: Apache-2.0

// Package webhook is the mutating admission webhook mwebhook.peerpods.io: it
// sizes the VM of each pod of one runtime class when the pod is created. See
// docs/sizing.md.
package webhook
