// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
	"github.com/outrigger/outrigger/internal/nodes/operator/bundles"
	"github.com/outrigger/outrigger/internal/nodes/operator/trustbundle"
	kube "github.com/outrigger/outrigger/test/cluster"
	crds "github.com/outrigger/outrigger/test/openshift"
	teststand "github.com/outrigger/outrigger/test/stand"
)

// Names in the tests are not the usual ones: nothing may depend on them.
const (
	operands = "clouds"
	home     = "operator-home"
	release  = "4.99.0"
	patience = 90 * time.Second
)

// world is an API server; the tests play kubelets and the controllers of workloads.
type world struct {
	*kube.ControlPlane
	client client.Client
	images string
	// account is whom the operator works as; empty is the administrator.
	account string
}

func newWorld(t *testing.T) *world {
	w := &world{
		ControlPlane: kube.StartControlPlane(t, kube.ControlPlaneOptions{ControllerManager: []string{"--controllers=serviceaccount-controller"}}),
		images:       filepath.Join(t.TempDir(), "images.json"),
	}
	scheme := runtime.NewScheme()
	must(t, clientscheme.AddToScheme(scheme))
	must(t, ccmv1alpha1.AddToScheme(scheme))
	must(t, addOpenShift(scheme))
	var err error
	w.client, err = client.New(w.RESTConfig(), client.Options{Scheme: scheme})
	must(t, err)
	w.Kubectl(t, "create", "namespace", operands)
	w.Kubectl(t, "create", "namespace", home)
	w.writeImages(t, images)
	return w
}

// withPlain makes the API server know CloudControllerManagers.
func (w *world) withPlain(t *testing.T) {
	kinds := filepath.Join(teststand.Root(), "deploy/ccm-operator/crd/ccm.outrigger.dev_cloudcontrollermanagers.yaml")
	w.Kubectl(t, "create", "--filename="+kinds)
	w.Kubectl(t, "wait", "--for=condition=Established", "--timeout=3m", "--filename="+kinds)
}

// images are those of all platforms.
var images = map[string]string{
	"cloudControllerManagerAWS": "example.test/aws:1", "cloudControllerManagerAzure": "example.test/azure:1", "cloudNodeManagerAzure": "example.test/azure-node:1",
	"cloudControllerManagerGCP": "example.test/gcp:1", "cloudControllerManagerIBM": "example.test/ibm:1", "cloudControllerManagerPowerVS": "example.test/powervs:1",
	"cloudControllerManagerNutanix": "example.test/nutanix:1", "cloudControllerManagerOpenStack": "example.test/openstack:1",
	"cloudControllerManagerVSphere": "example.test/vsphere:1", "cloudControllerManagerOutrigger": "example.test/ccm:1",
	"cloudControllerManagerOperator": "example.test/operator:1",
}

func (w *world) writeImages(t *testing.T, images map[string]string) {
	t.Helper()
	text, err := json.Marshal(images)
	must(t, err)
	must(t, os.WriteFile(w.images, text, 0o600))
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
	deadline := time.Now().Add(patience)
	for {
		is, ok := f()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: after %s it is %s", what, patience, is)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// apply creates or replaces objects, with their status.
func (w *world) apply(t *testing.T, manifests string) {
	t.Helper()
	crds.Apply(t, w.client, manifests)
}

// running is an operator that runs.
type running struct {
	writes atomic.Int64
	// passes are looks at what a test is about, leases those at the own lease.
	passes, leases atomic.Int64
	look           string
	stop           func()
}

// options are those with which nothing happens by itself.
func (w *world) options(t *testing.T, change ...func(*Options)) Options {
	t.Helper()
	set, err := bundles.Set()
	must(t, err)
	o := Options{
		Namespace: operands, OperatorNamespace: home, ImagesFile: w.images, Release: release, Bundles: set,
		SystemBundle: trustbundle.SystemFile(""), MetricsAddress: "0", HealthAddress: "0",
		DegradedAfter: time.Hour, Requeue: time.Hour, Resync: time.Hour, GatesAfter: time.Hour, Settle: time.Hour,
	}
	o.Leader.Lock = "leases"
	for _, f := range change {
		f(&o)
	}
	return o
}

// start runs the operator until the test ends, at the latest.
func (w *world) start(t *testing.T, look string, change ...func(*Options)) *running {
	t.Helper()
	o := w.options(t, change...)
	p := &running{look: look}
	api := w.RESTConfig()
	if w.account != "" {
		o.OperatorNamespace = o.Namespace
		api.Impersonate = rest.ImpersonationConfig{UserName: w.account, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	}
	api.QPS = -1
	api.Wrap(func(next http.RoundTripper) http.RoundTripper { return counter{next, p} })
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, api, o, slog.New(slog.NewTextHandler(t.Output(), nil))) }()
	p.stop = func() {
		if cancel(); ended == nil {
			return
		}
		if err := <-ended; err != nil {
			t.Errorf("the operator ended: %v", err)
		}
		ended = nil
	}
	t.Cleanup(p.stop)
	return p
}

type counter struct {
	next http.RoundTripper
	*running
}

func (c counter) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		c.writes.Add(1)
	}
	response, err := c.next.RoundTrip(r)
	if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/leases/"+leaseName) {
		c.leases.Add(1)
	}
	if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, c.look) {
		c.passes.Add(1)
	}
	return response, err
}

// idle wants the operator to look again and again and to write nothing. Events of
// what was before may come late; one that writes for ever is never idle.
func (p *running) idle(t *testing.T) {
	t.Helper()
	eventually(t, "an operator that only looks", func() (string, bool) {
		before, writes := p.passes.Load(), p.writes.Load()
		eventually(t, "looks", func() (string, bool) { return "", p.passes.Load() > before+20 })
		n := p.writes.Load() - writes
		return fmt.Sprintf("writing: %d times in 20 looks", n), n == 0
	})
}

// looks waits until the operator has ended a look that began after now.
func (p *running) looks(t *testing.T) {
	t.Helper()
	before := p.passes.Load()
	eventually(t, "another look", func() (string, bool) { return "none", p.passes.Load() > before+8 })
}

// still wants the operator to do nothing for a moment, sooner or later. Events of
// what was before may come late; one that never rests never has such a moment.
func (p *running) still(t *testing.T, do func()) {
	t.Helper()
	eventually(t, "an operator that rests", func() (string, bool) {
		before, writes := p.passes.Load(), p.writes.Load()
		do()
		time.Sleep(500 * time.Millisecond)
		n, wrote := p.passes.Load()-before, p.writes.Load()-writes
		return fmt.Sprintf("%d looks, %d writes", n, wrote), n == 0 && wrote == 0
	})
}

// often makes the operator look again all the time.
func often(o *Options) { o.Resync = 50 * time.Millisecond }

// rolledOut plays the controller of Deployments for one that is complete.
func (w *world) rolledOut(t *testing.T, name string) {
	t.Helper()
	w.progress(t, name, corev1.ConditionTrue, "NewReplicaSetAvailable")
}

func (w *world) progress(t *testing.T, name string, status corev1.ConditionStatus, reason string) {
	t.Helper()
	d := w.deployment(t, name)
	was := d.DeepCopy()
	d.Status.ObservedGeneration, d.Status.Replicas, d.Status.UpdatedReplicas = d.Generation, 1, 1
	d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: status, Reason: reason}}
	must(t, w.client.Status().Patch(t.Context(), d, client.MergeFrom(was)))
}

// deployment waits for one.
func (w *world) deployment(t *testing.T, name string) *appsv1.Deployment {
	t.Helper()
	var d appsv1.Deployment
	eventually(t, "Deployment "+name, func() (string, bool) {
		err := w.client.Get(t.Context(), types.NamespacedName{Namespace: operands, Name: name}, &d)
		if err != nil {
			return err.Error(), false
		}
		return "", true
	})
	return &d
}

// gone waits until an object of the operands' namespace is.
func (w *world) gone(t *testing.T, o client.Object, name string) {
	t.Helper()
	eventually(t, "the end of "+name, func() (string, bool) {
		err := w.client.Get(t.Context(), types.NamespacedName{Namespace: operands, Name: name}, o)
		return "there", apierrors.IsNotFound(err)
	})
}

func imageOf(d *appsv1.Deployment) string {
	for _, c := range d.Spec.Template.Spec.Containers {
		if c.Name == bundle.Manager {
			return c.Image
		}
	}
	return ""
}

// background outlives a test, for what is done after it.
func (w *world) background() context.Context { return context.Background() }
