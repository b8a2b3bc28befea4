// SPDX-License-Identifier: Apache-2.0

//go:build integration

package capi_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/test/stand"
)

// addFlavors adds to a release the templates that specifications want beside ours: those
// of upstream/flavors, and changes of the release's own.
func addFlavors(t *testing.T, folder string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(stand.Root(), "test", "capi", "upstream", "flavors", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("found %d flavors: %v", len(files), err)
	}
	for _, file := range files {
		addFlavor(t, folder, strings.TrimSuffix(filepath.Base(file), ".yaml"), readText(t, file))
	}
	of := func(name string) string { return readText(t, filepath.Join(folder, name+".yaml")) }
	plain, class, byClass := of("cluster-template-outrigger"), of("clusterclass-outrigger"), of("cluster-template-outrigger-topology")
	addFlavor(t, folder, "md-remediation", plain+"\n---\n"+healthCheck)
	addFlavor(t, folder, "taints", changed(t, plain,
		"  machineTemplate:\n    spec:\n", "$0      taints: "+machineTaints+"\n",
		"  template:\n    spec:\n      clusterName:.*\n", "$0      taints: "+machineTaints+"\n"))
	upgraded := changed(t, byClass, "( +)memory: .*\n", "$0${1}image: node-VERSION\n")
	addFlavor(t, folder, "upgrade", upgraded)
	addFlavor(t, folder, "scale-in", upgraded+"\n---\n"+changed(t, class,
		"( +)kubeadmConfigSpec:\n", "${1}rollout: {strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0}}}\n$0"))
	addFlavor(t, folder, "rollout", rollout(t, class, byClass))
}

// rollout is our class and a cluster of it with Machine taints, and with labels and
// annotations wherever there may be some, so that it is seen which go where.
func rollout(t *testing.T, class, cluster string) string {
	t.Helper()
	marks := func(of string) string {
		return "metadata: {labels: {label-of-" + of + ": yes-it-is}, annotations: {annotation-of-" + of + ": yes-it-is}}\n"
	}
	onNodes := func(of string) string {
		label, node := "label-of-"+of, of+".node.cluster.x-k8s.io/mark"
		return "metadata: {labels: {" + label + ": yes-it-is, " + node + ": label}, annotations: {" + node + ": annotation}}\n"
	}
	return changed(t, class,
		"  controlPlane:\n", "$0    "+marks("class-control-plane"),
		"( +)- class: default-worker\n", "$0${1}  "+marks("class-worker")+"${1}  healthCheck: "+unhealthy+"\n",
		"metadata: {name: (outrigger-[a-z-]+)}\n", "metadata: {name: $1, labels: {label-of-template: $1}, annotations: {annotation-of-template: $1}}\n",
		"\nspec:\n  template:\n", "$0    "+marks("template-of-template"),
		"( +)kubeadmConfigSpec:\n", "${1}machineTemplate: {"+strings.TrimSpace(marks("machine-template"))+"}\n$0") +
		"\n---\n" + changed(t, cluster,
		"    controlPlane:\n", "$0      "+onNodes("control-plane")+"      taints: "+machineTaints+"\n",
		"( +)name: md-0\n", "$0${1}"+onNodes("worker")+"${1}minReadySeconds: 5\n${1}taints: "+machineTaints+"\n")
}

// changed returns a text with pairs of an expression and its replacement applied to it,
// each of which is to be found.
func changed(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		find := regexp.MustCompile(pairs[i])
		if !find.MatchString(text) {
			t.Fatalf("there is no %q in the template:\n%s", find, text)
		}
		text = find.ReplaceAllString(text, pairs[i+1])
	}
	return text
}

func readText(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimRight(string(text), "\n") + "\n"
}

func addFlavor(t *testing.T, folder, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(folder, "cluster-template-"+name+".yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const healthCheck = `apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineHealthCheck
metadata: {name: "${CLUSTER_NAME}-workers", namespace: "${NAMESPACE}"}
spec:
  clusterName: "${CLUSTER_NAME}"
  selector: {matchLabels: {cluster.x-k8s.io/deployment-name: "${CLUSTER_NAME}-md-0"}}
  checks:
    nodeStartupTimeoutSeconds: 0
    unhealthyNodeConditions: [{type: e2e.remediation.condition, status: "False", timeoutSeconds: 10}]
`

// What the specifications say that templates have.
const (
	machineTaints = "[{key: pre-existing-on-initialization-taint, value: on-initialization-value, effect: PreferNoSchedule, propagation: OnInitialization}, " +
		"{key: pre-existing-always-taint, value: always-value, effect: PreferNoSchedule, propagation: Always}]"
	unhealthy = `{checks: {unhealthyNodeConditions: [{type: Ready, status: Unknown, timeoutSeconds: 300}, {type: Ready, status: "False", timeoutSeconds: 300}]}}`
)
