// SPDX-License-Identifier: Apache-2.0

package webhooks

import infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"

// The rules of each kind.
var (
	dockerCluster = rules[*infrav1.DockerCluster, infrav1.DockerClusterSpec]{
		valid: validDockerCluster, fixed: fixedDockerCluster,
	}
	dockerMachine = rules[*infrav1.DockerMachine, infrav1.DockerMachineSpec]{
		valid: validDockerMachine,
		fixed: keepsProviderID(func(s *infrav1.DockerMachineSpec) string { return s.ProviderID }),
	}
	dockerMachinePool = rules[*infrav1.DockerMachinePool, infrav1.DockerMachinePoolSpec]{
		valid: validDockerPool,
		fixed: keepsProviderID(func(s *infrav1.DockerMachinePoolSpec) string { return s.ProviderID }),
	}
	outriggerCluster = rules[*infrav1.OutriggerCluster, infrav1.OutriggerClusterSpec]{
		valid: validOutriggerCluster, fixed: fixedOutriggerCluster, fixedObject: fixedProvider,
	}
	outriggerMachine = rules[*infrav1.OutriggerMachine, infrav1.OutriggerMachineSpec]{
		valid: validOutriggerMachine,
		fixed: keepsProviderID(func(s *infrav1.OutriggerMachineSpec) string { return s.ProviderID }),
	}

	dockerClusterTemplate     = template[*infrav1.DockerClusterTemplate](validDockerCluster)
	dockerMachineTemplate     = template[*infrav1.DockerMachineTemplate](validDockerMachine)
	dockerMachinePoolTemplate = template[*infrav1.DockerMachinePoolTemplate](validDockerPool)
	outriggerClusterTemplate  = template[*infrav1.OutriggerClusterTemplate](validOutriggerCluster)
	outriggerMachineTemplate  = template[*infrav1.OutriggerMachineTemplate](validOutriggerMachine)
)
