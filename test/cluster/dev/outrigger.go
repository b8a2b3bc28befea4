// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/stand"
)

// handler is the one that RuntimeClass kata-remote names.
const handler = "kata-remote"

// runtimes are Outrigger's on the node: its shim is given what annotations of
// pods say of the VM.
func runtimes(t *session) []cluster.Runtime {
	return []cluster.Runtime{{
		Handler: handler, Shim: stand.Binary(t, "containerd-shim-outrigger-v2"),
		PodAnnotations: []string{"io.katacontainers.*"},
	}}
}

// startOutrigger runs the adaptor on the node, with VMs beside it.
func startOutrigger(t *session, n *cluster.Node) {
	stand.Start(t, n.Daemon(stand.Daemon{
		Path: stand.Binary(t, "cloud-api-adaptor"),
		Args: []string{"qemu", "-pods-dir", n.Dir + "/pods", "-qemu-state-dir", n.Dir + "/qemu"},
		Env:  []string{"PROBE_PORT=0"},
		Log:  n.Dir + "/log/adaptor.log", Socket: "/run/peerpod/hypervisor.sock",
	}))
}

const runtimeClass = `
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: %[1]s}
handler: %[1]s
`

// example is a pod to begin with. The VM pulls its image itself.
const example = `apiVersion: v1
kind: Pod
metadata: {name: hello}
spec:
  runtimeClassName: %[1]s
  terminationGracePeriodSeconds: 1
  containers:
  - name: hello
    image: %[2]s
    imagePullPolicy: IfNotPresent
    command: [sh, -c, 'echo hello from a VM; uname -a; exec podtool serve :8080']
`

// manifests are what the cluster is given, and the example for its user.
func manifests(image string) (given, pod string) {
	return fmt.Sprintf(runtimeClass, handler), fmt.Sprintf(example, handler, image)
}
