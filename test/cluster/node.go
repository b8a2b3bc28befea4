// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
)

// NodeOptions are what a test may want otherwise.
type NodeOptions struct {
	// Name is node1, node2 and so on by default.
	Name string
	// Labels are the node's, from its first moment.
	Labels map[string]string
	// Runtimes are handlers for RuntimeClasses besides runc.
	Runtimes []Runtime
	// Images are there from the start, besides those of [Images].
	Images []Image
	// Mirrors say for a registry's host where it is in truth, by URL.
	Mirrors map[string]string
	// Containerd is added to containerd's configuration.
	Containerd string
	// Kubelet is laid over kubelet's configuration, by its keys there
	// (KubeletConfiguration, kubelet.config.k8s.io/v1beta1).
	Kubelet map[string]any
	// KubeletArgs are added to kubelet's arguments.
	KubeletArgs []string
	// Address, if any, is one more of the node's, by which the cluster knows it:
	// that of an instance for which the node stands in.
	Address netip.Addr
}

// Node is a machine of its own as far as Kubernetes and network plugins can
// tell: file system, network and host name are private, processors and memory
// shared. containerd, kubelet and kube-proxy run on it.
type Node struct {
	Name string
	// IP is its address on the network of the nodes.
	IP string
	// Dir holds what its programs write, and their logs in log/.
	Dir string
	// Containerd, Kubelet and Proxy may be stopped, killed and restarted.
	Containerd, Kubelet, Proxy *stand.Process

	cluster *ControlPlane
	house   *house
	number  int
	ip      netip.Addr
	options NodeOptions
	// cgroup is the root of kubelet's cgroups, as kubelet names it.
	cgroup string
}

// StartNode returns when the node is Ready and has its images. Root, and a
// TestMain that is [testns.Main], are needed.
func StartNode(t testing.TB, c *ControlPlane, o NodeOptions) *Node {
	t.Helper()
	testns.RequireRoot(t)
	if !testns.Inside() {
		t.Fatal("a node changes network and mounts: the package's TestMain must be testns.Main")
	}
	n := &Node{Name: o.Name, Dir: stand.Dir(t), cluster: c, options: o, number: freeNumber(t)}
	n.ip = nodeAddress(n.number)
	n.IP = n.ip.String()
	if n.Name == "" {
		n.Name = fmt.Sprintf("node%d", n.number)
	}
	n.cgroup = "/" + cgroupPrefix + filepath.Base(n.Dir)
	n.house = openHouse(t, n)
	n.attach(t)
	n.startContainerd(t)
	n.startKubelet(t)
	n.startProxy(t)
	n.importImages(t)
	n.AwaitReady(t)
	return n
}

// freeNumber is the first whose interface is not there.
func freeNumber(t testing.TB) int {
	t.Helper()
	for i := 1; i < 250; i++ {
		if _, err := netlink.LinkByName(fmt.Sprintf("ornode%d", i)); err != nil {
			return i
		}
	}
	t.Fatal("too many nodes")
	return 0
}

// AwaitReady waits until the control plane calls the node Ready.
func (n *Node) AwaitReady(t testing.TB) {
	t.Helper()
	n.cluster.await(t, "node "+n.Name+" to be Ready", func(ctx context.Context) error {
		body, err := n.cluster.read(ctx, "/api/v1/nodes/"+n.Name)
		if err != nil {
			return err
		}
		return ready(body)
	})
}

func ready(node []byte) error {
	var v struct {
		Status struct {
			Conditions []struct{ Type, Status, Message string }
		}
	}
	if err := json.Unmarshal(node, &v); err != nil {
		return err
	}
	for _, c := range v.Status.Conditions {
		if c.Type == "Ready" && c.Status == "True" {
			return nil
		}
	}
	return fmt.Errorf("its conditions: %+v", v.Status.Conditions)
}

// Command returns arguments that run a program on the node.
func (n *Node) Command(args ...string) []string { return n.house.command(args...) }

// Run runs a program on the node and returns its output; failure ends the test.
func (n *Node) Run(t testing.TB, args ...string) string {
	t.Helper()
	args = n.Command(args...)
	return stand.Run(t, args[0], args[1:]...)
}

// Path is where this process finds a file of the node.
func (n *Node) Path(path string) string { return n.house.path(path) }

// Daemon makes a daemon one that runs on the node, for [stand.Start]. Its
// Socket is a path of the node, Path must be absolute and Log is as it was.
func (n *Node) Daemon(d stand.Daemon) stand.Daemon {
	args := n.Command(append([]string{d.Path}, d.Args...)...)
	d.Path, d.Args = args[0], args[1:]
	if d.Socket != "" {
		d.Socket = n.Path(d.Socket)
	}
	return d
}

// MountNamespace identifies it, as the link /proc/PID/ns/mnt of the node's
// processes does.
func (n *Node) MountNamespace() string { return n.house.mounts }

// Kubeconfig returns a file for daemons on the node that act as the user.
func (n *Node) Kubeconfig(t testing.TB, u *User) string {
	t.Helper()
	server := "https://" + net.JoinHostPort(n.cluster.Address, n.cluster.Port())
	return n.write(t, filepath.Base(u.Kubeconfig), u.KubeconfigFor(t, server))
}

func (n *Node) path(name string) string { return filepath.Join(n.Dir, name) }

func (n *Node) log(name string) string { return n.path("log/" + name + ".log") }

func (n *Node) write(t testing.TB, name, text string) string {
	t.Helper()
	path := n.path(name)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	must(t, err, "write the node's configuration")
	return path
}

// program starts one of the Kubernetes programs on the node.
func (n *Node) program(t testing.TB, name string, args ...string) *stand.Process {
	t.Helper()
	return stand.Start(t, n.Daemon(stand.Daemon{Path: filepath.Join(n.cluster.programs, name), Args: args, Log: n.log(name)}))
}

func (n *Node) startKubelet(t testing.TB) {
	t.Helper()
	settings := n.kubeletSettings()
	maps.Copy(settings, n.options.Kubelet)
	data, err := json.MarshalIndent(settings, "", "  ") // YAML includes JSON
	must(t, err, "kubelet's configuration")
	user := n.cluster.NewUser(t, "system:node:"+n.Name, "system:nodes")
	args := []string{
		"--config=" + n.write(t, "kubelet.yaml", string(data)),
		"--kubeconfig=" + n.Kubeconfig(t, user),
		"--hostname-override=" + n.Name,
		// Without it kubelet asks DNS for its own name.
		"--node-ip=" + n.address(),
		"--cert-dir=/var/lib/kubelet/pki",
	}
	for key, value := range n.options.Labels {
		args = append(args, "--node-labels="+key+"="+value)
	}
	n.Kubelet = n.program(t, "kubelet", append(args, n.options.KubeletArgs...)...)
}

// RestartKubelet ends kubelet and starts it with other KubeletArgs. Pods run on.
func (n *Node) RestartKubelet(t testing.TB, args ...string) {
	t.Helper()
	n.Kubelet.Stop(syscall.SIGTERM)
	n.options.KubeletArgs = args
	n.startKubelet(t)
}

// address is the one by which the cluster knows the node.
func (n *Node) address() string {
	if n.options.Address.IsValid() {
		return n.options.Address.String()
	}
	return n.IP
}

func (n *Node) kubeletSettings() map[string]any {
	type object = map[string]any
	return object{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
		// Also where the machine still has version 1 of cgroups.
		"failCgroupV1": false,
		"cgroupDriver": "cgroupfs",
		"cgroupRoot":   n.cgroup,
		"failSwapOn":   false,
		"address":      n.address(),
		"authentication": object{
			"anonymous": object{"enabled": false}, "webhook": object{"enabled": true},
			"x509": object{"clientCAFile": n.cluster.path("pki/ca.crt")},
		},
		"authorization": object{"mode": "Webhook"},
		// The machine's disk and its other users are not the tests' affair.
		"evictionHard":                object{"memory.available": "50Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%"},
		"imageGCHighThresholdPercent": 100,
		"imageGCLowThresholdPercent":  99,
		"enforceNodeAllocatable":      []string{"pods"},
		"nodeStatusUpdateFrequency":   "2s",
		"syncFrequency":               "5s",
		"fileCheckFrequency":          "5s",
		// What changes in ConfigMaps and Secrets is seen by a watch; mounts are
		// written at the next sync.
		"configMapAndSecretChangeDetectionStrategy": "Watch",
		"resolvConf":    "",
		"clusterDNS":    []string{DNS},
		"clusterDomain": Domain,
	}
}

func (n *Node) startProxy(t testing.TB) {
	t.Helper()
	user := n.cluster.NewUser(t, "system:kube-proxy")
	n.Proxy = n.program(t, "kube-proxy",
		"--kubeconfig="+n.Kubeconfig(t, user),
		"--hostname-override="+n.Name,
		"--proxy-mode=iptables",
		"--cluster-cidr="+podSubnet(n.number).String(),
		// These are of the whole machine.
		"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0",
		"--metrics-bind-address=127.0.0.1:10249", "--healthz-bind-address=127.0.0.1:10256",
		"--iptables-min-sync-period=0s",
	)
}
