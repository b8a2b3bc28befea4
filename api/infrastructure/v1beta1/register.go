// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is that of all kinds here.
var GroupVersion = schema.GroupVersion{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1"}

// AddToScheme registers the types.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&DockerCluster{}, &DockerClusterList{}, &DockerClusterTemplate{}, &DockerClusterTemplateList{},
		&DockerMachine{}, &DockerMachineList{}, &DockerMachineTemplate{}, &DockerMachineTemplateList{},
		&DockerMachinePool{}, &DockerMachinePoolList{}, &DockerMachinePoolTemplate{}, &DockerMachinePoolTemplateList{},
		&OutriggerCluster{}, &OutriggerClusterList{}, &OutriggerClusterTemplate{}, &OutriggerClusterTemplateList{},
		&OutriggerMachine{}, &OutriggerMachineList{}, &OutriggerMachineTemplate{}, &OutriggerMachineTemplateList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
