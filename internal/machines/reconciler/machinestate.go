// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"cmp"
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger/outrigger/provider"
)

// machineOrder is the order in which conditions explain why a machine is not
// Ready.
var machineOrder = []string{BootstrapDataReadyCondition, ProvisionedCondition, HealthyCondition}

// await returns what is missing. Events of the objects in question end the wait,
// except where it has to poll.
func (m *machineRun) await(ctx context.Context, wait *waiting) (reconcile.Result, error) {
	if wait.ofBootstrap {
		setFalse(m.desired, BootstrapDataReadyCondition, wait.reason, wait.message)
	}
	setFalse(m.desired, ProvisionedCondition, wait.reason, wait.message)
	summarize(m.desired, ProvisionedCondition)
	result := reconcile.Result{}
	if wait.poll {
		result.RequeueAfter = m.Poll
	}
	return result, saveAndReport(ctx, m.patcher, m.Base)
}

// apply copies the backend's state into the object.
func (m *machineRun) apply(state MachineState) {
	spec, status := m.desired.ContractMachine()
	setTrue(m.desired, BootstrapDataReadyCondition, ReasonBootstrapDataUsed)
	if state.Step != "" {
		status.Step = state.Step
	}
	if state.Provisioned && state.ProviderID != "" && spec.ProviderID != "" && spec.ProviderID != state.ProviderID {
		state.Provisioned = false
		state.Reason = ReasonInfrastructureOfAnother
		state.Message = fmt.Sprintf("spec.providerID is %s, but what carries the key of this object is %s", spec.ProviderID, state.ProviderID)
	}
	if state.Provisioned && state.ProviderID != "" {
		spec.ProviderID = state.ProviderID
		setProvisioned(m.desired)
	}
	if len(state.Addresses) > 0 {
		status.Addresses = state.Addresses
	}
	if state.FailureDomain != "" {
		status.FailureDomain = state.FailureDomain
	}
	setStates(m.desired, state.Step, state.Reason, state.Message)
	for _, c := range state.Conditions {
		setCondition(m.desired, c)
	}
	summarize(m.desired, machineOrder...)
}

// setStates sets Provisioned, which stays once it is True, and Healthy, which
// there is from then on.
func setStates(o object, step, reason, message string) {
	if !initialized(o) {
		setFalse(o, ProvisionedCondition, cmp.Or(reason, step, ReasonNotProvisionedYet), message)
		return
	}
	setTrue(o, ProvisionedCondition, ProvisionedCondition)
	if reason == "" {
		setTrue(o, HealthyCondition, ReasonHealthy)
	} else {
		setFalse(o, HealthyCondition, reason, message)
	}
}

func (m *machineRun) failed(ctx context.Context, err error) (reconcile.Result, error) {
	setTrue(m.desired, BootstrapDataReadyCondition, ReasonBootstrapDataUsed)
	return recordFailure(ctx, m.patcher, &m.Base, err, machineOrder...)
}

// recordFailure records what the backend's error means. The conditions of a provisioned
// object that cannot be observed for a while stay.
func recordFailure[T object](ctx context.Context, d *patcher[T], b *Base, err error, order ...string) (reconcile.Result, error) {
	switch {
	case !initialized(d.desired):
		setFalse(d.desired, ProvisionedCondition, reasonOf(err), messageOf(err))
	case !provider.Retryable(err):
		set(d.desired, HealthyCondition, metav1.ConditionUnknown, reasonOf(err), messageOf(err))
	}
	summarize(d.desired, order...)
	b.warnOf(d.desired, err)
	if saved := saveAndReport(ctx, d, *b); saved != nil {
		return reconcile.Result{}, saved
	}
	return afterError(err)
}
