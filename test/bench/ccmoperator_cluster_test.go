// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/openshift"
	"github.com/outrigger/outrigger/test/stand"
)

const openShiftCluster = `
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Namespace, metadata: {name: openshift-config}}
- {apiVersion: v1, kind: Namespace, metadata: {name: openshift-config-managed}}
- {apiVersion: config.openshift.io/v1, kind: Infrastructure, metadata: {name: cluster}, spec: {platformSpec: {type: AWS}}}
- {apiVersion: config.openshift.io/v1, kind: FeatureGate, metadata: {name: cluster}, spec: {}}
- {apiVersion: config.openshift.io/v1, kind: ClusterVersion, metadata: {name: version}, spec: {clusterID: 6f5e1c1e-1c1e-4c1e-8c1e-6f5e1c1e6f5e}}
- {apiVersion: config.openshift.io/v1, kind: Network, metadata: {name: cluster}, spec: {}}
- {apiVersion: config.openshift.io/v1, kind: APIServer, metadata: {name: cluster}, spec: {}}
- {apiVersion: operator.openshift.io/v1, kind: KubeControllerManager, metadata: {name: cluster}, spec: {managementState: Managed}}
- {apiVersion: config.openshift.io/v1, kind: ClusterOperator, metadata: {name: cloud-controller-manager}, spec: {}}
`

// What installers and config-sync say.
var openShiftStatus = map[string]string{
	"infrastructure/cluster": `{"infrastructureName":"bench","apiServerURL":"https://x","apiServerInternalURI":"https://x","etcdDiscoveryDomain":"",
"controlPlaneTopology":"HighlyAvailable","infrastructureTopology":"HighlyAvailable","platform":"AWS","platformStatus":{"type":"AWS","aws":{"region":"x"}}}`,
	"featuregate/cluster": `{"featureGates":[{"version":"` + operatorRelease + `","enabled":[],"disabled":[{"name":"Other"}]}]}`,
	"clusteroperator/cloud-controller-manager": `{"conditions":[
{"type":"CloudConfigControllerAvailable","status":"True","reason":"AsExpected","lastTransitionTime":"2026-01-01T00:00:00Z"},
{"type":"CloudConfigControllerDegraded","status":"False","reason":"AsExpected","lastTransitionTime":"2026-01-01T00:00:00Z"},
{"type":"TrustedCABundleControllerControllerAvailable","status":"True","reason":"AsExpected","lastTransitionTime":"2026-01-01T00:00:00Z"},
{"type":"TrustedCABundleControllerControllerDegraded","status":"False","reason":"AsExpected","lastTransitionTime":"2026-01-01T00:00:00Z"}]}`,
}

func onOpenShift(t *testing.T, c *operatorCluster) configuration {
	openshift.Install(t, c.ControlPlane)
	c.namespaces(t)
	c.apply(t, openShiftCluster)
	for what, status := range openShiftStatus {
		c.Kubectl(t, "patch", what, "--subresource=status", "--type=merge", "--patch="+`{"status":`+status+`}`)
	}
	c.put(t, operandsNamespace, "ccm-trusted-ca", map[string]string{"ca-bundle.crt": ""})
	return configuration{namespace: operandsNamespace, name: "cloud-conf", deployment: "aws-cloud-controller-manager",
		text: func(n int) string { return fmt.Sprintf("[Global]\nVPC = vpc-%d\n", n) }}
}

func onPlain(t *testing.T, c *operatorCluster) configuration {
	crd := filepath.Join(stand.Root(), "deploy/ccm-operator/crd/ccm.outrigger.dev_cloudcontrollermanagers.yaml")
	c.Kubectl(t, "create", "--filename="+crd)
	c.Kubectl(t, "wait", "--for=condition=Established", "--timeout=3m", "--filename="+crd)
	c.namespaces(t)
	c.apply(t, `
apiVersion: ccm.outrigger.dev/v1alpha1
kind: CloudControllerManager
metadata: {name: main}
spec:
  provider: libvirt
  images: {cloudControllerManagerOutrigger: example.test/ccm:1}
  cloudConfig: {name: bench}
`)
	return configuration{namespace: operatorNamespace, name: "bench", deployment: "libvirt-cloud-controller-manager",
		text: func(n int) string { return fmt.Sprintf("LIBVIRT_POOL=pool-%d\n", n) }}
}

// namespaces come with the images of OpenShift's platforms.
func (c *operatorCluster) namespaces(t *testing.T) {
	t.Helper()
	images := map[string]string{}
	for _, name := range []string{"ManagerOperator", "ManagerAWS", "ManagerAzure", "ManagerGCP", "ManagerIBM", "ManagerOpenStack", "ManagerVSphere", "ManagerPowerVS", "ManagerNutanix"} {
		images["cloudController"+name] = "example.test/ccm:1"
	}
	images["cloudNodeManagerAzure"] = "example.test/cnm:1"
	text, err := json.Marshal(images)
	if err != nil {
		t.Fatal(err)
	}
	keep(t, c.images, string(text))
	c.Kubectl(t, "create", "namespace", operandsNamespace)
	c.Kubectl(t, "create", "namespace", operatorNamespace)
}

func (c *operatorCluster) apply(t *testing.T, manifests string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifests.yaml")
	keep(t, file, manifests)
	c.Kubectl(t, "apply", "--filename="+file)
}

// requests are counts of what the operator has asked.
type requests struct{ writes, leases, reads int }

// spend returns what the operator asks while something is done, and what
// processor time it takes.
func (c *operatorCluster) spend(t *testing.T, do func()) (requests, time.Duration) {
	t.Helper()
	before, used := c.asked(t), cpu(t, c.pid)
	do()
	now := c.asked(t)
	return requests{now.writes - before.writes, now.leases - before.leases, now.reads - before.reads}, cpu(t, c.pid) - used
}

// asked counts the lines of the audit log. A watch is a read when it ends.
func (c *operatorCluster) asked(t *testing.T) (r requests) {
	t.Helper()
	file, err := os.Open(c.audit)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Verb      string
			ObjectRef struct{ Resource string }
		}
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // being written
		}
		switch lease := e.ObjectRef.Resource == "leases"; {
		case lease && e.Verb != "get":
			r.leases++
		case lease:
		case e.Verb == "get", e.Verb == "list", e.Verb == "watch":
			r.reads++
		default:
			r.writes++
		}
	}
	return r
}

// awaitRest waits until the operator has written nothing for a while.
func (c *operatorCluster) awaitRest(t *testing.T) {
	t.Helper()
	const rest = 2 * time.Second
	before, since := c.asked(t).writes, time.Now()
	for end := since.Add(3 * time.Minute); time.Since(since) < rest; time.Sleep(50 * time.Millisecond) {
		if now := c.asked(t).writes; now != before {
			before, since = now, time.Now()
		}
		if time.Now().After(end) {
			t.Fatalf("the operator writes on and on: %d times", before)
		}
	}
	for len(c.generations) > 0 {
		<-c.generations // it was changed more than once
	}
}

// times are durations.
type times []time.Duration

// at returns a percentile in milliseconds.
func (all times) at(share float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[int(share*float64(len(sorted)-1))].Seconds() * 1000
}
