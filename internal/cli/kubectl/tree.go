// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/internal/redact"
)

// slowBoot is after what time a VM whose agent does not answer is a problem;
// one boots in seconds, on slow clouds in a minute or two.
const slowBoot = 5 * time.Minute

// ofPeerPod describes a PeerPod and what hangs on it.
func (a *App) ofPeerPod(d *Description, pp *v1alpha1.PeerPod) *Part {
	part := &Part{Kind: "PeerPod", Name: pp.Name, State: string(cmp.Or(pp.Status.Phase, claims.PhaseOf(pp))),
		Detail: compact("provider "+pp.Spec.CloudProvider, "sandbox "+pp.Spec.SandboxID, "node "+pp.Spec.NodeName, "age "+a.age(pp.CreationTimestamp.Time))}
	a.claimProblems(d, pp)
	instance := instancePart(pp)
	part.Parts = []*Part{instance}
	if pp.Spec.InstanceID != "" {
		tunnel := conditionPart(pp, "Tunnel", v1alpha1.ConditionConnected)
		tunnel.Parts = []*Part{conditionPart(pp, "Agent", v1alpha1.ConditionReady)}
		instance.Parts = []*Part{tunnel}
	}
	return part
}

func (a *App) age(t time.Time) string { return duration.HumanDuration(a.Now().Sub(t)) }

// claimProblems adds the problems of a PeerPod.
func (a *App) claimProblems(d *Description, pp *v1alpha1.PeerPod) {
	where := "PeerPod " + pp.Name
	if e := pp.Status.LastError; e != nil {
		d.problem(where, e.Class, fmt.Sprintf("step %s failed %s ago: %s", cmp.Or(e.Step, "?"), a.age(e.Time.Time), e.Message), e.Hint)
	}
	if c := meta.FindStatusCondition(pp.Status.Conditions, v1alpha1.ConditionReady); c != nil && c.Reason == claims.ReasonInstanceLost {
		d.problem(where, c.Reason, c.Message, "delete the pod: its controller makes another one, with another VM")
	}
	if since := pp.DeletionTimestamp; since != nil && a.Now().Sub(since.Time) > stuckAfter {
		d.problem(where, "Deleting", "it is being removed since "+a.age(since.Time)+waitReason(pp), "see that peerpod-ctrl runs and reaches the cloud: `kubectl outrigger check`")
	}
	if claims.PhaseOf(pp) == v1alpha1.PhaseConnecting && a.Now().Sub(connectingSince(pp)) > slowBoot {
		d.problem(where, claims.ReasonConnecting, "the agent in the VM has not answered for "+a.age(connectingSince(pp)),
			"see what the VM said: kubectl outrigger logs --console "+claims.PodName(pp)+" -n "+pp.Namespace+"; check that the node reaches its address (security groups, routes)")
	}
	if c := meta.FindStatusCondition(pp.Status.Conditions, v1alpha1.ConditionListed); c != nil && c.Status == metav1.ConditionFalse {
		d.problem(where, c.Reason, c.Message, "")
	}
}

func connectingSince(pp *v1alpha1.PeerPod) time.Time {
	if c := meta.FindStatusCondition(pp.Status.Conditions, v1alpha1.ConditionConnected); c != nil {
		return c.LastTransitionTime.Time
	}
	return pp.CreationTimestamp.Time
}

// waitReason returns what the removal waits for.
func waitReason(pp *v1alpha1.PeerPod) string {
	if c := meta.FindStatusCondition(pp.Status.Conditions, v1alpha1.ConditionDeleting); c != nil {
		return ": " + strings.TrimSuffix(c.Reason+": "+c.Message, ": ")
	}
	if len(pp.Finalizers) > 0 {
		return "; finalizers " + strings.Join(pp.Finalizers, ", ")
	}
	return ""
}

func instancePart(pp *v1alpha1.PeerPod) *Part {
	part := conditionPart(pp, "Instance", v1alpha1.ConditionInstanceCreated)
	part.Name = cmp.Or(pp.Spec.InstanceID, "none yet")
	if i := pp.Status.Instance; i != nil {
		part.Detail = append(compact(prefix("name ", i.Name), prefix("type ", i.Type), prefix("zone ", i.Zone), prefix("addresses ", strings.Join(i.Addresses, ", "))), part.Detail...)
	}
	return part
}

func prefix(text, value string) string {
	if value == "" {
		return ""
	}
	return text + value
}

// conditionPart shows a condition as a part of the tree.
func conditionPart(pp *v1alpha1.PeerPod, kind, conditionType string) *Part {
	c := meta.FindStatusCondition(pp.Status.Conditions, conditionType)
	if c == nil {
		return &Part{Kind: kind, State: "unknown"}
	}
	part := &Part{Kind: kind, State: c.Reason}
	if c.Status != metav1.ConditionTrue {
		part.Detail = compact(firstLine(c.Message))
	}
	return part
}

// firstLine keeps trees readable, without secrets; problems have the whole text.
func firstLine(text string) string {
	const most = 120
	text, _, _ = strings.Cut(text, "\n")
	text = redact.Foreign(text)
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}
