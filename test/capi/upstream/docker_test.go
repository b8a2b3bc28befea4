// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	. "github.com/onsi/ginkgo/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/test/e2e"
)

// The flavors of our release for Docker machines, of which the first has no name, and
// those that the test adds to it.
const (
	dockerPlain       = ""
	dockerByClass     = "topology"
	dockerPool        = "machinepool"
	dockerIgnition    = "ignition"
	dockerRemediation = "kcp-remediation"
	dockerDrain       = "node-drain"
	dockerOldNodes    = "old-nodes"
)

var _ = Describe("quick start on Docker", Label("docker-quick-start"), func() {
	e2e.QuickStartSpec(ctx, func() e2e.QuickStartSpecInput {
		return e2e.QuickStartSpecInput{
			E2EConfig: config, ClusterctlConfigPath: repository, BootstrapClusterProxy: management, ArtifactFolder: artifacts,
			InfrastructureProvider: &infrastructure, Flavor: ptr.To(dockerPlain), PostMachinesProvisioned: resilient(ofDocker, false),
		}
	})
})

var _ = Describe("quick start on Docker with a ClusterClass", Label("docker-quick-start-class"), func() {
	e2e.QuickStartSpec(ctx, func() e2e.QuickStartSpecInput {
		return e2e.QuickStartSpecInput{
			E2EConfig: config, ClusterctlConfigPath: repository, BootstrapClusterProxy: management, ArtifactFolder: artifacts,
			InfrastructureProvider: &infrastructure, Flavor: ptr.To(dockerByClass), PostMachinesProvisioned: resilient(ofDocker, true),
		}
	})
})

var _ = Describe("scale of a MachineDeployment on Docker", Label("docker-machinedeployment-scale"), func() {
	e2e.MachineDeploymentScaleSpec(ctx, func() e2e.MachineDeploymentScaleSpecInput {
		return e2e.MachineDeploymentScaleSpecInput{
			E2EConfig: config, ClusterctlConfigPath: repository, BootstrapClusterProxy: management, ArtifactFolder: artifacts,
			InfrastructureProvider: &infrastructure, Flavor: dockerPlain,
		}
	})
})

var _ = Describe("machine pools on Docker", Label("docker-machine-pool"), func() {
	e2e.MachinePoolSpec(ctx, func() e2e.MachinePoolInput {
		return e2e.MachinePoolInput{
			E2EConfig: config, ClusterctlConfigPath: repository, BootstrapClusterProxy: management, ArtifactFolder: artifacts,
			InfrastructureProvider: &infrastructure, Flavor: ptr.To(dockerPool),
		}
	})
})

var _ = Describe("quick start on Docker with Ignition", Label("docker-quick-start-ignition"), func() {
	e2e.QuickStartSpec(ctx, func() e2e.QuickStartSpecInput {
		return e2e.QuickStartSpecInput{
			E2EConfig: config, ClusterctlConfigPath: repository, BootstrapClusterProxy: management, ArtifactFolder: artifacts,
			InfrastructureProvider: &infrastructure, Flavor: ptr.To(dockerIgnition),
		}
	})
})

var _ = Describe("remediation of a control plane on Docker", Label("docker-kcp-remediation"), func() {
	e2e.KCPRemediationSpec(ctx, func() e2e.KCPRemediationSpecInput {
		return e2e.KCPRemediationSpecInput{
			E2EConfig: config, ClusterctlConfigPath: repository, BootstrapClusterProxy: management, ArtifactFolder: artifacts,
			InfrastructureProvider: &infrastructure, Flavor: ptr.To(dockerRemediation),
		}
	})
})

var _ = Describe("drain of nodes on Docker", Label("docker-node-drain"), func() {
	e2e.NodeDrainTimeoutSpec(ctx, func() e2e.NodeDrainTimeoutSpecInput {
		return e2e.NodeDrainTimeoutSpecInput{
			E2EConfig: config, ClusterctlConfigPath: repository, BootstrapClusterProxy: management, ArtifactFolder: artifacts,
			InfrastructureProvider: &infrastructure, Flavor: ptr.To(dockerDrain),
		}
	})
})

var _ = Describe("upgrade on Docker by its ClusterClass", Label("docker-cluster-upgrade"), upgradeOf(dockerByClass, 1, noEndpoint))

var _ = Describe("upgrade on Docker with a control plane of three", Label("docker-cluster-upgrade-three"), upgradeOf(dockerByClass, 3, noEndpoint))

var _ = Describe("upgrade on Docker with a control plane of three that scales in first", Label("docker-cluster-upgrade-scale-in"),
	upgradeOf(scaleIn, 3, noEndpoint))

// noEndpoint: a DockerCluster chooses its own.
func noEndpoint() {}

var _ = Describe("a worker that joins with an older kubeadm", Label("docker-kubeadm-join-old-nodes"), func() {
	e2e.KubeadmJoinOldNodesSpec(ctx, func() e2e.KubeadmJoinOldNodesSpecInput {
		return e2e.KubeadmJoinOldNodesSpecInput{
			E2EConfig: config, ClusterctlConfigPath: repository, BootstrapClusterProxy: management, ArtifactFolder: artifacts,
			InfrastructureProvider: &infrastructure, Flavor: dockerOldNodes,
		}
	})
})
