// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1alpha1 "github.com/outrigger/outrigger/api/infrastructure/v1alpha1"
	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

// unknownReason is the reason of a condition that had none: contract v1beta2
// wants one.
const unknownReason = "NoReasonReported"

func clusterSpecUp(in *infrav1alpha1.ClusterSpec, out *infrav1.ClusterSpec) {
	out.ControlPlaneEndpoint = clusterv1.APIEndpoint(in.ControlPlaneEndpoint)
}

func clusterSpecDown(in *infrav1.ClusterSpec, out *infrav1alpha1.ClusterSpec) {
	out.ControlPlaneEndpoint = infrav1alpha1.APIEndpoint(in.ControlPlaneEndpoint)
}

func clusterStatusUp(in *infrav1alpha1.ClusterStatus, out *infrav1.ClusterStatus) {
	out.Ready, out.Initialization, out.Conditions = statusUp(&in.Status)
	out.FailureDomains = failureDomainsUp(in.FailureDomains)
}

func clusterStatusDown(in *infrav1.ClusterStatus, out *infrav1alpha1.ClusterStatus) {
	out.Status = statusDown(in.Ready, in.Conditions)
	out.FailureDomains = failureDomainsDown(in.FailureDomains)
}

func clusterStatusKeep(out, before *infrav1.ClusterStatus) {
	out.ObservedGeneration = before.ObservedGeneration
	if out.Ready == before.Ready {
		out.Initialization = before.Initialization
	}
}

func machineSpecUp(in *infrav1alpha1.MachineSpec, out *infrav1.MachineSpec) {
	out.ProviderID = value(in.ProviderID)
}

func machineSpecDown(in *infrav1.MachineSpec, out *infrav1alpha1.MachineSpec) {
	out.ProviderID = pointer(in.ProviderID)
}

func machineStatusUp(in *infrav1alpha1.MachineStatus, failureDomain *string, out *infrav1.MachineStatus) {
	out.Ready, out.Initialization, out.Conditions = statusUp(&in.Status)
	out.Addresses = in.Addresses
	out.FailureDomain = value(failureDomain)
}

func machineStatusDown(in *infrav1.MachineStatus, out *infrav1alpha1.MachineStatus) (failureDomain *string) {
	out.Status = statusDown(in.Ready, in.Conditions)
	out.Addresses = in.Addresses
	return pointer(in.FailureDomain)
}

func machineStatusKeep(out, before *infrav1.MachineStatus) {
	out.ObservedGeneration, out.Step = before.ObservedGeneration, before.Step
	if out.Ready == before.Ready {
		out.Initialization = before.Initialization
	}
}

func poolSpecUp(in *infrav1alpha1.PoolSpec, out *infrav1.PoolSpec) {
	out.ProviderID, out.ProviderIDList = value(in.ProviderID), in.ProviderIDList
}

func poolSpecDown(in *infrav1.PoolSpec, out *infrav1alpha1.PoolSpec) {
	out.ProviderID, out.ProviderIDList = pointer(in.ProviderID), in.ProviderIDList
}

func poolStatusUp(in *infrav1alpha1.PoolStatus, out *infrav1.PoolStatus) {
	out.Ready, out.Initialization, out.Conditions = statusUp(&in.Status)
	out.Replicas, out.InfrastructureMachineKind = in.Replicas, in.InfrastructureMachineKind
	out.Instances = each(in.Instances, func(i infrav1alpha1.PoolInstance) infrav1.PoolInstance {
		return infrav1.PoolInstance{
			InstanceName: i.InstanceName, ProviderID: value(i.ProviderID), Version: value(i.Version),
			Ready: i.Ready, Addresses: i.Addresses,
		}
	})
}

func poolStatusDown(in *infrav1.PoolStatus, out *infrav1alpha1.PoolStatus) {
	out.Status = statusDown(in.Ready, in.Conditions)
	out.Replicas, out.InfrastructureMachineKind = in.Replicas, in.InfrastructureMachineKind
	out.Instances = each(in.Instances, func(i infrav1.PoolInstance) infrav1alpha1.PoolInstance {
		return infrav1alpha1.PoolInstance{
			InstanceName: i.InstanceName, ProviderID: pointer(i.ProviderID), Version: pointer(i.Version),
			Ready: i.Ready, Addresses: i.Addresses,
		}
	})
}

func poolStatusKeep(out, before *infrav1.PoolStatus) {
	out.ObservedGeneration = before.ObservedGeneration
	if out.Ready == before.Ready {
		out.Initialization = before.Initialization
	}
}

func templateStatusUp(in *infrav1alpha1.MachineTemplateStatus, out *infrav1.MachineTemplateStatus) {
	out.Capacity = in.Capacity
	if in.NodeInfo != nil {
		out.NodeInfo = infrav1.NodeInfo(*in.NodeInfo)
	}
}

func templateStatusDown(in *infrav1.MachineTemplateStatus, out *infrav1alpha1.MachineTemplateStatus) {
	out.Capacity = in.Capacity
	if in.NodeInfo != (infrav1.NodeInfo{}) {
		info := infrav1alpha1.NodeInfo(in.NodeInfo)
		out.NodeInfo = &info
	}
}

func failureDomainsUp(in map[string]infrav1alpha1.FailureDomain) []clusterv1.FailureDomain {
	return each(slices.Sorted(maps.Keys(in)), func(name string) clusterv1.FailureDomain {
		d := in[name]
		return clusterv1.FailureDomain{Name: name, ControlPlane: &d.ControlPlane, Attributes: d.Attributes}
	})
}

func failureDomainsDown(in []clusterv1.FailureDomain) map[string]infrav1alpha1.FailureDomain {
	out := make(map[string]infrav1alpha1.FailureDomain, len(in))
	for _, d := range in {
		out[d.Name] = infrav1alpha1.FailureDomain{ControlPlane: d.ControlPlane != nil && *d.ControlPlane, Attributes: d.Attributes}
	}
	return out
}

func statusUp(in *infrav1alpha1.Status) (ready bool, provisioned infrav1.Initialization, conditions []metav1.Condition) {
	if in.Ready {
		provisioned.Provisioned = &in.Ready
	}
	if in.V1Beta2 != nil {
		return in.Ready, provisioned, in.V1Beta2.Conditions
	}
	// An object of a time before contract v1beta2.
	return in.Ready, provisioned, each(in.Conditions, func(c infrav1alpha1.Condition) metav1.Condition {
		return metav1.Condition{
			Type: c.Type, Status: metav1.ConditionStatus(c.Status), LastTransitionTime: c.LastTransitionTime,
			Reason: cmp.Or(c.Reason, unknownReason), Message: c.Message,
		}
	})
}

func statusDown(ready bool, conditions []metav1.Condition) infrav1alpha1.Status {
	out := infrav1alpha1.Status{Ready: ready, Conditions: each(conditions, conditionDown)}
	if len(conditions) > 0 {
		out.V1Beta2 = &infrav1alpha1.V1Beta2Status{Conditions: conditions}
	}
	return out
}

// conditionDown: contract v1beta1 wants a severity of what is False. There is
// nothing from which to tell an error.
func conditionDown(c metav1.Condition) infrav1alpha1.Condition {
	out := infrav1alpha1.Condition{
		Type: c.Type, Status: corev1.ConditionStatus(c.Status), LastTransitionTime: c.LastTransitionTime,
		Reason: c.Reason, Message: c.Message,
	}
	if c.Status == metav1.ConditionFalse {
		out.Severity = "Info"
	}
	return out
}

func each[A, B any](in []A, f func(A) B) []B {
	if len(in) == 0 {
		return nil
	}
	out := make([]B, len(in))
	for i, a := range in {
		out[i] = f(a)
	}
	return out
}

func value(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

func pointer(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
