// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
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
	return result, m.saveAndReport(ctx)
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
		spec.ProviderID, status.Ready, status.Initialization = state.ProviderID, true, yes()
	}
	if len(state.Addresses) > 0 {
		status.Addresses = state.Addresses
	}
	if state.FailureDomain != "" {
		status.FailureDomain = state.FailureDomain
	}
	setStates(m.desired, provisioned(status.Initialization), state.Step, state.Reason, state.Message)
	for _, c := range state.Conditions {
		setCondition(m.desired, c)
	}
	summarize(m.desired, machineOrder...)
}

// setStates sets Provisioned, which stays once it is True, and Healthy, which
// there is from then on.
func setStates(o object, there bool, step, reason, message string) {
	if !there {
		if reason == "" {
			reason = step
		}
		if reason == "" {
			reason = ReasonNotProvisionedYet
		}
		setFalse(o, ProvisionedCondition, reason, message)
		return
	}
	setTrue(o, ProvisionedCondition, ProvisionedCondition)
	if reason == "" {
		setTrue(o, HealthyCondition, ReasonHealthy)
	} else {
		setFalse(o, HealthyCondition, reason, message)
	}
}

// failed returns what the backend's error means.
func (m *machineRun) failed(ctx context.Context, err error) (reconcile.Result, error) {
	_, status := m.desired.ContractMachine()
	setTrue(m.desired, BootstrapDataReadyCondition, ReasonBootstrapDataUsed)
	setFailure(m.desired, provisioned(status.Initialization), err)
	summarize(m.desired, machineOrder...)
	m.warnOf(m.desired, err)
	if saved := m.saveAndReport(ctx); saved != nil {
		return reconcile.Result{}, saved
	}
	return afterError(err)
}

// setFailure keeps the conditions of a provisioned machine that cannot be
// observed for a while.
func setFailure(o object, there bool, err error) {
	switch {
	case !there:
		setFalse(o, ProvisionedCondition, reasonOf(err), messageOf(err))
	case !provider.Retryable(err):
		set(o, HealthyCondition, metav1.ConditionUnknown, reasonOf(err), messageOf(err))
	}
}

// saveAndReport writes the object, and Events about changes.
func (m *machineRun) saveAndReport(ctx context.Context) error {
	return saveAndReport(ctx, m.patcher, m.Base)
}
