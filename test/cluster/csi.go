// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/test/cluster/registrar"
	"github.com/outrigger/outrigger/test/stand"
)

// csiDriver is the driver's name.
const csiDriver = "csi.outrigger.dev"

// Where the driver's two processes are served on the node. A path of a socket is short, also
// seen from outside of the node.
const (
	csiControllerSocket = "/run/peerpod/csi-c.sock"
	csiNodeSocket       = "/run/peerpod/csi-n.sock"
)

// CSI is the CSI driver on a node, with Kubernetes' own sidecars except for node-driver-registrar and livenessprobe, whose
// modules cannot be had everywhere.
type CSI struct {
	Controller, Node *stand.Process
	sidecars         []*stand.Process
}

// KillController kills the controller. Its sidecars end when they lose it, and all are started again, as by kubelet.
func (d *CSI) KillController(t testing.TB) {
	t.Helper()
	d.Controller.Restart(t)
	for _, p := range d.sidecars {
		p.Restart(t)
	}
}

// StartCSI installs deploy/csi, with a provider that has those variables, and returns when kubelet
// has registered the driver.
func StartCSI(t testing.TB, c *ControlPlane, n *Node, env ...string) *CSI {
	t.Helper()
	for _, crd := range []string{"volumesnapshotclasses", "volumesnapshotcontents", "volumesnapshots"} {
		c.Kubectl(t, "apply", "--server-side", "-f", filepath.Join(Programs(t), "snapshot.storage.k8s.io_"+crd+".yaml"))
	}
	c.Kubectl(t, "apply", "-f", filepath.Join(Programs(t), "rbac-snapshot-controller.yaml"))
	c.Apply(t, withoutWorkloads(c.Kubectl(t, "kustomize", filepath.Join(stand.Root(), "deploy/csi/snapshots"))))
	must(t, os.MkdirAll(n.Path(filepath.Dir(csiNodeSocket)), 0o755), "make a folder")
	start := func(mode, socket string, args ...string) *stand.Process {
		account := n.Kubeconfig(t, c.ServiceAccount(t, Namespace, "outrigger-csi-"+mode))
		return stand.Start(t, n.Daemon(stand.Daemon{
			Path: stand.Binary(t, "outrigger-csi"), Log: n.log("outrigger-csi-" + mode), Env: env, Socket: socket,
			Args: append([]string{"-mode", mode, "-endpoint", "unix://" + socket, "-kubeconfig", account,
				"-metrics-bind-address", "0", "-health-probe-bind-address", "0"}, args...),
		}))
	}
	d := &CSI{Controller: start("controller", csiControllerSocket), Node: start("node", csiNodeSocket, "-node-name", n.Name)}
	register(t, n)
	d.sidecars = startSidecars(t, c, n)
	c.Kubectl(t, "wait", "--for=create", "csinode/"+n.Name, "--timeout=120s")
	c.Kubectl(t, "wait", "--for=jsonpath={.spec.drivers[0].name}="+csiDriver, "csinode/"+n.Name, "--timeout=120s")
	return d
}

// withoutWorkloads leaves out what would need images.
func withoutWorkloads(manifests string) string {
	var kept []string
	for document := range strings.SplitSeq(manifests, "\n---\n") {
		if !strings.Contains(document, "\nkind: DaemonSet\n") && !strings.Contains(document, "\nkind: Deployment\n") {
			kept = append(kept, document)
		}
	}
	return strings.Join(kept, "\n---\n")
}

// register is node-driver-registrar.
func register(t testing.TB, n *Node) {
	t.Helper()
	stop, err := registrar.Serve(n.Path(registrar.Folder), csiDriver, csiNodeSocket)
	must(t, err, "register the driver")
	t.Cleanup(stop)
}
