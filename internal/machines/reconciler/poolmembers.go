// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"fmt"
	"maps"
	"regexp"

	"k8s.io/apimachinery/pkg/api/equality"
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
