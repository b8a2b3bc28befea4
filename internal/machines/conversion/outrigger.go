// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	infrav1alpha1 "github.com/outrigger/outrigger/api/infrastructure/v1alpha1"
	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

// The Outrigger kinds.
var (
	OutriggerCluster = Kind[infrav1.OutriggerCluster, infrav1alpha1.OutriggerCluster, *infrav1.OutriggerCluster, *infrav1alpha1.OutriggerCluster]{
		up: func(in *infrav1alpha1.OutriggerCluster, out *infrav1.OutriggerCluster) {
			outriggerClusterSpecUp(&in.Spec, &out.Spec)
			clusterStatusUp(&in.Status.ClusterStatus, &out.Status.ClusterStatus)
		},
		down: func(in *infrav1.OutriggerCluster, out *infrav1alpha1.OutriggerCluster) {
			outriggerClusterSpecDown(&in.Spec, &out.Spec)
			clusterStatusDown(&in.Status.ClusterStatus, &out.Status.ClusterStatus)
		},
		keep: func(out, before *infrav1.OutriggerCluster) {
			clusterStatusKeep(&out.Status.ClusterStatus, &before.Status.ClusterStatus)
		},
	}

	OutriggerClusterTemplate = Kind[infrav1.OutriggerClusterTemplate, infrav1alpha1.OutriggerClusterTemplate, *infrav1.OutriggerClusterTemplate, *infrav1alpha1.OutriggerClusterTemplate]{
		up: func(in *infrav1alpha1.OutriggerClusterTemplate, out *infrav1.OutriggerClusterTemplate) {
			out.Spec.Template.ObjectMeta = in.Spec.Template.ObjectMeta
			outriggerClusterSpecUp(&in.Spec.Template.Spec, &out.Spec.Template.Spec)
		},
		down: func(in *infrav1.OutriggerClusterTemplate, out *infrav1alpha1.OutriggerClusterTemplate) {
			out.Spec.Template.ObjectMeta = in.Spec.Template.ObjectMeta
			outriggerClusterSpecDown(&in.Spec.Template.Spec, &out.Spec.Template.Spec)
		},
		keep: func(_, _ *infrav1.OutriggerClusterTemplate) {},
	}

	OutriggerMachine = Kind[infrav1.OutriggerMachine, infrav1alpha1.OutriggerMachine, *infrav1.OutriggerMachine, *infrav1alpha1.OutriggerMachine]{
		up: func(in *infrav1alpha1.OutriggerMachine, out *infrav1.OutriggerMachine) {
			outriggerMachineSpecUp(&in.Spec, &out.Spec)
			machineStatusUp(&in.Status.MachineStatus, in.Spec.FailureDomain, &out.Status.MachineStatus)
		},
		down: func(in *infrav1.OutriggerMachine, out *infrav1alpha1.OutriggerMachine) {
			outriggerMachineSpecDown(&in.Spec, &out.Spec)
			out.Spec.FailureDomain = machineStatusDown(&in.Status.MachineStatus, &out.Status.MachineStatus)
		},
		keep: func(out, before *infrav1.OutriggerMachine) {
			machineStatusKeep(&out.Status.MachineStatus, &before.Status.MachineStatus)
		},
	}

	OutriggerMachineTemplate = Kind[infrav1.OutriggerMachineTemplate, infrav1alpha1.OutriggerMachineTemplate, *infrav1.OutriggerMachineTemplate, *infrav1alpha1.OutriggerMachineTemplate]{
		up: func(in *infrav1alpha1.OutriggerMachineTemplate, out *infrav1.OutriggerMachineTemplate) {
			out.Spec.Template.ObjectMeta = in.Spec.Template.ObjectMeta
			outriggerMachineSpecUp(&in.Spec.Template.Spec, &out.Spec.Template.Spec)
			templateStatusUp(&in.Status, &out.Status)
		},
		down: func(in *infrav1.OutriggerMachineTemplate, out *infrav1alpha1.OutriggerMachineTemplate) {
			out.Spec.Template.ObjectMeta = in.Spec.Template.ObjectMeta
			outriggerMachineSpecDown(&in.Spec.Template.Spec, &out.Spec.Template.Spec)
			templateStatusDown(&in.Status, &out.Status)
		},
		keep: func(_, _ *infrav1.OutriggerMachineTemplate) {},
	}
)

func outriggerClusterSpecUp(in *infrav1alpha1.OutriggerClusterSpec, out *infrav1.OutriggerClusterSpec) {
	clusterSpecUp(&in.ClusterSpec, &out.ClusterSpec)
	out.Provider = in.Provider
	out.FailureDomains = failureDomainsUp(in.FailureDomains)
}

func outriggerClusterSpecDown(in *infrav1.OutriggerClusterSpec, out *infrav1alpha1.OutriggerClusterSpec) {
	clusterSpecDown(&in.ClusterSpec, &out.ClusterSpec)
	out.Provider = in.Provider
	out.FailureDomains = failureDomainsDown(in.FailureDomains)
}

func outriggerMachineSpecUp(in *infrav1alpha1.OutriggerMachineSpec, out *infrav1.OutriggerMachineSpec) {
	machineSpecUp(&in.MachineSpec, &out.MachineSpec)
	out.InstanceType, out.Image, out.Arch, out.Tags = in.InstanceType, in.Image, in.Arch, in.Tags
	out.VCPUs, out.Memory, out.GPUs = in.VCPUs, in.Memory, in.GPUs
}

func outriggerMachineSpecDown(in *infrav1.OutriggerMachineSpec, out *infrav1alpha1.OutriggerMachineSpec) {
	machineSpecDown(&in.MachineSpec, &out.MachineSpec)
	out.InstanceType, out.Image, out.Arch, out.Tags = in.InstanceType, in.Image, in.Arch, in.Tags
	out.VCPUs, out.Memory, out.GPUs = in.VCPUs, in.Memory, in.GPUs
}
