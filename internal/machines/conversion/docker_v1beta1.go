// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	infrav1alpha1 "github.com/outrigger/outrigger/api/infrastructure/v1alpha1"
	infrav1beta1 "github.com/outrigger/outrigger/api/infrastructure/v1beta1"
	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

// The Docker kinds in v1beta1, which have the shape of v1alpha1.
var (
	DockerClusterV1Beta1 = Kind[infrav1.DockerCluster, infrav1beta1.DockerCluster, *infrav1.DockerCluster, *infrav1beta1.DockerCluster]{
		up: func(in *infrav1beta1.DockerCluster, out *infrav1.DockerCluster) {
			DockerCluster.up((*infrav1alpha1.DockerCluster)(in), out)
		},
		down: func(in *infrav1.DockerCluster, out *infrav1beta1.DockerCluster) {
			DockerCluster.down(in, (*infrav1alpha1.DockerCluster)(out))
		},
		keep: DockerCluster.keep,
	}
	DockerClusterTemplateV1Beta1 = Kind[infrav1.DockerClusterTemplate, infrav1beta1.DockerClusterTemplate, *infrav1.DockerClusterTemplate, *infrav1beta1.DockerClusterTemplate]{
		up: func(in *infrav1beta1.DockerClusterTemplate, out *infrav1.DockerClusterTemplate) {
			DockerClusterTemplate.up((*infrav1alpha1.DockerClusterTemplate)(in), out)
		},
		down: func(in *infrav1.DockerClusterTemplate, out *infrav1beta1.DockerClusterTemplate) {
			DockerClusterTemplate.down(in, (*infrav1alpha1.DockerClusterTemplate)(out))
		},
		keep: DockerClusterTemplate.keep,
	}
	DockerMachineV1Beta1 = Kind[infrav1.DockerMachine, infrav1beta1.DockerMachine, *infrav1.DockerMachine, *infrav1beta1.DockerMachine]{
		up: func(in *infrav1beta1.DockerMachine, out *infrav1.DockerMachine) {
			DockerMachine.up((*infrav1alpha1.DockerMachine)(in), out)
		},
		down: func(in *infrav1.DockerMachine, out *infrav1beta1.DockerMachine) {
			DockerMachine.down(in, (*infrav1alpha1.DockerMachine)(out))
		},
		keep: DockerMachine.keep,
	}
	DockerMachineTemplateV1Beta1 = Kind[infrav1.DockerMachineTemplate, infrav1beta1.DockerMachineTemplate, *infrav1.DockerMachineTemplate, *infrav1beta1.DockerMachineTemplate]{
		up: func(in *infrav1beta1.DockerMachineTemplate, out *infrav1.DockerMachineTemplate) {
			DockerMachineTemplate.up((*infrav1alpha1.DockerMachineTemplate)(in), out)
		},
		down: func(in *infrav1.DockerMachineTemplate, out *infrav1beta1.DockerMachineTemplate) {
			DockerMachineTemplate.down(in, (*infrav1alpha1.DockerMachineTemplate)(out))
		},
		keep: DockerMachineTemplate.keep,
	}
	DockerMachinePoolV1Beta1 = Kind[infrav1.DockerMachinePool, infrav1beta1.DockerMachinePool, *infrav1.DockerMachinePool, *infrav1beta1.DockerMachinePool]{
		up: func(in *infrav1beta1.DockerMachinePool, out *infrav1.DockerMachinePool) {
			DockerMachinePool.up((*infrav1alpha1.DockerMachinePool)(in), out)
		},
		down: func(in *infrav1.DockerMachinePool, out *infrav1beta1.DockerMachinePool) {
			DockerMachinePool.down(in, (*infrav1alpha1.DockerMachinePool)(out))
		},
		keep: DockerMachinePool.keep,
	}
	DockerMachinePoolTemplateV1Beta1 = Kind[infrav1.DockerMachinePoolTemplate, infrav1beta1.DockerMachinePoolTemplate, *infrav1.DockerMachinePoolTemplate, *infrav1beta1.DockerMachinePoolTemplate]{
		up: func(in *infrav1beta1.DockerMachinePoolTemplate, out *infrav1.DockerMachinePoolTemplate) {
			DockerMachinePoolTemplate.up((*infrav1alpha1.DockerMachinePoolTemplate)(in), out)
		},
		down: func(in *infrav1.DockerMachinePoolTemplate, out *infrav1beta1.DockerMachinePoolTemplate) {
			DockerMachinePoolTemplate.down(in, (*infrav1alpha1.DockerMachinePoolTemplate)(out))
		},
		keep: DockerMachinePoolTemplate.keep,
	}
)
