// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// collectStrays deletes Machines of the pool whose machine is gone: somebody has
// deleted that, or core made the Machine while it was being deleted. Core leaves
// them for ever, and their Nodes with them. Their names are not given again as
// long as they are there: the end of such a Machine would be that of the new one.
func (p *poolRun) collectStrays(ctx context.Context) error {
	var list clusterv1.MachineList
	err := p.Client.List(ctx, &list, client.InNamespace(p.desired.GetNamespace()), p.memberLabels())
	if err != nil {
		return fmt.Errorf("list the Machines of pool %s: %w", p.desired.GetName(), err)
	}
	p.strays = map[string]bool{}
	for _, m := range list.Items {
		if p.ofAnother(&m) || m.Spec.InfrastructureRef.GroupKind() != p.MachineKind.GroupKind() || p.has(m.Spec.InfrastructureRef.Name) {
			continue
		}
		if err := p.collectStray(ctx, &m); err != nil {
			return err
		}
	}
	return nil
}

// ofAnother reports whether something else than the MachinePool controls a Machine that
// carries its labels. Nothing does where owner references were lost.
func (p *poolRun) ofAnother(m *clusterv1.Machine) bool {
	controller := metav1.GetControllerOf(m)
	return controller != nil && (controller.Kind != "MachinePool" || controller.Name != p.owner.Name)
}

func (p *poolRun) has(name string) bool {
	return slices.ContainsFunc(p.machines, func(m poolMachine) bool { return m.infra.GetName() == name })
}

func (p *poolRun) collectStray(ctx context.Context, m *clusterv1.Machine) error {
	name, there := m.Spec.InfrastructureRef.Name, p.NewMachine(p.desired)
	err := p.Live.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: name}, there)
	switch {
	case err == nil && p.owns(there):
		return errStale // the cache does not show it yet
	case err == nil:
		return nil // it is not of this pool any more
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("look for machine %s of pool %s: %w", name, p.desired.GetName(), err)
	}
	p.strays[name] = true
	if !m.DeletionTimestamp.IsZero() {
		return nil
	}
	err = p.Client.Delete(ctx, m, client.Preconditions{UID: &m.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Machine %s of pool %s, whose machine is gone: %w", m.Name, p.desired.GetName(), err)
	}
	return nil
}
