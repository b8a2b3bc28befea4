// SPDX-License-Identifier: Apache-2.0

//go:build integration

package vsphereccm

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
	"github.com/outrigger/outrigger/internal/cli/demoimage"
	"github.com/outrigger/outrigger/test/cluster"
	teststand "github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
)

// realManager is the variable that asks for the real manager, which takes minutes
// to build.
const realManager = "OUTRIGGER_VSPHERE_CCM"

const (
	managerImage  = "outrigger.test/cloud-provider-vsphere:v1.36.0"
	password      = "right password"
	uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
	// nodeVM is the VM of the node that is there, paperVM that of one which is a
	// Node object alone.
	nodeVM, nodeName   = "DC0_H0_VM0", "dc0-h0-vm0"
	paperVM, paperName = "DC0_H0_VM1", "dc0-h0-vm1"
	paperAddress       = "192.168.99.77"
)

// TestRealManager is the example at a vCenter: a kubelet starts the real manager
// as the bundle says, with no other rights than those that the bundle gives.
func TestRealManager(t *testing.T) {
	s, v, n := withCenter(t)
	s.operator(t)
	s.Apply(t, v.manifests(t, s))
	t.Run("ANodeIsInitialized", func(t *testing.T) { s.initialized(t, v, nodeName, nodeVM, n.IP) })
	t.Run("RolledOut", func(t *testing.T) {
		s.is(t, ccmv1alpha1.AvailableCondition, metav1.ConditionTrue, "")
		s.is(t, ccmv1alpha1.ProgressingCondition, metav1.ConditionFalse, "")
		s.is(t, ccmv1alpha1.WarningCondition, metav1.ConditionFalse, "")
	})
	t.Run("APodHasItsToken", func(t *testing.T) { s.hasToken(t, n) })
	t.Run("AnotherNodeComes", func(t *testing.T) {
		s.paperNode(t, v)
		s.initialized(t, v, paperName, paperVM, paperAddress)
	})
	t.Run("AVMIsDestroyed", func(t *testing.T) { s.destroyed(t, v) })
	t.Run("ConfigurationRollsOut", func(t *testing.T) { s.podIsReplaced(t, v) })
}

// TestRealManagerOfTheBuiltInBundle reads its Secret through the API.
func TestRealManagerOfTheBuiltInBundle(t *testing.T) {
	s, v, n := withCenter(t)
	s.operator(t, withoutFolder)
	s.Apply(t, strings.Replace(v.manifests(t, s), "secretsDirectory: /etc/cloud/credentials", "secretName: "+secret+"\n      secretNamespace: "+namespace, 1))
	s.initialized(t, v, nodeName, nodeVM, n.IP)
	if ofTheExample(s.deployment(t, manager)) {
		t.Error("it is not the built-in bundle")
	}
}

// withCenter is the example beside a vCenter and on a node that is one of its VMs.
func withCenter(t *testing.T) (*stand, *center, *cluster.Node) {
	t.Helper()
	if os.Getenv(realManager) != "1" {
		t.Skip("builds and runs the real cloud controller manager of vSphere: about 5 minutes of processor time the first time; run: make test-vsphere-ccm")
	}
	testns.RequireRoot(t)
	programs := buildPrograms(t)
	s := newStand(t)
	n := cluster.StartNode(t, s.ControlPlane, cluster.NodeOptions{
		Name: nodeName, KubeletArgs: []string{"--cloud-provider=external"},
		Images: []cluster.Image{image(t, programs)},
	})
	// What an installer of clusters does.
	s.Kubectl(t, "label", "node", nodeName, "node-role.kubernetes.io/control-plane=")
	v := startCenter(t, programs, s.Address)
	v.do(t, "guest", nodeVM, nodeName, n.IP)
	v.do(t, "guest", paperVM, paperName, paperAddress)
	return s, v, n
}

func buildPrograms(t *testing.T) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(teststand.Root(), "test", "vsphere-ccm.sh"))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	must(t, err)
	return strings.TrimSpace(string(out))
}

func image(t *testing.T, programs string) cluster.Image {
	t.Helper()
	i, err := demoimage.Image(demoimage.Options{Extra: map[string]string{manager: filepath.Join(programs, manager)}})
	must(t, err)
	return cluster.Image{Ref: managerImage, Image: i}
}

// center is a running vcsim: a process of its own, since its own locking is not
// what the race detector wants.
type center struct {
	Address   string
	Port      string
	Authority string
	// VMs are UUIDs by name.
	VMs map[string]string

	orders  io.Writer
	answers *bufio.Scanner
}

func startCenter(t *testing.T, programs, address string) *center {
	t.Helper()
	cmd := exec.Command(filepath.Join(programs, "vcsim"), "-address="+address, "-password="+password)
	cmd.Stderr = t.Output()
	orders, err := cmd.StdinPipe()
	must(t, err)
	answers, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { orders.Close(); cmd.Wait() })
	c := &center{orders: orders, answers: bufio.NewScanner(answers)}
	must(t, json.Unmarshal([]byte(c.line(t)), c))
	return c
}

func (c *center) line(t *testing.T) string {
	t.Helper()
	if !c.answers.Scan() {
		t.Fatalf("vcsim ended: %v", c.answers.Err())
	}
	return c.answers.Text()
}

func (c *center) do(t *testing.T, words ...string) {
	t.Helper()
	_, err := fmt.Fprintln(c.orders, strings.Join(words, " "))
	must(t, err)
	if answer := c.line(t); answer != "ok" {
		t.Fatalf("vcsim: %v: %s", words, answer)
	}
}

// manifests are cloud.yaml for this vCenter, whose certificate is trusted because
// of spec.trustedCA.
func (c *center) manifests(t *testing.T, s *stand) string {
	t.Helper()
	authority := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "vcenter-ca"}, Data: map[string]string{"ca-bundle.crt": c.Authority}}
	must(t, s.client.Create(t.Context(), authority))
	return strings.Join([]string{
		c.config(t, c.Port), cloud(t, "Secret", "vcenter.example", c.Address, "change-me", password),
		cloud(t, "CloudControllerManager", "registry.k8s.io/cloud-pv-vsphere/cloud-provider-vsphere:v1.36.0", managerImage,
			"cloudConfig:", "trustedCA: {name: vcenter-ca}\n  identity: {audience: vcenter.example}\n  topology: SingleReplica\n  cloudConfig:"),
	}, "\n---\n")
}

func (c *center) config(t *testing.T, port string) string {
	t.Helper()
	return cloud(t, "ConfigMap", "vcenter.example", c.Address, "port: 443", "port: "+port)
}

// hasToken: a kubelet has given the pod the token that spec.identity asks for.
func (s *stand) hasToken(t *testing.T, n *cluster.Node) {
	t.Helper()
	token, err := os.ReadFile(n.Path("/var/lib/kubelet/pods/" + s.pod(t) + "/volumes/kubernetes.io~projected/cloud-identity/token"))
	must(t, err)
	parts := strings.Split(string(token), ".")
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	must(t, err)
	for _, want := range []string{`"aud":["vcenter.example"]`, `"sub":"system:serviceaccount:ccm-system:cloud-controller-manager"`} {
		if !strings.Contains(string(claims), want) {
			t.Errorf("the token says %s, want %s", claims, want)
		}
	}
}

// paperNode is a Node that no kubelet has made: nobody says that it is Ready.
func (s *stand) paperNode(t *testing.T, c *center) {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: paperName}}
	n.Spec.Taints = []corev1.Taint{{Key: uninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	must(t, s.client.Create(t.Context(), n))
	was := n.DeepCopy()
	n.Status.NodeInfo.SystemUUID = c.VMs[paperVM]
	must(t, s.client.Status().Patch(t.Context(), n, client.MergeFrom(was)))
}

// initialized waits until a Node has all that its manager gives it.
func (s *stand) initialized(t *testing.T, c *center, name, vm, address string) {
	t.Helper()
	var n corev1.Node
	eventually(t, "Node "+name+" without its taint", func() (string, bool) {
		must(t, s.client.Get(t.Context(), client.ObjectKey{Name: name}, &n))
		return fmt.Sprint(n.Spec.Taints), !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == uninitialized })
	})
	if want := "vsphere://" + c.VMs[vm]; n.Spec.ProviderID != want {
		t.Errorf("providerID %q, want %q", n.Spec.ProviderID, want)
	}
	eventually(t, "addresses", func() (string, bool) { // they come after the taint has gone
		must(t, s.client.Get(t.Context(), client.ObjectKey{Name: name}, &n))
		return fmt.Sprint(n.Status.Addresses), slices.Contains(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address}) &&
			slices.Contains(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: address})
	})
	for label, want := range map[string]string{
		corev1.LabelTopologyZone: "z1", corev1.LabelTopologyRegion: "r1", corev1.LabelInstanceTypeStable: "vsphere-vm.cpu-1.mem-0gb.os-other",
	} {
		if is := n.Labels[label]; is != want {
			t.Errorf("label %s is %q, want %q", label, is, want)
		}
	}
}

// destroyed: the Node of a VM that is gone is kept by the guard, which does not
// know it for long enough, until somebody says that it may go.
func (s *stand) destroyed(t *testing.T, c *center) {
	c.do(t, "destroy", paperVM)
	eventually(t, "the refusal", func() (string, bool) {
		events := s.Kubectl(t, "get", "events", "--all-namespaces", "--field-selector=involvedObject.kind=Node,involvedObject.name="+paperName)
		return events, strings.Contains(events, "DeletingNodeFailed")
	})
	var n corev1.Node
	must(t, s.client.Get(t.Context(), client.ObjectKey{Name: paperName}, &n))
	s.Kubectl(t, "annotate", "node", paperName, "ccm.outrigger.dev/deletion=allow", "--overwrite")
	eventually(t, "the end of the Node", func() (string, bool) {
		err := s.client.Get(t.Context(), client.ObjectKey{Name: paperName}, &n)
		return "there", apierrors.IsNotFound(err)
	})
	must(t, s.client.Get(t.Context(), client.ObjectKey{Name: nodeName}, &n))
}

// podIsReplaced by a configuration that is another; not by one that is wrong.
func (s *stand) podIsReplaced(t *testing.T, c *center) {
	before, hash := s.pod(t), s.configHash(t)
	s.Apply(t, c.config(t, "many"))
	s.is(t, ccmv1alpha1.DegradedCondition, metav1.ConditionTrue, "it is not valid for VSphere")
	if is := s.configHash(t); is != hash {
		t.Errorf("a wrong configuration was rolled out: %s", is)
	}
	s.Apply(t, c.config(t, c.Port+"\n      soapRoundtripCount: 5"))
	s.is(t, ccmv1alpha1.DegradedCondition, metav1.ConditionFalse, "")
	s.rolls(t, hash)
	eventually(t, "another pod", func() (string, bool) {
		is := s.pod(t)
		return is, is != before && is != ""
	})
	s.is(t, ccmv1alpha1.ProgressingCondition, metav1.ConditionFalse, "")
}

// pod is the UID of the manager's one that is Ready, if there is one.
func (s *stand) pod(t *testing.T) string {
	t.Helper()
	var pods corev1.PodList
	must(t, s.client.List(t.Context(), &pods, client.InNamespace(namespace), client.MatchingLabels{"k8s-app": manager}))
	for _, p := range pods.Items {
		if slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }) {
			return string(p.UID)
		}
	}
	return ""
}
