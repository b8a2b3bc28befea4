// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"

	"github.com/outrigger/outrigger/provider"
)

// Reasons of conditions and Events that are not class of a provider's error.
const (
	ReasonClaimed         = "Claimed"
	ReasonInstanceCreated = "InstanceCreated"
	ReasonAdopted         = "Adopted"
	ReasonConnecting      = "Connecting"
	ReasonConnected       = "Connected"
	ReasonReady           = "Ready"
	ReasonNotReady        = "NotReady"

	// ReasonWaitingForCloud: deleted; the cloud's list does not confirm it yet.
	ReasonWaitingForCloud = "WaitingForCloud"
	// ReasonRemovedUnverified: the provider reported success, and cannot list
	// or look up the instance.
	ReasonRemovedUnverified = "RemovedUnverified"
	// ReasonForeignInstance: spec.instanceID is somebody else's instance.
	ReasonForeignInstance = "ForeignInstance"
	// ReasonForeignCluster: the PeerPod is of another cluster.
	ReasonForeignCluster = "ForeignCluster"
	// ReasonProviderMissing: the provider is not loaded or not configured.
	ReasonProviderMissing = "ProviderNotConfigured"
	// ReasonProviderCannotList: leaked instances of this provider stay unseen.
	ReasonProviderCannotList = "ProviderCannotList"
	// ReasonDouble: a second instance of the same sandbox was removed.
	ReasonDouble = "DoubleInstance"
	// ReasonSuperseded: a younger sandbox of the same pod replaced it.
	ReasonSuperseded = "Superseded"
	// ReasonNodeLost: node and pod are gone.
	ReasonNodeLost = "NodeLost"
	// ReasonInstanceLost: the cloud does not show the instance any more.
	ReasonInstanceLost = "InstanceLost"
)

// classInfo is the reason and the hint of a class of errors.
type classInfo struct{ reason, hint string }

var classTable = map[error]classInfo{
	provider.ErrInvalidArgument:  {"InvalidArgument", "correct the annotation, image or setting that the message names"},
	provider.ErrNotFound:         {"NotFound", "check that the image, network or instance that the message names exists"},
	provider.ErrAlreadyExists:    {"AlreadyExists", "an instance of this sandbox exists with another specification; delete the pod"},
	provider.ErrCapacity:         {"NoCapacity", "choose another instance type or zone, or try later"},
	provider.ErrQuota:            {"QuotaExceeded", "raise the account's quota or remove instances"},
	provider.ErrUnauthenticated:  {"Unauthenticated", "renew the provider's credentials in Secret peer-pods-secret"},
	provider.ErrPermissionDenied: {"PermissionDenied", "give the provider's credentials the missing permission"},
	provider.ErrUnavailable:      {"CloudUnavailable", "the cloud's API is throttled or away; it is tried again"},
	provider.ErrUnimplemented:    {"Unimplemented", "the provider lacks this; use another provider or do without"},
	provider.ErrUnknown:          {"ProviderError", "see the message; it is tried again"},
}

// Reasoner is implemented by errors with a reason of their own.
type Reasoner interface{ Reason() string }

// Reason returns the CamelCase reason of an error: its own, else that of its
// class.
func Reason(err error) string {
	if reasoner := Reasoner(nil); errors.As(err, &reasoner) && reasoner.Reason() != "" {
		return reasoner.Reason()
	}
	return classTable[provider.Class(err)].reason
}

// Hinter is implemented by errors that know what to do about them.
type Hinter interface{ Hint() string }

// Hint returns what to do about err: what it says itself, else what its class
// says.
func Hint(err error) string {
	if hinter := Hinter(nil); errors.As(err, &hinter) && hinter.Hint() != "" {
		return hinter.Hint()
	}
	return classTable[provider.Class(err)].hint
}
