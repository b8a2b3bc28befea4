// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

// The rules of each kind.
var (
	dockerCluster = rules[*infrav1.DockerCluster, infrav1.DockerClusterSpec]{
		valid: validDockerCluster, fixed: fixedDockerCluster,
		parts: func(c *infrav1.DockerCluster) (*infrav1.DockerClusterSpec, *clusterv1.ObjectMeta) {
			return &c.Spec, nil
		},
	}
	dockerMachine = rules[*infrav1.DockerMachine, infrav1.DockerMachineSpec]{
		valid: validDockerMachine,
		fixed: keepsProviderID(func(s *infrav1.DockerMachineSpec) string { return s.ProviderID }),
		parts: func(m *infrav1.DockerMachine) (*infrav1.DockerMachineSpec, *clusterv1.ObjectMeta) {
			return &m.Spec, nil
		},
	}
	dockerMachinePool = rules[*infrav1.DockerMachinePool, infrav1.DockerMachinePoolSpec]{
		valid: validDockerPool,
		fixed: keepsProviderID(func(s *infrav1.DockerMachinePoolSpec) string { return s.ProviderID }),
		parts: func(p *infrav1.DockerMachinePool) (*infrav1.DockerMachinePoolSpec, *clusterv1.ObjectMeta) {
			return &p.Spec, nil
		},
	}
	outriggerCluster = rules[*infrav1.OutriggerCluster, infrav1.OutriggerClusterSpec]{
		valid: validOutriggerCluster, fixed: fixedOutriggerCluster, fixedObject: fixedProvider,
		parts: func(c *infrav1.OutriggerCluster) (*infrav1.OutriggerClusterSpec, *clusterv1.ObjectMeta) {
			return &c.Spec, nil
		},
	}
	outriggerMachine = rules[*infrav1.OutriggerMachine, infrav1.OutriggerMachineSpec]{
		valid: validOutriggerMachine,
		fixed: keepsProviderID(func(s *infrav1.OutriggerMachineSpec) string { return s.ProviderID }),
		parts: func(m *infrav1.OutriggerMachine) (*infrav1.OutriggerMachineSpec, *clusterv1.ObjectMeta) {
			return &m.Spec, nil
		},
	}

	dockerClusterTemplate = template(validDockerCluster,
		func(t *infrav1.DockerClusterTemplate) (*infrav1.DockerClusterSpec, *clusterv1.ObjectMeta) {
			return &t.Spec.Template.Spec, &t.Spec.Template.ObjectMeta
		})
	dockerMachineTemplate = template(validDockerMachine,
		func(t *infrav1.DockerMachineTemplate) (*infrav1.DockerMachineSpec, *clusterv1.ObjectMeta) {
			return &t.Spec.Template.Spec, &t.Spec.Template.ObjectMeta
		})
	dockerMachinePoolTemplate = template(validDockerPool,
		func(t *infrav1.DockerMachinePoolTemplate) (*infrav1.DockerMachinePoolSpec, *clusterv1.ObjectMeta) {
			return &t.Spec.Template.Spec, &t.Spec.Template.ObjectMeta
		})
	outriggerClusterTemplate = template(validOutriggerCluster,
		func(t *infrav1.OutriggerClusterTemplate) (*infrav1.OutriggerClusterSpec, *clusterv1.ObjectMeta) {
			return &t.Spec.Template.Spec, &t.Spec.Template.ObjectMeta
		})
	outriggerMachineTemplate = template(validOutriggerMachine,
		func(t *infrav1.OutriggerMachineTemplate) (*infrav1.OutriggerMachineSpec, *clusterv1.ObjectMeta) {
			return &t.Spec.Template.Spec, &t.Spec.Template.ObjectMeta
		})
)
