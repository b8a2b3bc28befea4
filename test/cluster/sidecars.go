// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/test/stand"
)

// startSidecars starts Kubernetes' own sidecars beside the controller, with the flags and the permissions that they have in deploy/csi.
func startSidecars(t testing.TB, c *ControlPlane, n *Node) (all []*stand.Process) {
	t.Helper()
	account := n.Kubeconfig(t, c.ServiceAccount(t, Namespace, "outrigger-csi-controller"))
	for name, flags := range sidecarFlags(t, c) {
		all = append(all, stand.Start(t, n.Daemon(stand.Daemon{
			Path: filepath.Join(Programs(t), name), Log: n.log(name), Args: append(flags, "--kubeconfig="+account, "--v=4"),
		})))
	}
	if len(all) != 4 {
		t.Fatalf("deploy/csi/snapshots has %d of csi-provisioner, csi-attacher, csi-resizer and csi-snapshotter", len(all))
	}
	account = n.Kubeconfig(t, c.ServiceAccount(t, "kube-system", "snapshot-controller")) // the cluster's, see docs/volumes.md
	stand.Start(t, n.Daemon(stand.Daemon{Path: filepath.Join(Programs(t), "snapshot-controller"), Log: n.log("snapshot-controller"), Args: []string{"--kubeconfig=" + account, "--v=4"}}))
	return all
}

// sidecarFlags are those of the manifest, for one replica and the driver's socket on the node.
func sidecarFlags(t testing.TB, c *ControlPlane) map[string][]string {
	t.Helper()
	flags := map[string][]string{}
	for _, text := range strings.Split(c.Kubectl(t, "kustomize", filepath.Join(stand.Root(), "deploy/csi/snapshots")), "\n---\n") {
		var d appsv1.Deployment
		if err := yaml.Unmarshal([]byte(text), &d); err != nil || d.Kind != "Deployment" {
			continue
		}
		for _, container := range d.Spec.Template.Spec.Containers {
			if !strings.HasPrefix(container.Name, "csi-") {
				continue
			}
			var args []string
			for _, arg := range container.Args {
				switch {
				case strings.HasPrefix(arg, "--csi-address="):
					args = append(args, "--csi-address="+csiControllerSocket)
				case !strings.HasPrefix(arg, "--leader-election"):
					args = append(args, arg)
				}
			}
			flags[container.Name] = args
		}
	}
	return flags
}
