// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/labels/format"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// numbered splits the name of a pool's machine into the pool's and a number.
var numbered = regexp.MustCompile(`^(.+)-(0|[1-9][0-9]*)$`)

// poolOf returns the name of the pool of a kind that a machine belongs to, empty if
// there is none. Owner references alone are not enough: backups, moves by hand and
// `kubectl apply` of an edited manifest lose them, and a pool that does not know its
// machines again makes others beside them. What we made says so by its annotation
// and its name.
func poolOf(machine client.Object, kind schema.GroupVersionKind) string {
	for _, owner := range machine.GetOwnerReferences() {
		gv, err := schema.ParseGroupVersion(owner.APIVersion)
		if err == nil && gv.Group == kind.Group && owner.Kind == kind.Kind {
			return owner.Name
		}
	}
	if machine.GetAnnotations()[PoolTemplateAnnotation] == "" {
		return ""
	}
	if parts := numbered.FindStringSubmatch(machine.GetName()); parts != nil {
		return parts[1]
	}
	return ""
}

func (p *poolRun) owns(machine client.Object) bool {
	own := p.reference()
	return poolOf(machine, schema.FromAPIVersionAndKind(own.APIVersion, own.Kind)) == p.desired.GetName()
}

// memberLabels returns the labels by which core finds the machines of a MachinePool,
// and we find their Machines.
func (p *poolRun) memberLabels() client.MatchingLabels {
	return client.MatchingLabels{
		clusterv1.ClusterNameLabel:     p.owner.Spec.ClusterName,
		clusterv1.MachinePoolNameLabel: format.MustFormatValue(p.owner.Name),
	}
}

// adopt restores lost labels and owner references of the pool's machines. A reference
// to an earlier UID of the pool is one that the garbage collector takes for that of
// an owner that is gone.
func (p *poolRun) adopt(ctx context.Context) error {
	for i, m := range p.machines {
		if !m.infra.GetDeletionTimestamp().IsZero() {
			continue
		}
		labels := maps.Clone(m.infra.GetLabels())
		if labels == nil {
			labels = map[string]string{}
		}
		maps.Copy(labels, p.memberLabels())
		owners := util.EnsureOwnerRef(append([]metav1.OwnerReference(nil), m.infra.GetOwnerReferences()...), p.reference())
		if maps.Equal(labels, m.infra.GetLabels()) && equality.Semantic.DeepEqual(owners, m.infra.GetOwnerReferences()) {
			continue
		}
		adopted := m.infra.DeepCopyObject().(InfraMachine)
		adopted.SetLabels(labels)
		adopted.SetOwnerReferences(owners)
		if err := p.Client.Patch(ctx, adopted, client.MergeFromWithOptions(m.infra, client.MergeFromWithOptimisticLock{})); err != nil {
			return fmt.Errorf("adopt machine %s of pool %s: %w", m.infra.GetName(), p.desired.GetName(), err)
		}
		p.machines[i].infra = adopted
	}
	return nil
}

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
