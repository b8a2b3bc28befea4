// SPDX-License-Identifier: Apache-2.0

package outrigger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/provider"
)

// Steps of a machine.
const (
	// StepCreate: the provider was asked for the instance.
	StepCreate = "CreateInstance"
	// StepDone: the instance is there.
	StepDone = "InstanceCreated"
)

// Reasons of conditions of a machine that is not, or not any more, what it
// should be.
const (
	reasonCreating = "CreatingInstance"
	reasonForeign  = reconciler.ReasonInfrastructureOfAnother
	reasonGone     = reconciler.ReasonInstanceGone
	reasonStopped  = reconciler.ReasonInstanceStopped
)

// EnsureMachine creates the instance in the background, or observes it.
func (b *Backend) EnsureMachine(ctx context.Context, s *reconciler.MachineScope) (reconciler.MachineState, error) {
	infra, ok := s.Infra.(*infrav1.OutriggerMachine)
	if !ok {
		return reconciler.MachineState{}, fmt.Errorf("%w: %T is not an OutriggerMachine", provider.ErrInvalidArgument, s.Infra)
	}
	b.remember(s)
	if infra.Spec.ProviderID != "" {
		return b.observe(ctx, s, infra.Spec.ProviderID)
	}
	t, err := b.creation(s, infra)
	if err != nil {
		return reconciler.MachineState{}, err
	}
	if t.running() {
		return reconciler.MachineState{Step: StepCreate, Reason: reasonCreating, Message: "provider " + b.options.Name + " is creating the instance"}, nil
	}
	if t.err != nil {
		return reconciler.MachineState{}, t.err
	}
	return b.state(s, *t.instance), nil
}

// creation returns the creation that is running or has ended. A failed one is
// returned once, so that the next call starts another.
func (b *Backend) creation(s *reconciler.MachineScope, infra *infrav1.OutriggerMachine) (*task, error) {
	p, err := b.fleet.in(s.FailureDomain)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.machine(s)
	t := m.create
	if t == nil {
		t = b.create(m, p, s, infra)
		m.create = t
	} else if !t.running() && t.err != nil {
		m.create = nil
	}
	return t, nil
}

// create starts a creation. What it needs of the scope is copied: that lives no
// longer than the reconciliation.
func (b *Backend) create(m *machine, p provider.Provider, s *reconciler.MachineScope, infra *infrav1.OutriggerMachine) *task {
	name, key, data, spec := infra.Name, s.Key, slices.Clone(s.Bootstrap), specOf(s, infra)
	return b.start(m.name, b.options.CreateTimeout, func(ctx context.Context, t *task) {
		t.instance, t.err = b.fleet.create(ctx, p, name, key, data, spec)
		switch {
		case t.err == nil:
		case errors.Is(t.err, provider.ErrAlreadyExists):
			// Asked for by a manager that had other bootstrap data.
			t.instance, t.err = b.adopt(ctx, key, t.err)
		case t.instance != nil && t.instance.ID != "" && !provider.Retryable(t.err):
			// Its bootstrap data is outdated, so it will never finish.
			t.err = errors.Join(t.err, b.fleet.remove(ctx, t.instance.ID))
		}
	})
}

// adopt returns the one instance of a key.
func (b *Backend) adopt(ctx context.Context, key string, cause error) (*provider.Instance, error) {
	list, err := b.ofKey(ctx, key)
	if err != nil {
		return nil, err
	}
	if len(list) != 1 {
		return nil, fmt.Errorf("%w: the provider shows %d instances of that key", cause, len(list))
	}
	return &list[0], nil
}

// ofKey returns the instances of a key that are not on their way out.
func (b *Backend) ofKey(ctx context.Context, key string) ([]provider.Instance, error) {
	list, err := b.fleet.list(ctx, map[string]string{provider.TagKey: key})
	return slices.DeleteFunc(list, func(i provider.Instance) bool { return i.State == provider.StateDeleting }), err
}

func specOf(s *reconciler.MachineScope, infra *infrav1.OutriggerMachine) provider.InstanceTypeSpec {
	spec := provider.InstanceTypeSpec{
		InstanceType: infra.Spec.InstanceType, VCPUs: infra.Spec.VCPUs, GPUs: infra.Spec.GPUs,
		Arch: infra.Spec.Arch, Image: infra.Spec.Image, Tags: maps.Clone(infra.Spec.Tags),
	}
	if infra.Spec.Memory != nil {
		spec.Memory = (infra.Spec.Memory.Value() + 1<<20 - 1) >> 20
	}
	if spec.Tags == nil {
		spec.Tags = map[string]string{}
	}
	maps.Copy(spec.Tags, ownerTags(s))
	return spec
}

// TagRole says whether an instance is one of the control plane or a worker.
const TagRole = "outrigger-role"

// ownerTags are the same whenever they are asked for: some clouds compare them
// when a request is repeated.
func ownerTags(s *reconciler.MachineScope) map[string]string {
	role := "worker"
	if s.ControlPlane {
		role = "control-plane"
	}
	return map[string]string{
		provider.TagCluster: s.ClusterKey, provider.TagKey: s.Key, TagRole: role,
		provider.TagNamespace: provider.TagValue(s.Infra.GetNamespace()), provider.TagPod: provider.TagValue(s.Infra.GetName()),
		provider.TagCreated: s.Began.UTC().Format(time.RFC3339),
	}
}

// observe returns the state of the instance of a providerID.
func (b *Backend) observe(ctx context.Context, s *reconciler.MachineScope, providerID string) (reconciler.MachineState, error) {
	id, ours := strings.CutPrefix(providerID, b.prefix())
	if !ours || id == "" {
		return b.wrong(reasonForeign, fmt.Sprintf("spec.providerID %s is none of provider %s, whose begin with %s", providerID, b.options.Name, b.prefix())), nil
	}
	instance, err := b.look(ctx, s, id)
	if errors.Is(err, provider.ErrNotFound) {
		return b.wrong(reasonGone, fmt.Sprintf("provider %s has no instance %s any more: delete the Machine", b.options.Name, id)), nil
	}
	if err != nil {
		return reconciler.MachineState{}, err
	}
	if instance.Key != s.Key {
		return b.wrong(reasonForeign, fmt.Sprintf("instance %s carries the key %q, not %q: it is that of another machine", id, instance.Key, s.Key)), nil
	}
	return b.state(s, *instance), nil
}

// look returns the instance from the last list, if it is healthy there, else
// from the cloud itself.
func (b *Backend) look(ctx context.Context, s *reconciler.MachineScope, id string) (*provider.Instance, error) {
	if made := b.justMade(s, id); made != nil {
		return made, nil
	}
	instance, ok, err := b.listed(ctx, s.ClusterKey, id)
	if err != nil {
		return nil, err
	}
	if ok && instance.State == provider.StateRunning {
		return &instance, nil
	}
	return b.fleet.get(ctx, id)
}

// justMade returns the result of a recent creation: lists may not show it yet.
func (b *Backend) justMade(s *reconciler.MachineScope, id string) *provider.Instance {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.machines[s.Key]
	if m == nil || m.create == nil || m.create.running() || m.create.instance == nil || m.create.instance.ID != id {
		return nil
	}
	if b.options.Elapsed()-m.create.ended >= b.options.Interval {
		m.create = nil
		return nil
	}
	made := *m.create.instance
	made.Key = s.Key
	return &made
}

func (b *Backend) prefix() string { return "outrigger://" + b.options.Name + "/" }

func (b *Backend) wrong(reason, message string) reconciler.MachineState {
	return reconciler.MachineState{Step: StepDone, Reason: reason, Message: message, RequeueAfter: b.options.Interval}
}

// state returns how an instance is.
func (b *Backend) state(s *reconciler.MachineScope, i provider.Instance) reconciler.MachineState {
	state := reconciler.MachineState{
		Step: StepDone, ProviderID: b.prefix() + i.ID, Provisioned: true,
		Addresses: addresses(i), FailureDomain: placed(s, i), RequeueAfter: b.options.Interval,
	}
	switch i.State {
	case provider.StateStopped:
		state.Reason, state.Message = reasonStopped, fmt.Sprintf("instance %s is stopped", i.ID)
	case provider.StateDeleting:
		state.Reason, state.Message = reasonGone, fmt.Sprintf("instance %s is being deleted: delete the Machine", i.ID)
	}
	return state
}

func addresses(i provider.Instance) []clusterv1.MachineAddress {
	var all []clusterv1.MachineAddress
	if i.Name != "" {
		all = append(all, clusterv1.MachineAddress{Type: clusterv1.MachineHostName, Address: i.Name})
	}
	for _, ip := range i.IPs {
		kind := clusterv1.MachineInternalIP
		if ip.IsGlobalUnicast() && !ip.IsPrivate() {
			kind = clusterv1.MachineExternalIP
		}
		all = append(all, clusterv1.MachineAddress{Type: kind, Address: ip.String()})
	}
	return all
}

// placed returns the failure domain of an instance: the one it was asked for,
// or its zone if the cluster has a failure domain of that name.
func placed(s *reconciler.MachineScope, i provider.Instance) string {
	if s.FailureDomain != "" || s.InfraCluster == nil {
		return s.FailureDomain
	}
	_, status := s.InfraCluster.ContractCluster()
	for _, domain := range status.FailureDomains {
		if domain.Name == i.Zone {
			return i.Zone
		}
	}
	return ""
}
