// SPDX-License-Identifier: Apache-2.0

//go:build integration

package conformance_test

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"testing"

	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/test/capi"
	"github.com/outrigger/outrigger/test/dockerd"
	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
	"github.com/outrigger/outrigger/test/tier"
)

// outside are checks of each kind for machines that take their time.
var outside = []string{
	"machine-once", "machine-same-names", "machine-quiet", "pause-machine-outside", "delete-machine-while-made", "delete-machine-orphan",
	"delete-cluster-all", "move-same-machine", "status-lost", "restart-while-made", "restart-deleting", "machine-failure-delete", "watch-filter-machine",
}

// needy are checks that need a look outside, or a restart.
var needy = []string{
	"machine-once", "pause-machine-outside", "delete-machine-while-made", "delete-machine-other", "move-same-machine",
	"restart-waiting", "restart-while-made", "restart-provisioned", "restart-deleting",
}

// ours is a management cluster with our provider installed, and no core: the
// kit plays it.
func ours(t *testing.T) (m *capi.Management, release string) {
	t.Helper()
	testns.RequireRoot(t)
	r := capi.NewRepository(t)
	r.Release(t, "v0.1.0")
	m = capi.Start(t, r)
	definitions(t, m, "--core", "cluster-api")
	m.Apply(t, m.Clusterctl(t, "generate", "provider", "--infrastructure", capi.Name))
	m.Kubectl(t, "wait", "--for=condition=Established", "crd", "--all", "--timeout=180s")
	return m, r.Folder("v0.1.0")
}

const outriggerObjects = `
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: OutriggerCluster
spec:
  controlPlaneEndpoint: {host: 192.0.2.1, port: 6443}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: OutriggerClusterTemplate
spec: {template: {spec: {}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: OutriggerMachineTemplate
spec: {template: {spec: {vcpus: 1}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: OutriggerMachineTemplate
spec: {template: {spec: {vcpus: 2}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: OutriggerMachine
metadata: {annotations: {capi-conformance.outrigger.dev/role: failing-machine}}
spec: {image: none}
`

// skipped are the checks that need failure domains or pools, which those objects
// have not, and one for other API groups.
var skipped = []string{
	"cluster-failure-domains", "machine-failure-domain", "older-contract-domains", "core-permissions",
	"pool-fields", "pool-provisioned", "pool-ready", "pool-scale", "pool-quiet", "pool-pause", "pool-delete",
}

// quick has the manager look at clouds often; filter is that of kitFor.
var quick = []string{"--observe-interval=1s", "--settle-after=1s", filter}

// TestOutrigger: the Outrigger kinds keep the contract, on a simulated cloud.
func TestOutrigger(t *testing.T) {
	tier.OnlyAll(t) // internal/machines/conformance has these reconcilers in the kit, test/capi this manager beside core
	t.Parallel()
	cloud := capi.StartCloud(t)
	m, release := ours(t)
	manager := m.Run(t, capi.Label, cloud.Ours(t, quick...))
	k := kitFor(t, m, outriggerObjects)
	k.flags = append(k.flags, "--release="+release)
	k.outside = []string{"--restart-command", restartCommand(t, manager), "--inventory-command", serve(t, func(w io.Writer) error {
		left, err := cloud.Leaks()
		for _, l := range left {
			if l.Kind == fake.KindInstance {
				fmt.Fprintln(w, l.ID)
			}
		}
		return err
	})}
	if all(t) {
		wantGreen(t, k.alone(t, names(t)), skipped...)
	} else {
		wantGreen(t, k.atOnce(t, names(t)), slices.Concat(skipped, needy)...)
		wantGreen(t, k.alone(t, needy))
	}
	t.Run("BesideCore", func(t *testing.T) { besideCore(t, m, k) })
}

// besideCore: the same beside Cluster API's own core, which does what the kit
// did before.
func besideCore(t *testing.T, m *capi.Management, k *kit) {
	tier.OnlyAll(t) // test/capi has this provider beside core, test/guide the kit
	apply(t, m, m.Clusterctl(t, "generate", "provider", "--core", "cluster-api"))
	m.Run(t, "cluster-api", capi.Program{Path: filepath.Join(capi.Programs(t), "core")})
	k.flags = append(k.flags, "--core=running")
	if all(t) {
		wantGreen(t, k.alone(t, names(t)), skipped...)
		return
	}
	wantGreen(t, k.atOnce(t, []string{
		"cluster-provisioned", "machine-provisioned", "machine-failure-domain", "pause-machine", "delete-cluster-all", "delete-machine-while-made",
		"move-rebuilt", "template-makes",
	}), skipped...)
}

// TestQEMU: the Outrigger kinds keep the contract with real virtual machines.
func TestQEMU(t *testing.T) {
	tier.OnlyAll(t)
	t.Parallel()
	m, release := ours(t)
	state := filepath.Join(stand.Dir(t), "qemu")
	manager := m.Run(t, capi.Label, capi.Program{
		Path: stand.Binary(t, "capi-manager"), Args: append([]string{"--provider=qemu"}, quick...),
		Env: []string{
			"QEMU_STATE_DIR=" + state, "QEMU_ACCEL=tcg", "QEMU_MEMORY=256", "QEMU_SCRATCH_DISK=0",
			"QEMU_KERNEL=" + stand.Binary(t, "podvm/vmlinux"), "QEMU_INITRD=" + stand.Binary(t, "podvm/initrd.cpio"),
		},
	})
	k := kitFor(t, m, outriggerObjects)
	k.flags = append(k.flags, "--release="+release)
	k.outside = []string{"--restart-command", restartCommand(t, manager), "--inventory-command", "ls " + state + "/instances 2>/dev/null || true"}
	checks := outside
	if all(t) {
		checks = names(t)
	}
	wantGreen(t, k.alone(t, checks), skipped...)
}

const (
	nodeImage     = "test/node:v1.36.3"
	balancerImage = "test/loadbalancer:latest"
)

const dockerObjects = `
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: DockerCluster
spec:
  failureDomains: [{name: a, controlPlane: true}, {name: b, controlPlane: true}]
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: DockerClusterTemplate
spec: {template: {spec: {}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: DockerMachineTemplate
spec: {template: {spec: {customImage: "` + nodeImage + `"}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: DockerMachineTemplate
spec: {template: {spec: {customImage: "test/other:v1.36.3"}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: DockerMachinePool
spec: {template: {customImage: "` + nodeImage + `"}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: DockerMachinePoolTemplate
spec: {template: {spec: {template: {customImage: "` + nodeImage + `"}}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: DockerMachine
metadata: {annotations: {capi-conformance.outrigger.dev/role: failing-machine}}
spec: {customImage: "test/none:v1.36.3"}
`

// TestDocker: the Docker kinds keep the contract with containers of a real
// engine.
func TestDocker(t *testing.T) {
	tier.OnlyAll(t) // internal/machines/docker makes these machines at an engine, test/capi beside core
	t.Parallel()
	m, release := ours(t)
	engine := dockerd.StartDaemon(t, dockerd.Options{})
	engine.Import(t, nodeImage, map[string]string{
		"node-agent": stand.Binary(t, "node-agent"), "bin/busybox": "/bin/busybox", "bin/sh": "->busybox",
	}, `ENTRYPOINT ["/node-agent"]`)
	engine.Import(t, balancerImage, map[string]string{"cluster-loadbalancer": stand.Binary(t, "cluster-loadbalancer")}, `ENTRYPOINT ["/cluster-loadbalancer"]`)
	manager := m.Run(t, capi.Label, capi.Program{
		Path: stand.Binary(t, "capi-manager"),
		Args: []string{"--provider=", "--docker-host=" + engine.Host, "--docker-pull=false", filter, "--docker-loadbalancer-image=" + balancerImage},
	})
	k := kitFor(t, m, dockerObjects)
	k.flags = append(k.flags, "--release="+release)
	k.outside = []string{
		"--restart-command", restartCommand(t, manager),
		"--inventory-command", "docker --host " + engine.Host + " ps --all --quiet --no-trunc --filter label=infrastructure.outrigger.dev/role=worker",
	}
	// What containers may do otherwise than the machines of TestOutrigger.
	checks := []string{
		"machine-once", "machine-quiet", "machine-failure-domain", "delete-machine-ready", "delete-machine-while-made",
		"delete-machine-orphan", "restart-while-made", "pool-scale", "pool-delete",
	}
	if all(t) {
		checks = names(t)
	}
	wantGreen(t, k.alone(t, checks), "core-permissions")
}
