// SPDX-License-Identifier: Apache-2.0

//go:build integration

package deploy

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/stand"
)

// site is an API server at which operators are installed.
type site struct {
	*cluster.ControlPlane
	client client.Client
	dir    string
	images string
}

func newSite(t *testing.T) *site {
	s := &site{
		ControlPlane: cluster.StartControlPlane(t, cluster.ControlPlaneOptions{ControllerManager: []string{
			"--controllers=serviceaccount-controller,clusterrole-aggregation-controller,namespace-controller,garbage-collector-controller",
		}}),
		dir: t.TempDir(),
	}
	s.images = filepath.Join(s.dir, "images.json")
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, configv1.Install, ccmv1alpha1.AddToScheme} {
		must(t, add(scheme))
	}
	var err error
	s.client, err = client.New(s.RESTConfig(), client.Options{Scheme: scheme})
	must(t, err)
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, f func() (string, bool)) {
	t.Helper()
	for end := time.Now().Add(90 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		is, ok := f()
		if ok {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: after 90s it is %s", what, is)
		}
	}
}

// applied applies a render and returns the Deployment.
func (s *site) applied(t *testing.T, render []byte) *appsv1.Deployment {
	t.Helper()
	s.kubectlWith(t, render, "apply", "--server-side", "--validate=strict", "--filename=-")
	return deploymentOf(t, render)
}

func (s *site) kubectlWith(t *testing.T, input []byte, args ...string) {
	t.Helper()
	cmd := s.Command(args...)
	cmd.Stdin = strings.NewReader(string(input))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("kubectl %v: %v: %s", args, err, out)
	}
}

func deploymentOf(t *testing.T, render []byte) *appsv1.Deployment {
	t.Helper()
	var d appsv1.Deployment
	all := parse(t, render)
	i := slices.IndexFunc(all, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Deployment" })
	must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(all[i].Object, &d))
	return &d
}

// run starts a container's program as the account of its pod.
func (s *site) run(t *testing.T, d *appsv1.Deployment, container string, more ...string) *daemon {
	t.Helper()
	i := slices.IndexFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return c.Name == container })
	c := d.Spec.Template.Spec.Containers[i]
	user := s.ServiceAccount(t, d.Namespace, d.Spec.Template.Spec.ServiceAccountName)
	o := stand.Daemon{
		Path: stand.Binary(t, "ccm-operator"), Log: filepath.Join(s.dir, strings.ReplaceAll(t.Name(), "/", "-")+container+".log"),
		Args: append(append(slices.Clone(c.Args), "--kubeconfig="+user.Kubeconfig), more...),
	}
	for _, v := range c.Env {
		o.Env = append(o.Env, v.Name+"="+v.Value)
	}
	p := &daemon{stand.Start(t, o), c, o.Log}
	t.Cleanup(func() { p.nothingForbidden(t) })
	return p
}

type daemon struct {
	*stand.Process
	container corev1.Container
	log       string
}

// end stops it as a kubelet does.
func (d *daemon) end(t *testing.T) {
	t.Helper()
	d.Stop(syscall.SIGTERM)
	d.nothingForbidden(t)
}

func (d *daemon) nothingForbidden(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(d.log)
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "forbidden") {
			t.Errorf("%s: %s", d.container.Name, line)
		}
	}
}

// probed waits until the container's probes are answered where they ask.
func (d *daemon) probed(t *testing.T) {
	t.Helper()
	for _, p := range []*corev1.Probe{d.container.LivenessProbe, d.container.ReadinessProbe} {
		url := fmt.Sprintf("http://%s:%d%s", p.HTTPGet.Host, p.HTTPGet.Port.IntValue(), p.HTTPGet.Path)
		eventually(t, url, func() (string, bool) {
			r, err := http.Get(url)
			if err != nil {
				return err.Error(), false
			}
			r.Body.Close()
			return r.Status, r.StatusCode == http.StatusOK
		})
	}
}

// get asks for a page over TLS with a token, if there is one.
func get(t *testing.T, url, token string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must(t, err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	// What the certificate is, is the test of package daemon.
	c := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := c.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(t, err)
	return response.StatusCode, string(text)
}

// there waits for a Deployment.
func (s *site) there(t *testing.T, namespace, name string) {
	t.Helper()
	eventually(t, "Deployment "+name, func() (string, bool) {
		err := s.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &appsv1.Deployment{})
		return fmt.Sprint(err), err == nil
	})
}

// play is what the controllers of workloads do: all is rolled out at once.
func (s *site) play(t *testing.T, namespace string) {
	t.Helper()
	var deployments appsv1.DeploymentList
	must(t, s.client.List(t.Context(), &deployments, client.InNamespace(namespace)))
	for _, d := range deployments.Items {
		d.Status.ObservedGeneration, d.Status.Replicas, d.Status.UpdatedReplicas = d.Generation, 1, 1
		d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable"}}
		unlessChanged(t, s.client.Status().Update(t.Context(), &d))
	}
	var sets appsv1.DaemonSetList
	must(t, s.client.List(t.Context(), &sets, client.InNamespace(namespace)))
	for _, d := range sets.Items {
		d.Status = appsv1.DaemonSetStatus{ObservedGeneration: d.Generation, CurrentNumberScheduled: 1, UpdatedNumberScheduled: 1, DesiredNumberScheduled: 1}
		unlessChanged(t, s.client.Status().Update(t.Context(), &d))
	}
}

// unlessChanged: the next look plays again.
func unlessChanged(t *testing.T, err error) {
	t.Helper()
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		must(t, err)
	}
}
