// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"maps"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/test/e2e"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The flavors of our release, and others that the test adds to it.
const (
	plain       = "outrigger"
	byClass     = "outrigger-topology"
	remediation = "md-remediation"
	upgrade     = "upgrade"
	scaleIn     = "scale-in"
	taints      = "taints"
	rollout     = "rollout"
	noWorkers   = "no-workers"
	older       = "older"
	adoption    = "kcp-adoption"
)

var _ = Describe("quick start", Label("quick-start"), func() {
	e2e.QuickStartSpec(ctx, func() e2e.QuickStartSpecInput {
		endpoint()
		return e2e.QuickStartSpecInput{
			E2EConfig: config, ClusterctlConfigPath: repository, BootstrapClusterProxy: management, ArtifactFolder: artifacts,
			InfrastructureProvider: &infrastructure, Flavor: ptr.To(plain), PostMachinesProvisioned: resilient(ofProviders, false),
		}
	})
})

var _ = Describe("quick start with a ClusterClass", Label("quick-start-class"), func() {
	e2e.QuickStartSpec(ctx, func() e2e.QuickStartSpecInput {
		endpoint()
		return e2e.QuickStartSpecInput{
			E2EConfig: config, ClusterctlConfigPath: repository, BootstrapClusterProxy: management, ArtifactFolder: artifacts,
			InfrastructureProvider: &infrastructure, Flavor: ptr.To(byClass), PostMachinesProvisioned: resilient(ofProviders, true),
		}
	})
})

var _ = Describe("quick start with a ClusterClass of another namespace", Label("quick-start-class-elsewhere"), func() {
	e2e.QuickStartSpec(ctx, func() e2e.QuickStartSpecInput {
		endpoint()
		return e2e.QuickStartSpecInput{
			E2EConfig: config, ClusterctlConfigPath: repository, BootstrapClusterProxy: management, ArtifactFolder: artifacts,
			InfrastructureProvider: &infrastructure, Flavor: ptr.To(byClass), DeployClusterClassInSeparateNamespace: true,
		}
	})
})

var _ = Describe("scale of a MachineDeployment", Label("machinedeployment-scale"), func() {
	e2e.MachineDeploymentScaleSpec(ctx, func() e2e.MachineDeploymentScaleSpecInput {
		endpoint()
		return e2e.MachineDeploymentScaleSpecInput{
			E2EConfig: config, ClusterctlConfigPath: repository, BootstrapClusterProxy: management, ArtifactFolder: artifacts,
			InfrastructureProvider: &infrastructure, Flavor: plain,
		}
	})
})

var _ = Describe("remediation of a MachineDeployment", Label("machinedeployment-remediation"), func() {
	e2e.MachineDeploymentRemediationSpec(ctx, func() e2e.MachineDeploymentRemediationSpecInput {
		endpoint()
		return e2e.MachineDeploymentRemediationSpecInput{
			E2EConfig: config, ClusterctlConfigPath: repository, BootstrapClusterProxy: management, ArtifactFolder: artifacts,
			InfrastructureProvider: &infrastructure, Flavor: ptr.To(remediation),
		}
	})
})

var _ = Describe("changes of a ClusterClass", Label("clusterclass-changes"), func() {
	e2e.ClusterClassChangesSpec(ctx, func() e2e.ClusterClassChangesSpecInput {
		endpoint()
		return e2e.ClusterClassChangesSpecInput{
			E2EConfig: config, ClusterctlConfigPath: repository, BootstrapClusterProxy: management, ArtifactFolder: artifacts,
			InfrastructureProvider: &infrastructure, Flavor: byClass,
			ModifyControlPlaneFields:                                   map[string]any{"spec.kubeadmConfigSpec.verbosity": int64(4)},
			ModifyMachineDeploymentBootstrapConfigTemplateFields:       map[string]any{"spec.template.spec.verbosity": int64(4)},
			ModifyMachineDeploymentInfrastructureMachineTemplateFields: map[string]any{"spec.template.spec.gpus": int64(1)},
		}
	})
})

var _ = Describe("upgrade of a cluster by its ClusterClass", Label("cluster-upgrade"), upgradeOf(upgrade, 1, endpoint))

var _ = Describe("phases of a deletion", Label("cluster-deletion"), func() {
	e2e.ClusterDeletionSpec(ctx, func() e2e.ClusterDeletionSpecInput {
		endpoint()
		return e2e.ClusterDeletionSpecInput{
			E2EConfig: config, ClusterctlConfigPath: repository, BootstrapClusterProxy: management, ArtifactFolder: artifacts,
			InfrastructureProvider: &infrastructure, Flavor: ptr.To(byClass), ControlPlaneMachineCount: ptr.To[int64](3),
			// First the workers go, then the control plane, then the infrastructure; what
			// blocks keeps its phase from ending.
			ClusterDeletionPhases: []e2e.ClusterDeletionPhase{
				{ObjectFilter: either(machineOf("MachineDeployment", "MachineSet"), kind("MachineDeployment", "MachineSet")), BlockingObjectFilter: kind("Machine")},
				{ObjectFilter: either(machineOf("KubeadmControlPlane"), kind("KubeadmControlPlane")), BlockingObjectFilter: kind("Machine")},
				{ObjectFilter: kind("OutriggerCluster"), BlockingObjectFilter: kind("OutriggerCluster")},
			},
		}
	})
})

var _ = Describe("quick start with a ClusterClass without workers", Label("quick-start-no-workers"), func() {
	e2e.QuickStartSpec(ctx, func() e2e.QuickStartSpecInput {
		endpoint()
		return e2e.QuickStartSpecInput{
			E2EConfig: config, ClusterctlConfigPath: repository, BootstrapClusterProxy: management, ArtifactFolder: artifacts,
			InfrastructureProvider: &infrastructure, Flavor: ptr.To(noWorkers), WorkerMachineCount: ptr.To[int64](0),
		}
	})
})

var _ = Describe("quick start with a ClusterClass in v1beta1", Label("quick-start-class-v1beta1"), func() {
	e2e.QuickStartSpec(ctx, func() e2e.QuickStartSpecInput {
		endpoint()
		return e2e.QuickStartSpecInput{
			E2EConfig: config, ClusterctlConfigPath: repository, BootstrapClusterProxy: management, ArtifactFolder: artifacts,
			InfrastructureProvider: &infrastructure, Flavor: ptr.To(older), PostMachinesProvisioned: stable,
		}
	})
})

var _ = Describe("rollout with Machine taints", Label("kcp-md-rollout"), func() {
	e2e.KCPAndMachineDeploymentRolloutSpec(ctx, func() e2e.KCPAndMachineDeploymentRolloutSpecInput {
		endpoint()
		return e2e.KCPAndMachineDeploymentRolloutSpecInput{
			E2EConfig: config, ClusterctlConfigPath: repository, BootstrapClusterProxy: management, ArtifactFolder: artifacts,
			InfrastructureProvider: &infrastructure, Flavor: taints,
		}
	})
})

var _ = Describe("rollout of a ClusterClass", Label("clusterclass-rollout"), func() {
	e2e.ClusterClassRolloutSpec(ctx, func() e2e.ClusterClassRolloutSpecInput {
		endpoint()
		return e2e.ClusterClassRolloutSpecInput{
			E2EConfig: config, ClusterctlConfigPath: repository, BootstrapClusterProxy: management, ArtifactFolder: artifacts,
			InfrastructureProvider: &infrastructure, Flavor: rollout, FilterMetadataBeforeValidation: withoutIdentity,
		}
	})
})

// withoutIdentity leaves out the annotations that our controllers make.
func withoutIdentity(o client.Object) clusterv1.ObjectMeta {
	annotations := maps.Clone(o.GetAnnotations())
	maps.DeleteFunc(annotations, func(name, _ string) bool { return strings.HasPrefix(name, identityPrefix) })
	return clusterv1.ObjectMeta{Labels: o.GetLabels(), Annotations: annotations}
}

var _ = Describe("upgrade with a control plane of three", Label("cluster-upgrade-three"), upgradeOf(upgrade, 3, endpoint))

var _ = Describe("upgrade with a control plane of three that scales in first", Label("cluster-upgrade-scale-in"), upgradeOf(scaleIn, 3, endpoint))

func upgradeOf(flavor string, controlPlanes int64, prepare func()) func() {
	return func() {
		e2e.ClusterUpgradeConformanceSpec(ctx, func() e2e.ClusterUpgradeConformanceSpecInput {
			prepare()
			return e2e.ClusterUpgradeConformanceSpecInput{
				E2EConfig: config, ClusterctlConfigPath: repository, BootstrapClusterProxy: management, ArtifactFolder: artifacts,
				InfrastructureProvider: &infrastructure, Flavor: ptr.To(flavor), SkipConformanceTests: true,
				ControlPlaneMachineCount: ptr.To(controlPlanes), WorkerMachineCount: ptr.To[int64](1),
			}
		})
	}
}

type filter = func(corev1.ObjectReference, []metav1.OwnerReference) bool

func kind(names ...string) filter {
	return func(o corev1.ObjectReference, _ []metav1.OwnerReference) bool { return has(names, o.Kind) }
}

func machineOf(owners ...string) filter {
	return func(o corev1.ObjectReference, of []metav1.OwnerReference) bool {
		for _, owner := range of {
			if o.Kind == "Machine" && has(owners, owner.Kind) {
				return true
			}
		}
		return false
	}
}

func either(a, b filter) filter {
	return func(o corev1.ObjectReference, of []metav1.OwnerReference) bool { return a(o, of) || b(o, of) }
}
