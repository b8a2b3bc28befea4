// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var templateChecks = []Check{
	{"template-makes", "What core makes from a template gets a machine.", []need{needsTemplate}, func(r *run) {
		fx, u := r.template()
		name := "m-" + unique()
		made := fromTemplate(u)
		fx.addCluster(nil)
		fx.addSecret(name)
		fx.addOwner(name, func(m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName = &name })
		fx.addInfra(made, name, []change{
			annotated(clusterv1.TemplateClonedFromNameAnnotation, u.GetName()),
			annotated(clusterv1.TemplateClonedFromGroupKindAnnotation, u.GroupVersionKind().GroupKind().String()),
		})
		fx.untilProvisioned(name)
	}},
	{"template-metadata", "Core can become the owner of a template.", []need{needsTemplate}, func(r *run) {
		fx, u := r.template()
		fx.addCluster(nil)
		now := empty(u.GroupVersionKind())
		err := fx.tryPatch(r.Context(), now, u.GetName(), func() {
			labelled(clusterv1.ClusterNameLabel, fx.cluster)(now)
			fx.ownedByCluster(now)
		})
		if err != nil {
			r.Errorf("core cannot become the owner of a template: %v", err)
		}
	}},
	{"template-immutable", "The spec of a template of machines cannot change.", []need{needsTemplate, needsChangedTemplate}, func(r *run) {
		fx, u := r.template()
		if err := r.Client.Update(r.Context(), fx.changed(u)); err == nil {
			r.Errorf("spec.template.spec of a template can be changed in place: machines that were made from it before differ from those after, and no rollout happens")
		}
	}},
	{"template-dry-run", "A dry run of the topology controller may change a template.", []need{needsTemplate, needsChangedTemplate}, func(r *run) {
		fx, u := r.template()
		now := fx.changed(u)
		annotated(clusterv1.TopologyDryRunAnnotation, "")(now)
		if err := r.Client.Update(r.Context(), now, client.DryRunAll); err != nil {
			r.Errorf("a dry run of the topology controller (annotation %s) is refused, so that a ClusterClass can never change: %v", clusterv1.TopologyDryRunAnnotation, err)
		}
	}},
	{"template-dry-run-only", "The annotation of the topology controller alone does not make a template changeable.", []need{needsTemplate, needsChangedTemplate}, func(r *run) {
		fx, u := r.template()
		now := fx.changed(u)
		annotated(clusterv1.TopologyDryRunAnnotation, "")(now)
		if err := r.Client.Update(r.Context(), now); err == nil {
			r.Errorf("a template can be changed in place with the annotation %s, though the request is not a dry run", clusterv1.TopologyDryRunAnnotation)
		}
	}},
}

func (r *run) template() (*fixture, *unstructured.Unstructured) {
	fx := r.newFixture()
	u := instance(r.Objects.MachineTemplate, fx.namespace, fx.cluster, "t-"+unique())
	fx.create(u)
	fx.Cleanup(func() { fx.Client.Delete(fx.Context(), u) })
	return fx, u
}

// changed returns the template with the spec of the second one of the file.
func (fx *fixture) changed(u *unstructured.Unstructured) *unstructured.Unstructured {
	other := instance(fx.Objects.ChangedTemplate, fx.namespace, fx.cluster, u.GetName())
	now := fx.read(u, u.GetName())
	now.Object["spec"] = other.Object["spec"]
	return now
}
