// SPDX-License-Identifier: Apache-2.0

//go:build integration

package capi_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/test/dockerd"
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
		writeText(t, filepath.Join(folder, filepath.Base(file)), readText(t, file))
	}
	plain := readText(t, filepath.Join(folder, "cluster-template-outrigger.yaml"))
	addFlavor(t, folder, "md-remediation", plain+"---\n"+healthCheck)
	addFlavor(t, folder, "taints", changed(t, plain,
		"  machineTemplate:\n    spec:\n", "$0      taints: "+machineTaints+"\n",
		"  template:\n    spec:\n      clusterName:.*\n", "$0      taints: "+machineTaints+"\n"))
	byClass := readText(t, filepath.Join(folder, "cluster-template-outrigger-topology.yaml"))
	// Images have the cluster's version, as in a cloud: an upgrade is one of images.
	upgraded := changed(t, byClass, "( +)memory: .*\n", "$0${1}image: node-VERSION\n")
	addFlavor(t, folder, "upgrade", upgraded)
	addClass(t, folder, "outrigger", "scale-in", upgraded, scalesIn...)
	addRollout(t, folder, byClass)
}

// addDockerFlavors adds those for Docker machines.
func addDockerFlavors(t *testing.T, folder string) {
	t.Helper()
	plain := readText(t, filepath.Join(folder, "cluster-template.yaml"))
	wait := "$0" + strings.ReplaceAll(waitForSignal, "$", "$$") // which clusterctl fills in
	addFlavor(t, folder, "kcp-remediation", changed(t, plain, "  kubeadmConfigSpec:\n", wait)+"---\n"+controlPlaneCheck)
	// Ignition has no Jinja: nodes have the names of their machines anyway, and the image's
	// kubelet its providerID.
	addFlavor(t, folder, "ignition", changed(t, plain,
		" +(name: '\\{\\{|kubeletExtraArgs:|- \\{name: provider-id).*\n", "",
		"  kubeadmConfigSpec:\n", "$0    format: ignition\n",
		"\n  template:\n    spec:\n      joinConfiguration:\n", "\n  template:\n    spec:\n"+ignition+"      joinConfiguration:\n"))
}

// drained is the image of the pods that a specification drains: it waits for its end.
const drained = "registry.k8s.io/pause:3.10.1"

// addDrain makes that image, as the node image has it of another version, and adds a flavor
// whose machines have it: no registry is asked for it.
func addDrain(t *testing.T, folder string, engine *dockerd.Engine) {
	t.Helper()
	engine.Import(t, drained, map[string]string{"pause": stand.Build(t, "./images/node/pause")}, `ENTRYPOINT ["/pause"]`)
	addFlavor(t, folder, "node-drain", readText(t, filepath.Join(folder, "cluster-template-topology.yaml"))+
		"    variables:\n      - {name: preLoadImages, value: ["+drained+"]}\n")
}

// addRollout adds a class and a cluster of it with Machine taints, and with labels and
// annotations wherever there may be some, so that it is seen which go where.
func addRollout(t *testing.T, folder, byClass string) {
	t.Helper()
	marks := func(of string) string {
		return "metadata: {labels: {label-of-" + of + ": yes-it-is}, annotations: {annotation-of-" + of + ": yes-it-is}}\n"
	}
	onNodes := func(of string) string {
		node := of + ".node.cluster.x-k8s.io/mark"
		return "metadata: {labels: {label-of-" + of + ": yes-it-is, " + node + ": label}, annotations: {" + node + ": annotation}}\n"
	}
	cluster := changed(t, byClass,
		"    controlPlane:\n", "$0      "+onNodes("control-plane")+"      taints: "+machineTaints+"\n",
		"( +)name: md-0\n", "$0${1}"+onNodes("worker")+"${1}minReadySeconds: 5\n${1}taints: "+machineTaints+"\n")
	addClass(t, folder, "outrigger", "rollout", cluster,
		"  controlPlane:\n", "$0    "+marks("class-control-plane"),
		"( +)- class: default-worker\n", "$0${1}  "+marks("class-worker")+"${1}  healthCheck: "+unhealthy+"\n",
		"metadata: {name: (outrigger-[a-z-]+)}\n",
		"metadata: {name: $1, labels: {label-of-template: $1}, annotations: {annotation-of-template: $1}}\n",
		"\nspec:\n  template:\n", "$0    "+marks("template-of-template"),
		"( +)kubeadmConfigSpec:\n", "${1}machineTemplate: {"+strings.TrimSpace(marks("machine-template"))+"}\n$0")
}

// scalesIn changes a class: its control plane is scaled in before it is scaled out.
var scalesIn = []string{"( +)kubeadmConfigSpec:\n", "${1}rollout: {strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0}}}\n$0"}

// addClass adds a flavor whose cluster is of a class of the same name: one of the release's,
// changed.
func addClass(t *testing.T, folder, of, name, cluster string, pairs ...string) {
	t.Helper()
	pairs = slices.Concat(pairs, []string{`kind: ClusterClass\nmetadata: \{name: ` + of + `}`, "kind: ClusterClass\nmetadata: {name: " + name + "}"})
	class := changed(t, readText(t, filepath.Join(folder, "clusterclass-"+of+".yaml")), pairs...)
	writeText(t, filepath.Join(folder, "clusterclass-"+name+".yaml"), class)
	addFlavor(t, folder, name, changed(t, cluster, "name: "+of+"\n", "name: "+name+"\n"))
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
	writeText(t, filepath.Join(folder, "cluster-template-"+name+".yaml"), text)
}

func writeText(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
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
	machineTaints = "[" +
		"{key: pre-existing-on-initialization-taint, value: on-initialization-value, effect: PreferNoSchedule, propagation: OnInitialization}, " +
		"{key: pre-existing-always-taint, value: always-value, effect: PreferNoSchedule, propagation: Always}]"
	unhealthy = `{checks: {unhealthyNodeConditions: [{type: Ready, status: Unknown, timeoutSeconds: 300}]}}`
)

// waitForSignal has a machine wait for the signal of a ConfigMap in the management cluster
// before it runs kubeadm, and acknowledge it. Its account may not watch.
const waitForSignal = `    preKubeadmCommands:
      - |
        management() {
          kubectl --server=${SERVER} --token=${TOKEN} --insecure-skip-tls-verify --namespace=${NAMESPACE} "$@"
        }
        until management get configmap mhc-test --output='jsonpath={.data.signal}' | grep -qx pass; do sleep 1; done
        management patch configmap mhc-test --patch='{"data": {"signal": "ack-pass"}}'
`

const controlPlaneCheck = `apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineHealthCheck
metadata: {name: "${CLUSTER_NAME}-control-plane", namespace: "${NAMESPACE}"}
spec:
  clusterName: "${CLUSTER_NAME}"
  selector: {matchLabels: {cluster.x-k8s.io/control-plane: "", mhc-test: fail}}
  checks:
    nodeStartupTimeoutSeconds: 30
    unhealthyNodeConditions: [{type: e2e.remediation.condition, status: "False", timeoutSeconds: 10}]
  remediation: {triggerIf: {unhealthyLessThanOrEqualTo: 100%}}
`

// ignition has a worker write a file of its own besides.
const ignition = `      format: ignition
      ignition:
        containerLinuxConfig:
          additionalConfig: |
            storage:
              files:
                - {path: /opt/greeting, filesystem: root, mode: 0644, contents: {inline: "hello"}}
`
