// SPDX-License-Identifier: Apache-2.0

//go:build integration

package e2e

import (
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/deployed"
	"github.com/outrigger/outrigger/test/testns"
)

func init() { startOwn = makeCluster }

// makeCluster makes one of one node in namespaces of this test, with the overlay of
// the provider applied and images from this tree.
func makeCluster(t *testing.T, c cloud) *suite {
	t.Helper()
	testns.RequireRoot(t)
	if c.prepare == nil {
		t.Skipf("provider %s cannot be made here: give -kubeconfig, or add prepare to the provider's file", *providerName)
	}
	deployed.RequirePodVM(t)
	daemons := deployed.Images(t, append(deployed.Daemons, c.daemons...)...)
	control := cluster.StartControlPlane(t, cluster.ControlPlaneOptions{})
	open, closed := &cluster.Registry{}, &cluster.Registry{User: "puller", Password: "opensesame"}
	open.Start(t, control)
	closed.Start(t, control)
	node := cluster.StartNode(t, control, cluster.NodeOptions{
		Labels:   map[string]string{deployed.WorkerLabel: ""},
		Runtimes: []cluster.Runtime{shim(t)},
		Images:   daemons,
		Mirrors:  map[string]string{open.Host: open.URL(), closed.Host: closed.URL()},
		// Its two minutes are too few where a guest without KVM shares processors.
		Kubelet: map[string]any{"runtimeRequestTimeout": "10m"},
	})
	s := &suite{
		User: control.User, cloud: c, outside: open.URL() + "/v2/", own: &ownCluster{control: control, node: node},
	}
	s.images = pushAll(t, open.Host)
	// Another image than busybox: of one that has two names containerd tells the
	// shim either, and a pod without credentials would now and then ask for it
	// where it needs some.
	s.images.private = private{closed.Push(t, "private:1", enlarge(t, cluster.Busybox(t), 1)), closed.Host, closed.User, closed.Password}
	s.install(t)
	return s
}

// kataShim is where Kata's is, if it is installed.
const (
	kataShim   = "/opt/kata/bin/containerd-shim-kata-v2"
	kataConfig = "/opt/kata/share/defaults/kata-containers/configuration-remote.toml"
)

// shim returns the handler that pods run with, and says which it is.
func shim(t *testing.T) cluster.Runtime {
	t.Helper()
	r := deployed.Shim(t)
	if _, err := os.Stat(kataShim); err == nil {
		r.Shim, r.ConfigPath = kataShim, kataConfig
	}
	t.Logf("RuntimeClass %s is handled by %s", r.Handler, r.Shim)
	return r
}

// install is `kubectl apply -k`, until every daemon is ready.
func (s *suite) install(t *testing.T) {
	t.Helper()
	n, settings := s.own.node, s.cloud.prepare(t, s.own)
	if s.cloud.csi != nil {
		for key, value := range settings { // the CSI driver reaches the cloud in the same way
			s.cloud.csi = append(s.cloud.csi, key+"="+value)
		}
	}
	settings = s.withImages(settings)
	deployed.KubeletConfig(t, n)
	s.Apply(t, deployed.OwnFolders(deployed.Render(t, s.User, s.cloud.overlay, settings), n))
	t.Cleanup(func() {
		if t.Failed() {
			s.showDaemons(t)
		}
	})
	system := func(args ...string) { s.Kubectl(t, append([]string{"-n", deployed.Namespace}, args...)...) }
	system("rollout", "status", "deployment/peerpod-ctrl", s.timeout())
	system("wait", "--for=condition=Ready", "pods", "--all", s.timeout())
	s.Kubectl(t, "wait", "node", "--all", `--for=jsonpath={.status.allocatable.kata\.peerpods\.io/vm}=10`, s.timeout())
}

// withImages has the adaptor let pods name the VM images of the cases, so that it
// is the provider that says which of them is there, and VMs use the registries of
// the test.
func (s *suite) withImages(settings map[string]string) map[string]string {
	all := map[string]string{
		"POD_IMAGES":          strings.Trim(s.cloud.image+","+missingImage+","+policyImage+","+tpmImage+","+otherTPMImage, ","),
		"INSECURE_REGISTRIES": s.own.control.Address,
	}
	maps.Copy(all, settings)
	return all
}

func (s *suite) showDaemons(t *testing.T) {
	for _, args := range [][]string{
		{"get", "pods", "-o", "wide"},
		{"logs", "-l", "app.kubernetes.io/part-of=outrigger", "--all-containers", "--tail=60", "--prefix"},
		{"logs", "-l", "app=cloud-api-adaptor", "--tail=200"},
	} {
		out, err := s.TryKubectl(append([]string{"-n", deployed.Namespace}, args...)...)
		t.Logf("%s%v", out, errText(err))
	}
}
