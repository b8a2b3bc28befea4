// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

// The rules of each kind.
var (
	dockerCluster = rules[*infrav1.DockerCluster, infrav1.DockerClusterSpec]{
		kind: "DockerCluster", path: spec, valid: validDockerCluster, fixed: fixedDockerCluster,
		spec: func(c *infrav1.DockerCluster) *infrav1.DockerClusterSpec { return &c.Spec },
	}
	dockerMachine = rules[*infrav1.DockerMachine, infrav1.DockerMachineSpec]{
		kind: "DockerMachine", path: spec, valid: validDockerMachine, fixed: fixedDockerMachine,
		spec: func(m *infrav1.DockerMachine) *infrav1.DockerMachineSpec { return &m.Spec },
	}
	dockerMachinePool = rules[*infrav1.DockerMachinePool, infrav1.DockerMachinePoolSpec]{
		kind: "DockerMachinePool", path: spec, valid: validDockerPool, fixed: fixedDockerPool,
		spec: func(p *infrav1.DockerMachinePool) *infrav1.DockerMachinePoolSpec { return &p.Spec },
	}
	outriggerCluster = rules[*infrav1.OutriggerCluster, infrav1.OutriggerClusterSpec]{
		kind: "OutriggerCluster", path: spec, valid: validOutriggerCluster, fixed: fixedOutriggerCluster,
		spec:        func(c *infrav1.OutriggerCluster) *infrav1.OutriggerClusterSpec { return &c.Spec },
		fixedObject: fixedProvider,
	}
	outriggerMachine = rules[*infrav1.OutriggerMachine, infrav1.OutriggerMachineSpec]{
		kind: "OutriggerMachine", path: spec, valid: validOutriggerMachine, fixed: fixedOutriggerMachine,
		spec: func(m *infrav1.OutriggerMachine) *infrav1.OutriggerMachineSpec { return &m.Spec },
	}

	dockerClusterTemplate = template("DockerClusterTemplate",
		func(t *infrav1.DockerClusterTemplate) *infrav1.DockerClusterSpec { return &t.Spec.Template.Spec },
		func(t *infrav1.DockerClusterTemplate) field.ErrorList {
			return t.Spec.Template.ObjectMeta.Validate(metadataPath)
		},
		validDockerCluster)
	dockerMachineTemplate = template("DockerMachineTemplate",
		func(t *infrav1.DockerMachineTemplate) *infrav1.DockerMachineSpec { return &t.Spec.Template.Spec },
		func(t *infrav1.DockerMachineTemplate) field.ErrorList {
			return t.Spec.Template.ObjectMeta.Validate(metadataPath)
		},
		validDockerMachineTemplate)
	dockerMachinePoolTemplate = template("DockerMachinePoolTemplate",
		func(t *infrav1.DockerMachinePoolTemplate) *infrav1.DockerMachinePoolSpec {
			return &t.Spec.Template.Spec
		},
		func(t *infrav1.DockerMachinePoolTemplate) field.ErrorList {
			return t.Spec.Template.ObjectMeta.Validate(metadataPath)
		},
		validDockerPoolTemplate)
	outriggerClusterTemplate = template("OutriggerClusterTemplate",
		func(t *infrav1.OutriggerClusterTemplate) *infrav1.OutriggerClusterSpec { return &t.Spec.Template.Spec },
		func(t *infrav1.OutriggerClusterTemplate) field.ErrorList {
			return t.Spec.Template.ObjectMeta.Validate(metadataPath)
		},
		validOutriggerCluster)
	outriggerMachineTemplate = template("OutriggerMachineTemplate",
		func(t *infrav1.OutriggerMachineTemplate) *infrav1.OutriggerMachineSpec { return &t.Spec.Template.Spec },
		func(t *infrav1.OutriggerMachineTemplate) field.ErrorList {
			return t.Spec.Template.ObjectMeta.Validate(metadataPath)
		},
		validOutriggerMachineTemplate)
)
