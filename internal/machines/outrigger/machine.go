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
	// StepCreate means that the provider is creating the instance.
	StepCreate = "CreateInstance"
	// StepDone means that the instance was created.
	StepDone = "InstanceCreated"
)

const reasonCreating = "CreatingInstance"

// EnsureMachine creates the instance in the background, or observes it.
func (b *Backend) EnsureMachine(ctx context.Context, s *reconciler.MachineScope) (reconciler.MachineState, error) {
	infra, ok := s.Infra.(*infrav1.OutriggerMachine)
	if !ok {
		return reconciler.MachineState{}, fmt.Errorf("%w: %T is not an OutriggerMachine", provider.ErrInvalidArgument, s.Infra)
	}
	b.mu.Lock()
	b.machine(s) // which notes when this process first handled it
	b.mu.Unlock()
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

// creation returns the task that creates the instance, and starts it if there is
// none. A failed task is returned only once, so that the next call starts another.
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

// create starts the creation of an instance. It copies what it needs of the scope,
// which may change after the reconciliation.
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

// adopt returns the only instance of a key; it is an error if there are none or
// several.
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

// ofKey returns the instances of a key that are not being deleted.
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

// ownerTags returns the owner tags. They do not change: some clouds compare them when
// a request is repeated.
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

func (b *Backend) observe(ctx context.Context, s *reconciler.MachineScope, providerID string) (reconciler.MachineState, error) {
	id, ours := strings.CutPrefix(providerID, b.prefix())
	if !ours || id == "" {
		return b.unusable(reconciler.ReasonInfrastructureOfAnother, fmt.Sprintf("spec.providerID %s is none of provider %s, whose begin with %s", providerID, b.options.Name, b.prefix())), nil
	}
	instance, err := b.lookUp(ctx, s, id)
	if errors.Is(err, provider.ErrNotFound) {
		return b.unusable(reconciler.ReasonInstanceGone, fmt.Sprintf("provider %s has no instance %s any more: delete the Machine", b.options.Name, id)), nil
	}
	if err != nil {
		return reconciler.MachineState{}, err
	}
	if instance.Key != s.Key {
		return b.unusable(reconciler.ReasonInfrastructureOfAnother, fmt.Sprintf("instance %s carries the key %q, not %q: it is that of another machine", id, instance.Key, s.Key)), nil
	}
	return b.state(s, *instance), nil
}

// lookUp returns the instance from the last list if it runs there, else it asks the
// cloud.
func (b *Backend) lookUp(ctx context.Context, s *reconciler.MachineScope, id string) (*provider.Instance, error) {
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

// justMade returns an instance that was created recently: lists may not show it yet.
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

func (b *Backend) unusable(reason, message string) reconciler.MachineState {
	return reconciler.MachineState{Step: StepDone, Reason: reason, Message: message, RequeueAfter: b.options.Interval}
}

func (b *Backend) state(s *reconciler.MachineScope, i provider.Instance) reconciler.MachineState {
	state := reconciler.MachineState{
		Step: StepDone, ProviderID: b.prefix() + i.ID, Provisioned: true,
		Addresses: addresses(i), FailureDomain: failureDomainOf(s, i), RequeueAfter: b.options.Interval,
	}
	switch i.State {
	case provider.StateStopped:
		state.Reason, state.Message = reconciler.ReasonInstanceStopped, fmt.Sprintf("instance %s is stopped", i.ID)
	case provider.StateDeleting:
		state.Reason, state.Message = reconciler.ReasonInstanceGone, fmt.Sprintf("instance %s is being deleted: delete the Machine", i.ID)
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

// failureDomainOf returns the failure domain of an instance: the requested one, or else
// its zone if the cluster has a failure domain of that name.
func failureDomainOf(s *reconciler.MachineScope, i provider.Instance) string {
	if s.FailureDomain == "" && s.InfraCluster != nil && reconciler.HasFailureDomain(s.InfraCluster, i.Zone) {
		return i.Zone
	}
	return s.FailureDomain
}
