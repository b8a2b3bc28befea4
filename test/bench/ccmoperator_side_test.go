// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"context"
	"debug/elf"
	"debug/gosym"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/stand"
)

// operatorSide is one operator on one kind of cluster.
type operatorSide struct {
	name, program string
	args          []string
	prepare       func(*testing.T, *operatorCluster) configuration
}

// configuration is the ConfigMap that rolls a Deployment when it changes.
type configuration struct {
	namespace, name, deployment string
	// text is key cloud.conf for a number.
	text func(n int) string
}

// operatorCluster is a cluster with an operator.
type operatorCluster struct {
	*cluster.ControlPlane
	client kubernetes.Interface
	audit  string
	images string
	pid    int
	configuration
	generations chan time.Time
}

// Where all is; OpenShift's own operator has these names compiled in.
const (
	operandsNamespace = "openshift-cloud-controller-manager"
	operatorNamespace = "openshift-cloud-controller-manager-operator"
	operatorUser      = "bench-operator"
	operatorRelease   = "4.99.0"
)

func (s operatorSide) measure(t *testing.T) *operated {
	c := startAudited(t)
	c.configuration = s.prepare(t, c)
	c.play(t)
	c.write(t, 0)
	s.start(t, c)
	c.awaitRollout(t, 0)
	c.awaitRest(t)
	m := &operated{size: size(t, s.program), rss: rss(t, c.pid)}
	m.packages, m.sdks = linked(t, s.program)
	m.idle, m.idleCPU = c.spend(t, func() { time.Sleep(*operatorIdle) })
	m.looks, m.looksCPU = c.spend(t, func() { c.disturb(t) })
	for n := range changes {
		m.toRollout = append(m.toRollout, c.change(t, n+1))
		m.trip = append(m.trip, c.roundTrip(t, n))
	}
	return m
}

// startAudited starts an API server that writes down what the operator asks,
// with the controllers of service accounts alone: workloads are played.
func startAudited(t *testing.T) *operatorCluster {
	t.Helper()
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	keep(t, policy, `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules: [{level: Metadata, users: [`+operatorUser+`]}, {level: None}]
`)
	c := &operatorCluster{audit: log, images: filepath.Join(dir, "images.json"), generations: make(chan time.Time, 1)}
	c.ControlPlane = cluster.StartControlPlane(t, cluster.ControlPlaneOptions{
		APIServer:         []string{"--audit-policy-file=" + policy, "--audit-log-path=" + log},
		ControllerManager: []string{"--controllers=serviceaccount-controller"},
	})
	config := rest.CopyConfig(c.RESTConfig())
	config.QPS = -1
	c.client = kubernetes.NewForConfigOrDie(config)
	return c
}

func keep(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (s operatorSide) start(t *testing.T, c *operatorCluster) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "operator.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	stand.ShowOnFailure(t, log.Name())
	cmd := exec.Command(s.program, append(slices.Clone(s.args), "--kubeconfig="+c.NewUser(t, operatorUser, "system:masters").Kubeconfig,
		"--namespace="+operandsNamespace, "--images-json="+c.images, "--metrics-bind-address=0", "--health-addr=127.0.0.1:0",
		"--leader-elect-resource-namespace="+operatorNamespace)...)
	cmd.Env = append(os.Environ(), "RELEASE_VERSION="+operatorRelease)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.pid = cmd.Process.Pid
	t.Cleanup(func() { cmd.Process.Signal(os.Interrupt); cmd.Wait() })
}

// play is the controller of Deployments: all are rolled out at once.
func (c *operatorCluster) play(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	factory := informers.NewSharedInformerFactoryWithOptions(c.client, 0, informers.WithNamespace(operandsNamespace))
	t.Cleanup(func() { cancel(); factory.Shutdown() })
	see := func(o any) {
		if d := o.(*appsv1.Deployment); d.Name == c.deployment && d.Generation != d.Status.ObservedGeneration {
			c.rollOut(ctx, t, d)
		}
	}
	informer := factory.Apps().V1().Deployments().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, o any) { see(o) }}); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
}

func (c *operatorCluster) rollOut(ctx context.Context, t *testing.T, d *appsv1.Deployment) {
	select {
	case c.generations <- time.Now():
	default: // another change of the same rollout
	}
	status := fmt.Sprintf(`{"status":{"observedGeneration":%d,"conditions":[{"type":"Progressing","status":"True","reason":"NewReplicaSetAvailable"}]}}`, d.Generation)
	_, err := c.client.AppsV1().Deployments(d.Namespace).Patch(ctx, d.Name, types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status")
	if err != nil && ctx.Err() == nil {
		t.Errorf("Deployment %s: %v", d.Name, err)
	}
}

// awaitRollout returns when the Deployment has changed; n is for messages.
func (c *operatorCluster) awaitRollout(t *testing.T, n int) time.Time {
	t.Helper()
	select {
	case at := <-c.generations:
		return at
	case <-time.After(3 * time.Minute):
		syscall.Kill(c.pid, syscall.SIGQUIT) // its log says what it does
		t.Fatalf("configuration %d: Deployment %s has not changed in 3 minutes", n, c.deployment)
		return time.Time{}
	}
}

// write makes the configuration what it is for a number.
func (c *operatorCluster) write(t *testing.T, n int) {
	t.Helper()
	c.put(t, c.namespace, c.name, map[string]string{"cloud.conf": c.text(n)})
}

func (c *operatorCluster) put(t *testing.T, namespace, name string, data map[string]string) *corev1.ConfigMap {
	t.Helper()
	maps := c.client.CoreV1().ConfigMaps(namespace)
	is, err := maps.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		is, err = maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data}, metav1.CreateOptions{})
	} else {
		is.Data = data
		is, err = maps.Update(t.Context(), is, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatalf("ConfigMap %s/%s: %v", namespace, name, err)
	}
	return is
}

// change returns how long it takes from the request that changes the
// configuration to the event that the Deployment has changed.
func (c *operatorCluster) change(t *testing.T, n int) time.Duration {
	t.Helper()
	begun := time.Now()
	c.write(t, n)
	took := c.awaitRollout(t, n).Sub(begun)
	c.awaitRest(t)
	return took
}

// roundTrip is what a write and its event take by themselves.
func (c *operatorCluster) roundTrip(t *testing.T, n int) time.Duration {
	t.Helper()
	w, err := c.client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=round-trip"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	begun := time.Now()
	want := c.put(t, "default", "round-trip", map[string]string{"n": fmt.Sprint(n)}).ResourceVersion
	for e := range w.ResultChan() {
		if m, ok := e.Object.(*corev1.ConfigMap); ok && m.ResourceVersion == want {
			return time.Since(begun)
		}
	}
	t.Fatal("the watch ended")
	return 0
}

// disturb has the operator look though there is nothing to do: something changes
// that it looks at and that concerns nothing.
func (c *operatorCluster) disturb(t *testing.T) {
	for n := range changes {
		c.put(t, operandsNamespace, "of-somebody-else", map[string]string{"n": fmt.Sprint(n)})
		time.Sleep(500 * time.Millisecond) // each is looked at by itself
	}
}

// linked returns how many packages have functions in a program, and how many of
// these are of clouds' SDKs.
func linked(t *testing.T, program string) (all, sdks int) {
	t.Helper()
	file, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines, err := file.Section(".gopclntab").Data()
	if err != nil {
		t.Fatal(err)
	}
	table, err := gosym.NewTable(nil, gosym.NewLineTable(lines, file.Section(".text").Addr))
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string]bool{}
	for _, f := range table.Funcs {
		if name := f.PackageName(); name != "" && !packages[name] {
			packages[name] = true
			if ofSDK(name) {
				sdks++
			}
		}
	}
	return len(packages), sdks
}

func ofSDK(name string) bool {
	return slices.ContainsFunc([]string{"github.com/aws/", "github.com/Azure/", "k8s.io/cloud-provider-", "sigs.k8s.io/cloud-provider-", "cloud.google.com/", "github.com/IBM",
		"github.com/gophercloud/", "github.com/vmware/", "github.com/nutanix-cloud-native/", "github.com/aliyun/"},
		func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
