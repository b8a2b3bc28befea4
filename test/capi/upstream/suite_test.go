// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cluster-api/test/e2e"
	"sigs.k8s.io/cluster-api/test/framework"
	"sigs.k8s.io/cluster-api/test/framework/clusterctl"
	ctrl "sigs.k8s.io/controller-runtime"
)

var (
	ctx = context.Background()
	// management is the cluster with the providers.
	management framework.ClusterProxy
	// repository is the configuration of clusterctl.
	repository = os.Getenv("UPSTREAM_CLUSTERCTL_CONFIG")
	artifacts  = os.Getenv("UPSTREAM_ARTIFACTS")
	// infrastructure is our provider's name at clusterctl.
	infrastructure = "outrigger"
	config         *clusterctl.E2EConfig
	// ports are free ones of the loopback address for endpoints of control planes.
	ports = strings.Fields(os.Getenv("UPSTREAM_PORTS"))
)

func TestSpecifications(t *testing.T) {
	kubeconfig := os.Getenv("UPSTREAM_KUBECONFIG")
	if kubeconfig == "" {
		t.Skip("it needs a management cluster; run: make test-capi-upstream")
	}
	RegisterFailHandler(Fail)
	ctrl.SetLogger(GinkgoLogr)
	scheme := runtime.NewScheme()
	framework.TryAddDefaultSchemes(scheme)
	management = framework.NewClusterProxy("management", kubeconfig, scheme)
	config = &clusterctl.E2EConfig{
		Variables: map[string]string{
			e2e.KubernetesVersion:            os.Getenv("UPSTREAM_VERSION"),
			e2e.KubernetesVersionUpgradeFrom: os.Getenv("UPSTREAM_VERSION"),
			e2e.KubernetesVersionUpgradeTo:   os.Getenv("UPSTREAM_VERSION_TO"),
		},
		Intervals: intervals(),
	}
	RunSpecs(t, "Cluster API's specifications")
}

// intervals are how long the specifications wait for what, and how often they look.
func intervals() map[string][]string {
	all := map[string][]string{
		"default/wait-resource-versions-become-stable": {"2m", "2s"},
		"default/wait-resource-versions-remain-stable": {"30s", "5s"},
		"default/check-machines-stable":                {"10s", "1s"},
	}
	for _, what := range []string{
		"cluster", "control-plane", "control-plane-upgrade", "controllers", "delete-cluster", "deployment-available", "machine-deleted",
		"machine-deployment-upgrade", "machine-pool-nodes", "machine-pool-upgrade", "machine-provisioned", "machine-remediation",
		"machine-upgrade", "machines", "nodes-ready", "worker-nodes",
	} {
		all["default/wait-"+what] = []string{"10m", "500ms"}
	}
	return all
}

// endpoint gives the cluster that is made next an endpoint of its own.
func endpoint() {
	Expect(ports).ToNot(BeEmpty(), "UPSTREAM_PORTS has too few ports")
	Expect(os.Setenv("CONTROL_PLANE_ENDPOINT_PORT", ports[0])).To(Succeed())
	ports = ports[1:]
}
