// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	infrav1alpha1 "github.com/outrigger/outrigger/api/infrastructure/v1alpha1"
	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

// The Docker kinds.
var (
	DockerCluster = Kind[infrav1.DockerCluster, infrav1alpha1.DockerCluster, *infrav1.DockerCluster, *infrav1alpha1.DockerCluster]{
		up: func(in *infrav1alpha1.DockerCluster, out *infrav1.DockerCluster) {
			dockerClusterSpecUp(&in.Spec, &out.Spec)
			clusterStatusUp(&in.Status.ClusterStatus, &out.Status.ClusterStatus)
		},
		down: func(in *infrav1.DockerCluster, out *infrav1alpha1.DockerCluster) {
			dockerClusterSpecDown(&in.Spec, &out.Spec)
			clusterStatusDown(&in.Status.ClusterStatus, &out.Status.ClusterStatus)
		},
		keep: func(out, before *infrav1.DockerCluster) {
			dockerClusterSpecKeep(&out.Spec, &before.Spec)
			clusterStatusKeep(&out.Status.ClusterStatus, &before.Status.ClusterStatus)
		},
	}

	DockerClusterTemplate = Kind[infrav1.DockerClusterTemplate, infrav1alpha1.DockerClusterTemplate, *infrav1.DockerClusterTemplate, *infrav1alpha1.DockerClusterTemplate]{
		up: func(in *infrav1alpha1.DockerClusterTemplate, out *infrav1.DockerClusterTemplate) {
			out.Spec.Template.ObjectMeta = in.Spec.Template.ObjectMeta
			dockerClusterSpecUp(&in.Spec.Template.Spec, &out.Spec.Template.Spec)
		},
		down: func(in *infrav1.DockerClusterTemplate, out *infrav1alpha1.DockerClusterTemplate) {
			out.Spec.Template.ObjectMeta = in.Spec.Template.ObjectMeta
			dockerClusterSpecDown(&in.Spec.Template.Spec, &out.Spec.Template.Spec)
		},
		keep: func(out, before *infrav1.DockerClusterTemplate) {
			dockerClusterSpecKeep(&out.Spec.Template.Spec, &before.Spec.Template.Spec)
		},
	}

	DockerMachine = Kind[infrav1.DockerMachine, infrav1alpha1.DockerMachine, *infrav1.DockerMachine, *infrav1alpha1.DockerMachine]{
		up: func(in *infrav1alpha1.DockerMachine, out *infrav1.DockerMachine) {
			machineSpecUp(&in.Spec.MachineSpec, &out.Spec.MachineSpec)
			dockerNodeUp(&in.Spec.DockerNodeSpec, &out.Spec.DockerNodeSpec)
			machineStatusUp(&in.Status.MachineStatus, in.Spec.FailureDomain, &out.Status.MachineStatus)
		},
		down: func(in *infrav1.DockerMachine, out *infrav1alpha1.DockerMachine) {
			machineSpecDown(&in.Spec.MachineSpec, &out.Spec.MachineSpec)
			dockerNodeDown(&in.Spec.DockerNodeSpec, &out.Spec.DockerNodeSpec)
			out.Spec.FailureDomain = machineStatusDown(&in.Status.MachineStatus, &out.Status.MachineStatus)
		},
		keep: func(out, before *infrav1.DockerMachine) {
			dockerNodeKeep(&out.Spec.DockerNodeSpec, &before.Spec.DockerNodeSpec)
			machineStatusKeep(&out.Status.MachineStatus, &before.Status.MachineStatus)
		},
	}

	// The failure domain of a template means nothing: it is the machine's status.
	DockerMachineTemplate = Kind[infrav1.DockerMachineTemplate, infrav1alpha1.DockerMachineTemplate, *infrav1.DockerMachineTemplate, *infrav1alpha1.DockerMachineTemplate]{
		up: func(in *infrav1alpha1.DockerMachineTemplate, out *infrav1.DockerMachineTemplate) {
			out.Spec.Template.ObjectMeta = in.Spec.Template.ObjectMeta
			machineSpecUp(&in.Spec.Template.Spec.MachineSpec, &out.Spec.Template.Spec.MachineSpec)
			dockerNodeUp(&in.Spec.Template.Spec.DockerNodeSpec, &out.Spec.Template.Spec.DockerNodeSpec)
			templateStatusUp(&in.Status, &out.Status)
		},
		down: func(in *infrav1.DockerMachineTemplate, out *infrav1alpha1.DockerMachineTemplate) {
			out.Spec.Template.ObjectMeta = in.Spec.Template.ObjectMeta
			machineSpecDown(&in.Spec.Template.Spec.MachineSpec, &out.Spec.Template.Spec.MachineSpec)
			dockerNodeDown(&in.Spec.Template.Spec.DockerNodeSpec, &out.Spec.Template.Spec.DockerNodeSpec)
			templateStatusDown(&in.Status, &out.Status)
		},
		keep: func(out, before *infrav1.DockerMachineTemplate) {
			dockerNodeKeep(&out.Spec.Template.Spec.DockerNodeSpec, &before.Spec.Template.Spec.DockerNodeSpec)
		},
	}

	DockerMachinePool = Kind[infrav1.DockerMachinePool, infrav1alpha1.DockerMachinePool, *infrav1.DockerMachinePool, *infrav1alpha1.DockerMachinePool]{
		up: func(in *infrav1alpha1.DockerMachinePool, out *infrav1.DockerMachinePool) {
			dockerPoolSpecUp(&in.Spec, &out.Spec)
			poolStatusUp(&in.Status.PoolStatus, &out.Status.PoolStatus)
		},
		down: func(in *infrav1.DockerMachinePool, out *infrav1alpha1.DockerMachinePool) {
			dockerPoolSpecDown(&in.Spec, &out.Spec)
			poolStatusDown(&in.Status.PoolStatus, &out.Status.PoolStatus)
		},
		keep: func(out, before *infrav1.DockerMachinePool) {
			dockerNodeKeep(&out.Spec.Template, &before.Spec.Template)
			poolStatusKeep(&out.Status.PoolStatus, &before.Status.PoolStatus)
		},
	}

	DockerMachinePoolTemplate = Kind[infrav1.DockerMachinePoolTemplate, infrav1alpha1.DockerMachinePoolTemplate, *infrav1.DockerMachinePoolTemplate, *infrav1alpha1.DockerMachinePoolTemplate]{
		up: func(in *infrav1alpha1.DockerMachinePoolTemplate, out *infrav1.DockerMachinePoolTemplate) {
			out.Spec.Template.ObjectMeta = in.Spec.Template.ObjectMeta
			dockerPoolSpecUp(&in.Spec.Template.Spec, &out.Spec.Template.Spec)
		},
		down: func(in *infrav1.DockerMachinePoolTemplate, out *infrav1alpha1.DockerMachinePoolTemplate) {
			out.Spec.Template.ObjectMeta = in.Spec.Template.ObjectMeta
			dockerPoolSpecDown(&in.Spec.Template.Spec, &out.Spec.Template.Spec)
		},
		keep: func(out, before *infrav1.DockerMachinePoolTemplate) {
			dockerNodeKeep(&out.Spec.Template.Spec.Template, &before.Spec.Template.Spec.Template)
		},
	}
)

func dockerClusterSpecUp(in *infrav1alpha1.DockerClusterSpec, out *infrav1.DockerClusterSpec) {
	clusterSpecUp(&in.ClusterSpec, &out.ClusterSpec)
	out.FailureDomains, out.LoadbalancerImage = failureDomainsUp(in.FailureDomains), in.LoadbalancerImage
	lb := in.LoadBalancer
	out.LoadBalancer = infrav1.DockerLoadBalancer{ImageRepository: lb.ImageRepository, ImageTag: lb.ImageTag,
		CustomHAProxyConfigTemplateRef: infrav1.ConfigMapReference(lb.CustomHAProxyConfigTemplateRef)}
}

func dockerClusterSpecDown(in *infrav1.DockerClusterSpec, out *infrav1alpha1.DockerClusterSpec) {
	clusterSpecDown(&in.ClusterSpec, &out.ClusterSpec)
	out.FailureDomains, out.LoadbalancerImage = failureDomainsDown(in.FailureDomains), in.LoadbalancerImage
	lb := in.LoadBalancer
	out.LoadBalancer = infrav1alpha1.DockerLoadBalancer{ImageRepository: lb.ImageRepository, ImageTag: lb.ImageTag,
		CustomHAProxyConfigTemplateRef: infrav1alpha1.ConfigMapReference(lb.CustomHAProxyConfigTemplateRef)}
}

func dockerClusterSpecKeep(out, before *infrav1.DockerClusterSpec) {
	out.DisableLoadBalancer, out.Subnet = before.DisableLoadBalancer, before.Subnet
}

func dockerNodeUp(in *infrav1alpha1.DockerNodeSpec, out *infrav1.DockerNodeSpec) {
	out.CustomImage, out.PreLoadImages, out.BootstrapTimeout = in.CustomImage, in.PreLoadImages, in.BootstrapTimeout
	out.ExtraMounts = each(in.ExtraMounts, func(m infrav1alpha1.Mount) infrav1.Mount { return infrav1.Mount(m) })
}

func dockerNodeDown(in *infrav1.DockerNodeSpec, out *infrav1alpha1.DockerNodeSpec) {
	out.CustomImage, out.PreLoadImages, out.BootstrapTimeout = in.CustomImage, in.PreLoadImages, in.BootstrapTimeout
	out.ExtraMounts = each(in.ExtraMounts, func(m infrav1.Mount) infrav1alpha1.Mount { return infrav1alpha1.Mount(m) })
}

func dockerNodeKeep(out, before *infrav1.DockerNodeSpec) {
	out.Resources = before.Resources
}

func dockerPoolSpecUp(in *infrav1alpha1.DockerMachinePoolSpec, out *infrav1.DockerMachinePoolSpec) {
	poolSpecUp(&in.PoolSpec, &out.PoolSpec)
	dockerNodeUp(&in.Template, &out.Template)
}

func dockerPoolSpecDown(in *infrav1.DockerMachinePoolSpec, out *infrav1alpha1.DockerMachinePoolSpec) {
	poolSpecDown(&in.PoolSpec, &out.PoolSpec)
	dockerNodeDown(&in.Template, &out.Template)
}
