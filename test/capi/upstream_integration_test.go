// SPDX-License-Identifier: Apache-2.0

//go:build integration

package capi_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/test/capi"
	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/dockerd"
	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/tier"
)

// upstreamSpecs are the labels of the specifications in test/capi/upstream.
var upstreamSpecs = []string{
	"quick-start", "quick-start-class", "quick-start-class-elsewhere", "machinedeployment-scale", "machinedeployment-remediation",
	"clusterclass-changes", "cluster-upgrade", "cluster-deletion",
	"kcp-adoption", "kcp-md-rollout", "clusterclass-rollout", "quick-start-no-workers", "quick-start-class-v1beta1",
	"cluster-upgrade-three", "cluster-upgrade-scale-in", "kcp-infra-adoption",
}

// TestUpstreamSpecs runs Cluster API's own specifications with OutriggerMachines, in a
// management cluster in which clusterctl has installed a release of ours. What it lets
// machines do costs nothing but memory; docs/capi-upstream.md has the results, and why the
// other specifications are not here.
func TestUpstreamSpecs(t *testing.T) {
	tier.OnlyAll(t)
	page, err := os.ReadFile(filepath.Join(stand.Root(), "docs", "capi-upstream.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range slices.Concat(upstreamSpecs, dockerSpecs, versionSpecs) {
		if !strings.Contains(string(page), ": `"+spec+"` |") {
			t.Errorf("docs/capi-upstream.md does not have %s", spec)
		}
	}
	t.Setenv("EXP_MACHINE_TAINT_PROPAGATION", "true")
	r, cloud := capi.NewRepository(t), capi.StartCloud(t)
	r.Release(t, "v0.1.0")
	addFlavors(t, r.Folder("v0.1.0"))
	m := capi.Start(t, r)
	m.Init(t, capi.Name)
	m.Run(t, capi.Label, cloud.Ours(t))
	u := upstream{upstreamProgram(t), m, r, []string{"UPSTREAM_VERSION=" + version, "UPSTREAM_VERSION_TO=" + newer}}
	for _, spec := range upstreamSpecs {
		t.Run(spec, func(t *testing.T) {
			u.run(t, spec, "UPSTREAM_PORTS="+cluster.HoldPort(t))
			cloud.AwaitLedger(t, 0)
		})
	}
}

// dockerSpecs are the labels of those with Docker machines.
var dockerSpecs = []string{
	"docker-quick-start", "docker-quick-start-class", "docker-machinedeployment-scale", "docker-machine-pool",
	"docker-quick-start-ignition", "docker-kcp-remediation", "docker-node-drain",
}

// TestUpstreamSpecsOnDocker runs some of them with containers of an engine, of the node
// image: nodes are Kubernetes' own.
func TestUpstreamSpecsOnDocker(t *testing.T) {
	f, u := startDockerSpecs(t, nodeArchive(t))
	addDockerFlavors(t, f.r.Folder("v0.1.0"))
	addDrain(t, f.r.Folder("v0.1.0"), f.engine.Engine)
	f.m.Apply(t, fmt.Sprintf(clusterInfo, f.m.Address, f.m.Port()))
	u.env = append(u.env, "UPSTREAM_VERSION="+nodeVersion)
	u.runAtEngine(t, f.engine, dockerSpecs)
}

// startDockerSpecs starts an engine with node images, and a management cluster for it.
func startDockerSpecs(t *testing.T, images ...string) (*fleet, upstream) {
	t.Helper()
	f := &fleet{engine: dockerd.StartDaemon(t, dockerd.Options{Storage: "overlay2"})}
	f.load(t, images...)
	t.Setenv("EXP_KUBEADM_BOOTSTRAP_FORMAT_IGNITION", "true")
	f.manage(t)
	return f, upstream{upstreamProgram(t), f.m, f.r, []string{"DOCKER_HOST=" + f.engine.Host}}
}

// runAtEngine runs specifications, each of which leaves nothing at the engine.
func (u upstream) runAtEngine(t *testing.T, engine *dockerd.Daemon, specs []string) {
	t.Helper()
	empty := engineInventory(t, engine)
	for _, spec := range specs {
		t.Run(spec, func(t *testing.T) {
			u.run(t, spec)
			if diff := cmp.Diff(empty, engineInventory(t, engine)); diff != "" {
				t.Errorf("left at the engine (-before +now):\n%s", diff)
			}
		})
	}
}

// clusterInfo has the address of the management cluster's API server, for machines.
const clusterInfo = `
apiVersion: v1
kind: ConfigMap
metadata: {name: cluster-info, namespace: kube-public}
data:
  kubeconfig: |
    apiVersion: v1
    kind: Config
    clusters: [{name: "", cluster: {server: "https://%s:%s"}}]
`

// upstream is what specifications are run with.
type upstream struct {
	program string
	m       *capi.Management
	r       *capi.Repository
	env     []string
}

func (u upstream) run(t *testing.T, spec string, env ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, u.program, "-test.run=^TestSpecifications$", "-test.timeout=40m", "-ginkgo.label-filter=/^"+spec+"$/", "-ginkgo.fail-on-empty")
	cmd.Env = slices.Concat(os.Environ(), u.r.Env(), u.env, env, []string{"CONTROL_PLANE_ENDPOINT_HOST=127.0.0.1", "HOME=" + t.TempDir(),
		"UPSTREAM_KUBECONFIG=" + u.m.Kubeconfig, "UPSTREAM_CLUSTERCTL_CONFIG=" + u.r.Config(), "UPSTREAM_ARTIFACTS=" + t.TempDir()})
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// upstreamProgram builds the specifications.
func upstreamProgram(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "upstream.test")
	cmd := exec.Command("go", "test", "-c", "-tags=e2e", "-trimpath", "-vet=off", "-gcflags=all=-dwarf=false", "-ldflags=-s -w", "-o", program, ".")
	cmd.Dir, cmd.Env = filepath.Join(stand.Root(), "test", "capi", "upstream"), append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build Cluster API's specifications: %v\n%s", err, out)
	}
	return program
}
