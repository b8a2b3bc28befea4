// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"errors"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/outrigger/outrigger/internal/controllers"
	"github.com/outrigger/outrigger/provider"
)

// Conditions that every kind has beside Ready, Paused and Deleting.
const (
	// ProvisionedCondition: what Cluster API waits for is there. Once True it
	// stays so.
	ProvisionedCondition = "Provisioned"
	// BootstrapDataReadyCondition: there is something to start a machine with.
	BootstrapDataReadyCondition = "BootstrapDataReady"
	// HealthyCondition: what was provisioned is there and works.
	HealthyCondition = "Healthy"
)

// Reasons of conditions that are not class of error and not Cluster API's.
const (
	ReasonHealthy                = "Healthy"
	ReasonNotProvisionedYet      = "NotProvisionedYet"
	ReasonWaitingForEndpoint     = "WaitingForControlPlaneEndpoint"
	ReasonWaitingForMachines     = "WaitingForMachines"
	ReasonBootstrapSecretMissing = "BootstrapSecretNotFound"
	// ReasonBootstrapSecretForbidden: the manager's rights were narrowed, and not to
	// this Secret.
	ReasonBootstrapSecretForbidden = "BootstrapSecretForbidden"
	ReasonBootstrapDataInvalid     = "BootstrapDataInvalid"
	ReasonBootstrapDataTooLarge    = "BootstrapDataTooLarge"
	ReasonBootstrapFormatUnknown   = "BootstrapFormatUnknown"
	ReasonBootstrapDataUsed        = "BootstrapDataUsed"
	ReasonFailureDomainUnknown     = "FailureDomainUnknown"
	ReasonInfrastructureOfAnother  = "InfrastructureOfAnother"
	// ReasonInstanceGone and ReasonInstanceStopped: what a machine was is there no
	// more, or does not run.
	ReasonInstanceGone    = "InstanceGone"
	ReasonInstanceStopped = "InstanceStopped"
)

func set(o object, kind string, status metav1.ConditionStatus, reason, message string) {
	setCondition(o, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: clip(message)})
}

// setCondition keeps the time of the last transition where there is none.
func setCondition(o object, c metav1.Condition) {
	apimeta.SetStatusCondition(&o.ContractStatus().Conditions, c)
}

func condition(o object, kind string) *metav1.Condition {
	return apimeta.FindStatusCondition(o.ContractStatus().Conditions, kind)
}

func setTrue(o object, kind, reason string) { set(o, kind, metav1.ConditionTrue, reason, "") }

func setFalse(o object, kind, reason, message string) {
	set(o, kind, metav1.ConditionFalse, reason, message)
}

// initialized reports whether an object was provisioned once, and setProvisioned says so.
func initialized(o object) bool {
	p := o.ContractStatus().Initialization.Provisioned
	return p != nil && *p
}

func setProvisioned(o object) {
	status := o.ContractStatus()
	status.Ready, status.Initialization.Provisioned = true, new(true)
}

// setLife sets the conditions of an object that is neither paused nor deleted.
func setLife(o object) {
	setFalse(o, clusterv1.PausedCondition, clusterv1.NotPausedReason, "")
	setFalse(o, clusterv1.DeletingCondition, clusterv1.NotDeletingReason, "")
}

func setDeleting(o object, reason, message string) {
	setFalse(o, clusterv1.PausedCondition, clusterv1.NotPausedReason, "")
	set(o, clusterv1.DeletingCondition, metav1.ConditionTrue, reason, message)
	setFalse(o, clusterv1.ReadyCondition, clusterv1.DeletingReason, message)
}

// summarize sets Ready from the other conditions: the first that is not True
// says why not. order comes first, the backend's own follow.
func summarize(o object, order ...string) {
	for _, c := range o.ContractStatus().Conditions {
		if !slices.Contains(order, c.Type) {
			order = append(order, c.Type)
		}
	}
	for _, kind := range order {
		switch kind {
		case clusterv1.ReadyCondition, clusterv1.PausedCondition, clusterv1.DeletingCondition:
			continue
		}
		c := condition(o, kind)
		if c != nil && c.Status != metav1.ConditionTrue {
			set(o, clusterv1.ReadyCondition, c.Status, c.Reason, c.Message)
			return
		}
	}
	setTrue(o, clusterv1.ReadyCondition, clusterv1.ReadyReason)
}

// class is what a class of error means for an object: what its condition says
// and when the call is repeated. A pause of 0 is the queue's back-off.
type class struct {
	reason, hint string
	pause        time.Duration
}

// Errors that only a person can fix are retried, too, slowly: the fix may be
// outside of the object.
var classes = map[error]class{
	provider.ErrInvalidArgument:  {"InvalidArgument", "correct what the message names", 5 * time.Minute},
	provider.ErrNotFound:         {"NotFound", "make what the message names, such as an image or network", time.Minute},
	provider.ErrAlreadyExists:    {"AlreadyExists", "what carries the key has another specification: delete the machine", 5 * time.Minute},
	provider.ErrInUse:            {"InUse", "another machine still has what the message names: it is tried again", 30 * time.Second},
	provider.ErrCapacity:         {"NoCapacity", "choose another type or failure domain, or wait", 30 * time.Second},
	provider.ErrQuota:            {"QuotaExceeded", "raise the account's quota, or remove machines", time.Minute},
	provider.ErrUnauthenticated:  {"Unauthenticated", "renew the provider's credentials", time.Minute},
	provider.ErrPermissionDenied: {"PermissionDenied", "give the provider's credentials the missing permission", time.Minute},
	provider.ErrUnavailable:      {"Unavailable", "it is tried again", 0},
	provider.ErrUnimplemented:    {"Unimplemented", "the provider cannot do this: do without it", 5 * time.Minute},
	provider.ErrUnknown:          {"ProviderError", "it is tried again", 0},
}

// Reasoner is implemented by errors that have a reason of their own for the
// conditions, in UpperCamelCase.
type Reasoner interface{ Reason() string }

func reasonOf(err error) string {
	var own Reasoner
	if errors.As(err, &own) && own.Reason() != "" {
		return own.Reason()
	}
	return classes[provider.Class(err)].reason
}

func messageOf(err error) string {
	return clip(err.Error() + ": " + classes[provider.Class(err)].hint)
}

func pauseOf(err error) time.Duration { return classes[provider.Class(err)].pause }

const maxMessage = 1000

func clip(message string) string { return controllers.Clip(message, maxMessage) }
