// SPDX-License-Identifier: Apache-2.0

//go:build integration

package nodes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/providers/libvirt"
	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/deployed"
	"github.com/outrigger/outrigger/test/libvirtd"
	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
)

func TestMain(m *testing.M) { testns.Main(m) }

// Names of what is installed.
const (
	namespace  = "ccm-system"
	manager    = "libvirt-cloud-controller-manager" // the Deployment
	imageKey   = "cloudControllerManagerOutrigger"
	rackTag    = "rack"
	rackLabel  = "example.org/rack"
	siteLabel  = "example.org/site"
	external   = "--cloud-provider=external"
	here       = "here" // the usual value
	clusterTag = "e2e"
)

// patience bounds what is waited for: it is ten times what that takes and more.
const patience = 3 * time.Minute

// lab is a cluster, and a libvirt daemon with the instances of its Nodes.
type lab struct {
	*testing.T
	api    *cluster.ControlPlane
	client kubernetes.Interface
	plain  *plainNodes
	// domains are instances that the inventory has lost, as XML.
	domains map[string]string
	// installed is the kustomization of the operator; bare is what there was
	// before it, and idle before there was a CloudControllerManager.
	installed  *string
	bare, idle *[]string
	// top is the whole test, for what lives on after a part of it.
	top *testing.T
	// token is that of somebody who may read metrics.
	token string
	// registry has the images of the operator and the manager, by their names.
	registry  *cluster.Registry
	images    map[string]string
	daemon    *libvirtd.Daemon
	cloud     *libvirt.Provider
	instances map[string]*provider.Instance
	// first is the control plane's node, on which everything runs; second begins
	// with a kubelet that lacks its flag.
	first, second *cluster.Node
}

// of is the same lab for a part of the test.
func (l *lab) of(t *testing.T) *lab {
	part := *l
	part.T = t
	return &part
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{T: t, top: t, registry: &cluster.Registry{}, images: map[string]string{}, instances: map[string]*provider.Instance{},
		domains: map[string]string{}, installed: new(string), bare: new([]string), idle: new([]string)}
	images := deployed.Images(t, "ccm-operator", "cloud-controller-manager")
	// A kubelet that is gone is seen soon.
	l.api = cluster.StartControlPlane(t, cluster.ControlPlaneOptions{ControllerManager: []string{"--node-monitor-grace-period=15s", "--node-monitor-period=1s"}})
	l.client = kubernetes.NewForConfigOrDie(l.api.RESTConfig())
	l.registry.Start(t, l.api)
	for _, i := range images {
		name := filepath.Base(strings.TrimSuffix(i.Ref, ":latest"))
		l.images[name] = l.registry.Push(t, "outrigger/"+name+":1", i.Image)
	}
	l.startLibvirt()
	l.first = l.node("node1", external)
	l.api.Kubectl(t, "label", "node", "node1", "node-role.kubernetes.io/control-plane=")
	l.second = l.node("node2")
	l.plain, l.token = newPlainNodes(l), l.makeScraper()
	t.Cleanup(func() {
		if t.Failed() {
			l.describe()
		}
	})
	return l
}

// startLibvirt starts a daemon that is reached over the network, by TLS.
func (l *lab) startLibvirt() {
	l.Helper()
	image := filepath.Join(l.TempDir(), "empty.qcow2")
	stand.Run(l, "qemu-img", "create", "-q", "-f", "qcow2", image, "1M")
	l.daemon = libvirtd.Start(l, libvirtd.Options{Image: image, TLS: true, Listen: l.api.Address})
	c := libvirt.DefaultConfig()
	c.URI, c.Pool, c.Network, c.Volume = l.daemon.URI, libvirtd.Pool, libvirtd.Network, libvirtd.Volume
	c.Firmware, c.DomainType = "bios", "qemu" // the guests find nothing to boot
	c.CPUs, c.Memory, c.RootDisk = 1, 96, 0
	var err error
	l.cloud, err = libvirt.New(c)
	l.must(err)
	l.Cleanup(func() { l.cloud.Teardown() })
}

// instance makes one for a Node. Its guest is switched off: the machine's part is
// another's, and a dozen guests would need the processors.
func (l *lab) instance(name string) *provider.Instance {
	l.Helper()
	i, err := l.cloud.CreateInstance(l.Context(), name, name, cloudinit.Raw("#cloud-config\n"), provider.InstanceTypeSpec{Tags: map[string]string{
		provider.TagCluster: clusterTag, provider.TagKey: name, provider.TagPod: name, rackTag: "r-" + name,
	}})
	l.must(err)
	l.must(l.cloud.PowerOff(l.Context(), i.ID))
	l.instances[name] = i
	return i
}

// node starts a machine with kubelet for a new instance: it has that one's address.
func (l *lab) node(name string, kubelet ...string) *cluster.Node {
	l.Helper()
	i := l.instance(name)
	return cluster.StartNode(l, l.api, cluster.NodeOptions{
		Name: name, Address: i.IPs[0], KubeletArgs: kubelet,
		Mirrors: map[string]string{l.registry.Host: l.registry.URL()},
		Kubelet: map[string]any{"nodeLeaseDurationSeconds": 12},
	})
}

func (l *lab) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// until waits; an error says how it still is.
func (l *lab) until(what string, ask func() error) {
	l.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			l.Fatalf("not in %s: %s: %v", patience, what, err)
		}
	}
}

// get returns nil where there is no such Node.
func (l *lab) get(name string) *corev1.Node {
	l.Helper()
	n, err := l.client.CoreV1().Nodes().Get(l.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	l.must(err)
	return n
}

// gone waits until there is no such Node.
func (l *lab) gone(name string) {
	l.Helper()
	l.until("Node "+name+" is deleted", func() error {
		if n := l.get(name); n != nil {
			return fmt.Errorf("it is there: conditions %+v, annotations %v", n.Status.Conditions, n.Annotations)
		}
		return nil
	})
}

// event waits for an Event of a Node.
func (l *lab) event(node, reason string, words ...string) {
	l.Helper()
	l.eventOf("", node, reason, words...)
}

// eventOf waits for one that a component tells, which may be any, and returns its
// text.
func (l *lab) eventOf(component, node, reason string, words ...string) string {
	l.Helper()
	var text string
	l.until("Event "+reason+" of Node "+node, func() error {
		list, err := l.client.CoreV1().Events("").List(l.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + node + ",reason=" + reason})
		l.must(err)
		for _, e := range list.Items {
			if component != "" && e.ReportingController != component {
				continue
			}
			if text = e.Message; contains(text, words...) == nil {
				return nil
			}
		}
		return fmt.Errorf("of %d the last is %q, want %q", len(list.Items), text, words)
	})
	return text
}

func contains(text string, words ...string) error {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return fmt.Errorf("%q lacks %q", text, w)
		}
	}
	return nil
}

// install applies a kustomization over what is to be installed, as the manual does.
func (l *lab) install() string {
	l.Helper()
	dir, err := filepath.EvalSymlinks(l.top.TempDir())
	l.must(err)
	base, err := filepath.Rel(dir, filepath.Join(stand.Root(), "deploy/ccm-operator/kubernetes"))
	l.must(err)
	name, tag, _ := cutLast(l.images["ccm-operator"], ":")
	l.must(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), fmt.Appendf(nil, kustomization, base, name, tag), 0o600))
	l.api.Kubectl(l, "apply", "--server-side", "-k", dir)
	return dir
}

// kustomization has short times, and our image.
const kustomization = `resources: [%s]
images: [{name: localhost/outrigger/ccm-operator, newName: %q, newTag: %q}]
patches:
- target: {kind: Deployment, name: ccm-operator}
  patch: |
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --watchdog-after=1s}
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --requeue=1s}
`

func cutLast(text, sep string) (before, after string, found bool) {
	i := strings.LastIndex(text, sep)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(sep):], true
}

// describe shows why something does not come.
func (l *lab) describe() {
	for _, args := range [][]string{
		{"get", "nodes,pods", "-A", "-o", "wide"}, {"get", "ccm", "-o", "yaml"}, {"describe", "pods", "-n", namespace},
		{"get", "events", "-A", "--sort-by=.lastTimestamp"},
		{"-n", namespace, "logs", "deployment/ccm-operator", "--tail=40"}, {"-n", namespace, "logs", "deployment/" + manager, "--tail=40"},
		{"-n", namespace, "logs", "deployment/" + manager, "--tail=20", "--previous"},
	} {
		out, err := l.api.TryKubectl(args...)
		l.Logf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
