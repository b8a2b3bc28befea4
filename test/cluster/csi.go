// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/client-go/kubernetes"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

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

// CSI is the CSI driver on a node. What Kubernetes' sidecars do is done by this process: the
// module proxy does not have all of them.
type CSI struct {
	Controller, Node *stand.Process
}

// StartCSI installs deploy/csi, with a provider that has those variables, and returns when kubelet
// has registered the driver.
func StartCSI(t testing.TB, c *ControlPlane, n *Node, env ...string) *CSI {
	t.Helper()
	c.Apply(t, withoutWorkloads(c.Kubectl(t, "kustomize", filepath.Join(stand.Root(), "deploy/csi"))))
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
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	must(t, err, "a client of the API server")
	conn, err := grpc.NewClient("unix:"+n.Path(csiControllerSocket), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err, "a client of the driver")
	t.Cleanup(func() { conn.Close() })
	startSidecars(t, client, conn)
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

// register is node-driver-registrar: kubelet finds a socket in its folder and asks what is there.
func register(t testing.TB, n *Node) {
	t.Helper()
	path := n.Path("/var/lib/kubelet/plugins_registry/" + csiDriver + "-reg.sock")
	must(t, os.MkdirAll(filepath.Dir(path), 0o750), "kubelet's folder of plugins")
	listener, err := net.Listen("unix", path)
	must(t, err, "register the driver")
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, registrar{})
	go server.Serve(listener)
	t.Cleanup(server.Stop)
}

type registrar struct {
	registration.UnimplementedRegistrationServer
}

func (registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: csiDriver, Endpoint: csiNodeSocket, SupportedVersions: []string{"1.0.0"}}, nil
}

func (registrar) NotifyRegistrationStatus(context.Context, *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	return &registration.RegistrationStatusResponse{}, nil
}
