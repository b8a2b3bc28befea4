// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// template makes a template of machines.
func (r *run) template() (*fixture, *unstructured.Unstructured) {
	r.Helper()
	p := r.newFixture()
	u := instance(r.Objects.MachineTemplate, p.namespace, p.cluster, "t-"+unique())
	p.create(u)
	p.Cleanup(func() { p.Client.Delete(p.Context(), u) })
	return p, u
}

// changed returns the template with the spec of the second one of the file.
func (p *fixture) changed(u *unstructured.Unstructured) *unstructured.Unstructured {
	p.Helper()
	other := instance(p.Objects.ChangedTemplate, p.namespace, p.cluster, u.GetName())
	now := p.read(u, u.GetName())
	now.Object["spec"] = other.Object["spec"]
	return now
}

func checkTemplateKept(r *run) {
	p, u := r.template()
	if err := r.Client.Update(r.Context(), p.changed(u)); err == nil {
		r.Errorf("spec.template.spec of a template can be changed in place: machines that were made from it before differ from those after, and no rollout happens")
	}
}

func checkTemplateDryRun(r *run) {
	p, u := r.template()
	now := p.changed(u)
	annotated(clusterv1.TopologyDryRunAnnotation, "")(now)
	if err := r.Client.Update(r.Context(), now, client.DryRunAll); err != nil {
		r.Errorf("a dry run of the topology controller (annotation %s) is refused, so that a ClusterClass can never change: %v", clusterv1.TopologyDryRunAnnotation, err)
	}
}

func checkTemplateAnnotation(r *run) {
	p, u := r.template()
	now := p.changed(u)
	annotated(clusterv1.TopologyDryRunAnnotation, "")(now)
	if err := r.Client.Update(r.Context(), now); err == nil {
		r.Errorf("a template can be changed in place with the annotation %s, though the request is not a dry run", clusterv1.TopologyDryRunAnnotation)
	}
}

func checkTemplateMetadata(r *run) {
	p, u := r.template()
	p.addCluster(nil)
	now := empty(u.GroupVersionKind())
	err := p.tryPatch(r.Context(), now, u.GetName(), func() {
		labelled(clusterv1.ClusterNameLabel, p.cluster)(now)
		p.ownedByCluster(now)
	})
	if err != nil {
		r.Errorf("core cannot become the owner of a template: %v", err)
	}
}

func checkTemplateMakes(r *run) {
	p, u := r.template()
	name := "m-" + unique()
	made := fromTemplate(u)
	p.addCluster(nil)
	p.addSecret(name)
	p.addOwner(name, func(m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName = &name })
	p.addInfra(made, name, []change{
		annotated(clusterv1.TemplateClonedFromNameAnnotation, u.GetName()),
		annotated(clusterv1.TemplateClonedFromGroupKindAnnotation, u.GroupVersionKind().GroupKind().String()),
	})
	p.untilProvisioned(name)
}
