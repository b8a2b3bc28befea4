// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/timeline"
	"github.com/outrigger/outrigger/provider"
)

// A Change brings a PeerPod up to date with what has happened. Applied twice
// it changes nothing more, so that writes can be repeated.
type Change func(pp *v1alpha1.PeerPod)

// Step records that a step was done. Repeating it keeps the first time. What the API
// has no room for is left out.
func Step(step timeline.Step) Change {
	return func(pp *v1alpha1.PeerPod) {
		known := slices.ContainsFunc(pp.Status.Steps, func(s v1alpha1.Step) bool { return s.Name == step.Name })
		if known || len(pp.Status.Steps) >= v1alpha1.MaxSteps {
			return
		}
		began := metav1.NewMicroTime(step.Start.UTC().Truncate(time.Microsecond)) // what the API keeps of it
		done := v1alpha1.Step{Name: step.Name, StartTime: &began, Time: metav1.NewMicroTime(step.End.UTC().Truncate(time.Microsecond))}
		if step.Where == timeline.Guest {
			done.Place = v1alpha1.PlaceGuest
		}
		pp.Status.Steps = append(pp.Status.Steps, done)
	}
}

// Guarded adds our finalizer again if somebody removed it. An object that is
// being deleted accepts no new finalizers.
func Guarded(pp *v1alpha1.PeerPod) {
	if pp.DeletionTimestamp == nil && !slices.Contains(pp.Finalizers, Finalizer) {
		pp.Finalizers = append(pp.Finalizers, Finalizer)
	}
}

// Claimed sets the state before the cloud is asked.
func Claimed(pp *v1alpha1.PeerPod) {
	set(pp, v1alpha1.ConditionInstanceCreated, metav1.ConditionFalse, ReasonClaimed, "the cloud is being asked for the instance")
	set(pp, v1alpha1.ConditionReady, metav1.ConditionFalse, ReasonNotReady, "")
	settle(pp)
}

// Created records the instance that the provider returned.
func Created(instance v1alpha1.Instance) Change {
	return func(pp *v1alpha1.PeerPod) {
		pp.Spec.InstanceID = instance.ID
		pp.Status.Instance = &instance
		pp.Status.LastError = nil
		set(pp, v1alpha1.ConditionInstanceCreated, metav1.ConditionTrue, ReasonInstanceCreated, "instance "+instance.ID)
		if meta.FindStatusCondition(pp.Status.Conditions, v1alpha1.ConditionConnected) == nil {
			set(pp, v1alpha1.ConditionConnected, metav1.ConditionFalse, ReasonConnecting, "the agent in the instance is waited for")
		}
		settle(pp)
	}
}

// Connected records that the node reaches the agent.
func Connected(pp *v1alpha1.PeerPod) {
	set(pp, v1alpha1.ConditionConnected, metav1.ConditionTrue, ReasonConnected, "the node reaches the agent in the instance")
	settle(pp)
}

// Ready records that the sandbox can be used. It includes [Connected], which
// need not be written before.
func Ready(pp *v1alpha1.PeerPod) {
	pp.Status.LastError = nil
	Connected(pp)
	set(pp, v1alpha1.ConditionReady, metav1.ConditionTrue, ReasonReady, "")
	settle(pp)
}

// Failed records why a step failed.
func Failed(step string, err error, at time.Time) Change {
	return func(pp *v1alpha1.PeerPod) {
		pp.Status.LastError = Error(step, err, at)
		reason := Reason(err)
		for _, kind := range []string{v1alpha1.ConditionInstanceCreated, v1alpha1.ConditionConnected} {
			if c := meta.FindStatusCondition(pp.Status.Conditions, kind); c != nil && c.Status != metav1.ConditionTrue {
				set(pp, kind, metav1.ConditionFalse, reason, pp.Status.LastError.Message)
				break // what comes after it was not tried
			}
		}
		set(pp, v1alpha1.ConditionReady, metav1.ConditionFalse, reason, pp.Status.LastError.Message)
		settle(pp)
	}
}

// Deleting records how far the removal is.
func Deleting(reason, message string) Change {
	return func(pp *v1alpha1.PeerPod) {
		set(pp, v1alpha1.ConditionDeleting, metav1.ConditionTrue, reason, message)
		settle(pp)
	}
}

// DeletionFailed records why the removal makes no progress.
func DeletionFailed(err error, at time.Time) Change {
	return func(pp *v1alpha1.PeerPod) {
		last := Error("delete-instance", err, at)
		if old := pp.Status.LastError; old != nil && old.Message == last.Message && old.Step == last.Step {
			last.Time = old.Time // unchanged, so that there is no write
		}
		pp.Status.LastError = last
		Deleting(Reason(err), last.Message+"; "+last.Hint)(pp)
	}
}

// Attested records what the pod's key broker says of the VM, as the VM has it: the node takes its word.
func Attested(is attest.Status, err error) Change {
	return func(pp *v1alpha1.PeerPod) {
		state, reason := metav1.ConditionTrue, ReasonAttested
		if err != nil {
			state, reason = metav1.ConditionFalse, ReasonAttestationRefused
		}
		set(pp, v1alpha1.ConditionAttested, state, reason, AttestationMessage(is, err))
	}
}

// AttestationMessage says what the broker says, for a condition or an Event.
func AttestationMessage(is attest.Status, err error) string {
	text := fmt.Sprintf("the key broker %s has accepted the evidence of the VM's %s", is.Broker, is.TEE)
	if err != nil {
		text = fmt.Sprintf("the VM, whose evidence is of %s, gets nothing from the key broker %s: %v", is.TEE, is.Broker, err)
	}
	return text + ". This is what the VM says: kubectl outrigger verify pod asks for the evidence itself"
}

// Listed records whether leaked instances of the provider would be found.
func Listed(can bool, providerName string) Change {
	return func(pp *v1alpha1.PeerPod) {
		if can {
			meta.RemoveStatusCondition(&pp.Status.Conditions, v1alpha1.ConditionListed)
			return
		}
		set(pp, v1alpha1.ConditionListed, metav1.ConditionFalse, ReasonProviderCannotList,
			"provider "+providerName+" cannot list its instances: one that loses its PeerPod is not found, and removals are believed without proof")
	}
}

// Lost records that the cloud does not list the instance any more.
func Lost(pp *v1alpha1.PeerPod) {
	set(pp, v1alpha1.ConditionReady, metav1.ConditionFalse, ReasonInstanceLost,
		"the cloud does not show instance "+pp.Spec.InstanceID+" any more: it was removed by somebody else or taken back by the cloud")
	settle(pp)
}

// Error puts an error into a status.
func Error(step string, err error, at time.Time) *v1alpha1.Error {
	return &v1alpha1.Error{
		Class:   provider.Class(err).Error(),
		Step:    step,
		Message: Cut(err.Error(), 4096),
		Hint:    Cut(Hint(err), 1024),
		Time:    metav1.NewTime(at.UTC()),
	}
}

// Cut truncates a text, at a whole character, to what the API accepts.
func Cut(text string, most int) string {
	if text = strings.ToValidUTF8(text, "?"); len(text) <= most {
		return text
	}
	text = text[:most-len("…")]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text + "…"
}

func set(pp *v1alpha1.PeerPod, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&pp.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: Cut(message, 8192), ObservedGeneration: pp.Generation,
	})
}

// settle derives the phase from the conditions, so that the two never differ.
func settle(pp *v1alpha1.PeerPod) { pp.Status.Phase = PhaseOf(pp) }

// PhaseOf derives the phase from the conditions.
func PhaseOf(pp *v1alpha1.PeerPod) v1alpha1.Phase {
	is := func(kind string) bool { return meta.IsStatusConditionTrue(pp.Status.Conditions, kind) }
	lost := meta.FindStatusCondition(pp.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case pp.DeletionTimestamp != nil, is(v1alpha1.ConditionDeleting):
		return v1alpha1.PhaseDeleting
	case is(v1alpha1.ConditionReady):
		return v1alpha1.PhaseReady
	case pp.Status.LastError != nil, lost != nil && lost.Reason == ReasonInstanceLost:
		return v1alpha1.PhaseFailed
	case is(v1alpha1.ConditionInstanceCreated):
		return v1alpha1.PhaseConnecting
	}
	return v1alpha1.PhasePending
}

// Reasons of conditions and Events that are not class of a provider's error.
const (
	ReasonClaimed         = "Claimed"
	ReasonInstanceCreated = "InstanceCreated"
	ReasonAdopted         = "Adopted"
	ReasonConnecting      = "Connecting"
	ReasonConnected       = "Connected"
	ReasonReady           = "Ready"
	// ReasonAttested and ReasonAttestationRefused: what the pod's key broker says of the VM.
	ReasonAttested           = "Attested"
	ReasonAttestationRefused = "AttestationRefused"
	ReasonNotReady           = "NotReady"

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
	provider.ErrInUse:            {"DiskInUse", "another instance still has the disk that the message names; it is tried again"},
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
