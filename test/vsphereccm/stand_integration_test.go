// SPDX-License-Identifier: Apache-2.0

//go:build integration

package vsphereccm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
	"github.com/outrigger/outrigger/test/cluster"
	teststand "github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
)

func TestMain(m *testing.M) { testns.Main(m) }

const (
	namespace = "ccm-system"
	manager   = "vsphere-cloud-controller-manager"
	secret    = "vsphere-cloud-credentials"
	patience  = 3 * time.Minute
)

func example(name string) string {
	return filepath.Join(teststand.Root(), "examples", "ccm-bundle-vsphere", name)
}

// stand is a cluster into which the example was installed.
type stand struct {
	*cluster.ControlPlane
	client client.Client
	// bundle is the ConfigMap that the operator has as a folder.
	bundle map[string]string
	// args are the operator's, as installed.
	args []string
}

func newStand(t *testing.T) *stand {
	s := &stand{ControlPlane: cluster.StartControlPlane(t, cluster.ControlPlaneOptions{})}
	scheme := runtime.NewScheme()
	must(t, clientscheme.AddToScheme(scheme))
	must(t, ccmv1alpha1.AddToScheme(scheme))
	var err error
	s.client, err = client.New(s.RESTConfig(), client.Options{Scheme: scheme})
	must(t, err)
	s.Kubectl(t, "apply", "--server-side", "--kustomize", example(""))
	s.Kubectl(t, "wait", "--for=condition=Established", "--timeout=3m", "crd", "cloudcontrollermanagers.ccm.outrigger.dev")
	operator := s.deployment(t, "ccm-operator")
	s.args = operator.Spec.Template.Spec.Containers[0].Args
	var mounted corev1.ConfigMap
	must(t, s.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: operator.Spec.Template.Spec.Volumes[0].ConfigMap.Name}, &mounted))
	s.bundle = mounted.Data
	// It runs as a process of this machine, so that no node is needed.
	s.Kubectl(t, "scale", "--namespace", namespace, "deployment", "ccm-operator", "--replicas=0")
	return s
}

// mount writes a ConfigMap as a kubelet does: names are links.
func mount(t *testing.T, folder string, data map[string]string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Join(folder, "..2026"), 0o755))
	must(t, os.Symlink("..2026", filepath.Join(folder, "..data")))
	for key, text := range data {
		must(t, os.WriteFile(filepath.Join(folder, "..2026", key), []byte(text), 0o600))
		must(t, os.Symlink(filepath.Join("..data", key), filepath.Join(folder, key)))
	}
}

// operator runs the built program with the rights and the arguments of its
// installation, except for those that the change takes away. It returns its
// end.
func (s *stand) operator(t *testing.T, change ...func(args []string) []string) (stop func()) {
	t.Helper()
	dir := teststand.Dir(t)
	folder := filepath.Join(dir, "bundles", "vsphere")
	mount(t, folder, s.bundle)
	args := append([]string{}, s.args...)
	for i := range args {
		args[i] = strings.Replace(args[i], "/bundles/vsphere", folder, 1)
	}
	for _, f := range change {
		args = f(args)
	}
	args = append(args, "--kubeconfig="+s.ServiceAccount(t, namespace, "ccm-operator").Kubeconfig,
		"--metrics-bind-address=0", "--health-addr=0", "--requeue=1s", "--watchdog-after=1s")
	p := teststand.Start(t, teststand.Daemon{Path: teststand.Binary(t, "ccm-operator"), Args: args, Log: filepath.Join(dir, "operator.log")})
	return func() { p.Stop(syscall.SIGTERM) }
}

// withoutFolder is an operator that has its own bundles alone.
func withoutFolder(args []string) (left []string) {
	for _, a := range args {
		if !strings.HasPrefix(a, "--bundle-dir=") {
			left = append(left, a)
		}
	}
	return left
}

// cloud is cloud.yaml of the example, one manifest of a kind, after changes.
func cloud(t *testing.T, kind string, changes ...string) string {
	t.Helper()
	text, err := os.ReadFile(example("cloud.yaml"))
	must(t, err)
	for _, doc := range strings.Split(string(text), "\n---\n") {
		if strings.Contains(doc, "kind: "+kind+"\n") {
			return strings.NewReplacer(changes...).Replace(doc)
		}
	}
	t.Fatalf("cloud.yaml has no %s", kind)
	return ""
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, f func() (is string, ok bool)) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		is, ok := f()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: after %s: %s", what, patience, is)
		}
	}
}

// deployment waits for one.
func (s *stand) deployment(t *testing.T, name string) *appsv1.Deployment {
	t.Helper()
	var d appsv1.Deployment
	eventually(t, "Deployment "+name, func() (string, bool) {
		err := s.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &d)
		return fmt.Sprint(err), err == nil
	})
	return &d
}

const hashAnnotation = "operator.openshift.io/config-hash"

func (s *stand) configHash(t *testing.T) string {
	t.Helper()
	return s.deployment(t, manager).Spec.Template.Annotations[hashAnnotation]
}

// rolls waits until what the pods read has another hash than before.
func (s *stand) rolls(t *testing.T, before string) {
	t.Helper()
	eventually(t, "another rollout", func() (string, bool) {
		is := s.configHash(t)
		return is, is != before && is != ""
	})
}

// is waits until a condition of the CloudControllerManager has a status and a
// message that contains something.
func (s *stand) is(t *testing.T, condition string, status metav1.ConditionStatus, says string) {
	t.Helper()
	eventually(t, condition, func() (string, bool) {
		var m ccmv1alpha1.CloudControllerManager
		must(t, s.client.Get(t.Context(), client.ObjectKey{Name: "main"}, &m))
		c := apimeta.FindStatusCondition(m.Status.Conditions, condition)
		if c == nil {
			return "not said", false
		}
		return string(c.Status) + "/" + c.Reason + "/" + c.Message, c.Status == status && strings.Contains(c.Message, says)
	})
}

// deployed is the configuration that pods get.
func (s *stand) deployed(t *testing.T) string {
	t.Helper()
	var m corev1.ConfigMap
	must(t, s.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "cloud-conf"}, &m))
	return m.Data["cloud.conf"]
}
