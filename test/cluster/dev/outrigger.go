// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/stand"
)

// startOutrigger installs it, with VMs beside the node's programs.
func startOutrigger(t *stand.Session, c *cluster.ControlPlane, n *cluster.Node) {
	cluster.Install(t, c, n, cluster.OutriggerOptions{Provider: "qemu"})
}

// example is a pod to begin with. The VM pulls its image itself.
const example = `apiVersion: v1
kind: Pod
metadata: {name: hello}
spec:
  runtimeClassName: %s
  terminationGracePeriodSeconds: 1
  containers:
  - name: hello
    image: %s
    imagePullPolicy: IfNotPresent
    command: [sh, -c, 'echo hello from a VM; uname -a; exec podtool serve :8080']
`

func examplePod(image string) string {
	return fmt.Sprintf(example, cluster.RuntimeClass, image)
}
