// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// PoolTemplateAnnotation holds, on a machine of a pool, a hash of the template and the
// version from which it was made.
const PoolTemplateAnnotation = "infrastructure.outrigger.dev/pool-template"

// PoolVersionAnnotation on a machine of a pool is the version of Kubernetes that its
// MachinePool had when it was made.
const PoolVersionAnnotation = "infrastructure.outrigger.dev/pool-version"

// ReasonScaling means that a pool has the wrong number of machines, or machines of an
// older template.
const ReasonScaling = "Scaling"

// poolMachine is one machine of a pool. machine is nil until Cluster API's core has
// made the Machine.
type poolMachine struct {
	infra   InfraMachine
	machine *clusterv1.Machine
}

func (m poolMachine) deleting() bool {
	return !m.infra.GetDeletionTimestamp().IsZero() || m.machine != nil && !m.machine.DeletionTimestamp.IsZero()
}

func (m poolMachine) provisioned() bool { return initialized(m.infra) }

// list returns the machines of the pool, sorted by name.
func (p *poolRun) list(ctx context.Context) (machines []poolMachine, err error) {
	list := p.NewMachines()
	if err := p.Client.List(ctx, list, client.InNamespace(p.desired.GetNamespace())); err != nil {
		return nil, fmt.Errorf("list the machines of pool %s: %w", p.desired.GetName(), err)
	}
	err = apimeta.EachListItem(list, func(o runtime.Object) error {
		infra := o.(InfraMachine)
		if !p.owns(infra) {
			return nil
		}
		machine, err := util.GetOwnerMachine(ctx, p.Client, metav1.ObjectMeta{Namespace: infra.GetNamespace(), OwnerReferences: infra.GetOwnerReferences()})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("look up the Machine of %s: %w", infra.GetName(), err)
		}
		machines = append(machines, poolMachine{infra: infra, machine: machine})
		return nil
	})
	slices.SortFunc(machines, func(a, b poolMachine) int { return cmp.Compare(a.infra.GetName(), b.infra.GetName()) })
	return machines, err
}

// reference returns the owner reference of a machine. It is not the controller's: core
// makes the Machine the controller.
func (p *poolRun) reference() metav1.OwnerReference {
	gvk, _ := apiutil.GVKForObject(p.desired, p.Client.Scheme())
	return metav1.OwnerReference{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Name: p.desired.GetName(), UID: p.desired.GetUID()}
}

// converge takes the next step towards the wanted machines. It returns why the pool is
// not done yet, or an empty reason.
func (p *poolRun) converge(ctx context.Context) (reason, message string, err error) {
	template, err := p.template()
	if err != nil {
		return "", "", err
	}
	want := int32(1)
	if p.owner.Spec.Replicas != nil {
		want = *p.owner.Spec.Replicas
	}
	staying := slices.DeleteFunc(slices.Clone(p.machines), poolMachine.deleting)
	switch missing := int(want) - len(staying); {
	case missing > 0:
		if reason, message = p.blockedBy(); reason != "" {
			return reason, message, nil
		}
		err = p.create(ctx, missing, template)
	case missing < 0:
		err = p.shrink(ctx, staying, -missing, template)
	default:
		err = p.replace(ctx, staying, template)
	}
	if err != nil {
		return "", "", err
	}
	if ready := count(staying, template); ready < int(want) || len(p.machines) > int(want) {
		return ReasonScaling, fmt.Sprintf("%d of %d machines are there as the template has them, %d others are", ready, want, len(p.machines)-ready), nil
	}
	return "", "", nil
}

// blockedBy returns why no machine can be made yet, or an empty reason.
func (p *poolRun) blockedBy() (reason, message string) {
	switch name := p.owner.Spec.Template.Spec.Bootstrap.DataSecretName; {
	case !infrastructureThere(p.cluster):
		return clusterv1.WaitingForClusterInfrastructureReadyReason, fmt.Sprintf("the infrastructure of Cluster %s is not provisioned yet", p.cluster.Name)
	case name == nil || *name == "":
		return clusterv1.WaitingForBootstrapDataReason, "the MachinePool's spec.template.spec.bootstrap.dataSecretName is not set yet"
	}
	return "", ""
}

// template returns a hash of what a machine is made from now.
func (p *poolRun) template() (string, error) {
	data, err := json.Marshal(p.NewMachine(p.desired))
	if err != nil {
		return "", fmt.Errorf("the template of pool %s: %w", p.desired.GetName(), err)
	}
	data = append(data, p.owner.Spec.Template.Spec.Version...)
	return fmt.Sprintf("%x", sha256.Sum256(data))[:16], nil
}

func count(machines []poolMachine, template string) (n int) {
	for _, m := range machines {
		if m.provisioned() && m.hasTemplate(template) {
			n++
		}
	}
	return n
}

func (m poolMachine) hasTemplate(template string) bool {
	return m.infra.GetAnnotations()[PoolTemplateAnnotation] == template
}

// versionOf returns the version of Kubernetes on a machine: what its Machine says,
// which core reads from the Node, or else what it was made with.
func (p *poolRun) versionOf(m poolMachine) string {
	if m.machine != nil && m.machine.Spec.Version != "" {
		return m.machine.Spec.Version
	}
	return m.infra.GetAnnotations()[PoolVersionAnnotation]
}

// create makes n machines. Their names are numbered, so that creating a machine again
// that the cache does not show yet fails.
func (p *poolRun) create(ctx context.Context, n int, template string) error {
	taken := maps.Clone(p.strays)
	for _, m := range p.machines {
		taken[m.infra.GetName()] = true
	}
	for i := 0; n > 0; i++ {
		m := p.NewMachine(p.desired)
		m.SetName(fmt.Sprintf("%s-%d", p.desired.GetName(), i))
		if taken[m.GetName()] {
			continue
		}
		p.setMetadata(m, template)
		err := p.Client.Create(ctx, m)
		if apierrors.IsAlreadyExists(err) {
			if err := p.checkForeign(ctx, m.GetName()); err != nil {
				return err
			}
			continue // a machine of somebody else has the name
		}
		if err != nil {
			return fmt.Errorf("make machine %s of pool %s: %w", m.GetName(), p.desired.GetName(), err)
		}
		n--
	}
	return nil
}

// setMetadata gives a machine the metadata by which core and we find it.
func (p *poolRun) setMetadata(m InfraMachine, template string) {
	m.SetNamespace(p.desired.GetNamespace())
	m.SetLabels(p.memberLabels())
	if p.Filter != "" {
		m.GetLabels()[clusterv1.WatchLabel] = p.Filter
	}
	m.SetAnnotations(map[string]string{PoolTemplateAnnotation: template})
	annotate(m, PoolVersionAnnotation, p.owner.Spec.Template.Spec.Version)
	m.SetOwnerReferences([]metav1.OwnerReference{p.reference()})
}

// checkForeign returns errStale if a machine that the cache did not list belongs to
// this pool.
func (p *poolRun) checkForeign(ctx context.Context, name string) error {
	existing := p.NewMachine(p.desired)
	err := p.Client.Get(ctx, client.ObjectKey{Namespace: p.desired.GetNamespace(), Name: name}, existing)
	if apierrors.IsNotFound(err) || err == nil && p.owns(existing) {
		return errStale
	}
	return err
}

// shrink removes machines, the least useful first.
func (p *poolRun) shrink(ctx context.Context, machines []poolMachine, n int, template string) error {
	usefulness := func(m poolMachine) int {
		switch {
		case m.machine != nil && m.machine.Annotations[clusterv1.DeleteMachineAnnotation] != "":
			return 0
		case !m.hasTemplate(template):
			return 1
		case !m.provisioned():
			return 2
		}
		return 3
	}
	slices.SortStableFunc(machines, func(a, b poolMachine) int { return cmp.Compare(usefulness(a), usefulness(b)) })
	for _, m := range machines[:n] {
		if err := p.remove(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// replace removes machines of an older template one by one, the next when the new
// machine is ready. Machines that are not provisioned go first.
func (p *poolRun) replace(ctx context.Context, machines []poolMachine, template string) error {
	if len(p.machines) > len(machines) {
		return nil // the previous one is still being deleted
	}
	var old []poolMachine
	for _, m := range machines {
		switch {
		case !m.hasTemplate(template):
			old = append(old, m)
		case !m.provisioned():
			return nil
		}
	}
	if len(old) == 0 {
		return nil
	}
	if i := slices.IndexFunc(old, func(m poolMachine) bool { return !m.provisioned() }); i > 0 {
		old = old[i:]
	}
	return p.remove(ctx, old[0])
}

// remove deletes the Machine, which drains the node and then deletes the
// infrastructure. Without a Machine it deletes the infrastructure itself.
func (p *poolRun) remove(ctx context.Context, m poolMachine) error {
	if m.deleting() {
		return nil
	}
	var target client.Object = m.infra
	if m.machine != nil {
		target = m.machine
	}
	uid := target.GetUID()
	err := p.Client.Delete(ctx, target, client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete machine %s of pool %s: %w", target.GetName(), p.desired.GetName(), err)
	}
	return nil
}

// asPoolMember copies bootstrap data and version from the MachinePool to m, if m is a
// Machine of a pool.
func asPoolMember(ctx context.Context, c client.Reader, m *clusterv1.Machine) error {
	pool, err := ownerPool(ctx, c, m)
	if err != nil || pool == nil {
		return err
	}
	m.Spec.Bootstrap = *pool.Spec.Template.Spec.Bootstrap.DeepCopy()
	m.Spec.Version = cmp.Or(m.Spec.Version, pool.Spec.Template.Spec.Version)
	return nil
}
