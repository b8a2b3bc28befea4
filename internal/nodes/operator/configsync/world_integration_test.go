// SPDX-License-Identifier: Apache-2.0

//go:build integration

package configsync

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/outrigger/outrigger/internal/nodes/operator/status"
	stand "github.com/outrigger/outrigger/test/cluster"
	crds "github.com/outrigger/outrigger/test/openshift"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// namespace is not the usual one: nothing may depend on its name.
	namespace = "clouds"
	release   = "4.99.0"
	timeout   = 90 * time.Second
)

// world is an API server that knows OpenShift's kinds.
type world struct {
	*stand.ControlPlane
	client client.Client
	// program is who config-sync is.
	program *stand.User
	system  string
	cas     map[string]string
}

func newWorld(t *testing.T) *world {
	w := &world{ControlPlane: stand.StartControlPlane(t, stand.ControlPlaneOptions{ControllerManager: []string{"--controllers=serviceaccount-controller"}})}
	refusedElsewhere(t, w)
	crds.Install(t, w.ControlPlane)
	scheme := runtime.NewScheme()
	_ = corev1.AddToScheme(scheme)
	_ = configv1.Install(scheme)
	var err error
	if w.client, err = client.New(w.RESTConfig(), client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{namespace, userNamespace, managedNamespace, operatorNamespace} {
		w.Kubectl(t, "create", "namespace", n)
	}
	w.program = w.rights(t)
	w.cas = map[string]string{}
	for _, name := range []string{"system", "a", "b"} {
		w.cas[name] = authority(t, name)
	}
	w.system = filepath.Join(t.TempDir(), "system.pem")
	return w
}

// refusedElsewhere: without OpenShift's kinds it says so, instead of waiting for
// them.
func refusedElsewhere(t *testing.T, w *world) {
	err := Run(t.Context(), w.RESTConfig(), w.options(), slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "has no kind Infrastructure of config.openshift.io/v1: config-sync is for OpenShift") {
		t.Errorf("on plain Kubernetes: %v", err)
	}
}

// options are those with which nothing happens by itself.
func (w *world) options() Options {
	o := Options{
		Namespace: namespace, Version: release, SystemBundle: w.system, Resync: time.Hour, HealthAddress: "0",
		CloudConfigDegradedAfter: time.Hour, TrustedCADegradedAfter: time.Hour, TrustedCAStaleAfter: 150 * time.Second,
	}
	o.Leader.Lock = "leases"
	return o
}

// rights returns a user with the rights that come with config-sync, and no
// others.
func (w *world) rights(t *testing.T) *stand.User {
	rules, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "deploy", "ccm-operator", "config-sync", "rbac.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	w.Apply(t, strings.ReplaceAll(string(rules), "namespace: "+defaultNamespace+"\n", "namespace: "+namespace+"\n"))
	return w.ServiceAccount(t, operatorNamespace, "ccm-operator-config-sync")
}

func authority(t *testing.T, name string) string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// reset removes all objects and restores the system's bundle.
func (w *world) reset(t *testing.T) {
	t.Helper()
	for _, n := range []string{namespace, userNamespace, managedNamespace} {
		must(t, w.client.DeleteAllOf(t.Context(), &corev1.ConfigMap{}, client.InNamespace(n)))
	}
	for _, o := range []client.Object{&configv1.Infrastructure{}, &configv1.Network{}, &configv1.Proxy{}, &configv1.FeatureGate{}, &configv1.ClusterOperator{}, &configv1.ClusterVersion{}} {
		must(t, w.client.DeleteAllOf(t.Context(), o))
	}
	w.writeSystem(t, w.cas["system"])
}

func (w *world) writeSystem(t *testing.T, text string) {
	t.Helper()
	must(t, os.WriteFile(w.system, []byte(text), 0o600))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// apply creates or replaces objects, with their status.
func (w *world) apply(t *testing.T, manifests string) {
	t.Helper()
	crds.Apply(t, w.client, manifests)
}

// configMap makes a ConfigMap have this data.
func (w *world) configMap(t *testing.T, ns, name string, data map[string]string) {
	t.Helper()
	m := &corev1.ConfigMap{}
	m.Namespace, m.Name, m.Data = ns, name, data
	err := w.client.Create(t.Context(), m)
	if apierrors.IsAlreadyExists(err) {
		err = w.client.Update(t.Context(), m)
	}
	must(t, err)
}

// onPlatform makes the cluster run on a platform.
func (w *world) onPlatform(t *testing.T, platform, config string, gates ...string) {
	t.Helper()
	w.apply(t, infrastructure(platform, config)+network+featureGates(gates...))
}

func infrastructure(platform, config string) string {
	return crds.Infrastructure("cloudConfig: {"+config+"}, platformSpec: {type: "+platform+"}", "HighlyAvailable", "type: "+platform)
}

const network = `apiVersion: config.openshift.io/v1
kind: Network
metadata: {name: cluster}
spec: {serviceNetwork: [172.30.0.0/16], clusterNetwork: [], networkType: x}
---
`

func featureGates(on ...string) string { return crds.FeatureGate(release, on...) }

func proxy(ca string) string {
	return `apiVersion: config.openshift.io/v1
kind: Proxy
metadata: {name: cluster}
spec: {trustedCA: {name: "` + ca + `"}}
`
}

// running is a config-sync that runs.
type running struct {
	// passes are the times that a controller has ended its work, writes the
	// requests that change something.
	passes, writes atomic.Int64
	// asked are the looks at the lease.
	asked atomic.Int64
	stop  func()
}

// start runs config-sync until the test ends, at the latest.
func (w *world) start(t *testing.T, change ...func(*Options)) *running {
	t.Helper()
	o := w.options()
	for _, f := range change {
		f(&o)
	}
	p := &running{}
	api := w.program.RESTConfig()
	api.Wrap(func(next http.RoundTripper) http.RoundTripper { return counter{next, p} })
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, api, o, slog.New(slog.NewTextHandler(t.Output(), nil))) }()
	p.stop = func() {
		if cancel(); ended == nil {
			return
		}
		if err := <-ended; err != nil {
			t.Errorf("config-sync ended: %v", err)
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
	if strings.Contains(r.URL.Path, "/leases/") {
		c.asked.Add(1)
	}
	// Each pass ends with a look at the ClusterOperator.
	if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/clusteroperators/"+status.Name) {
		c.passes.Add(1)
	}
	return response, err
}

// often makes the controllers look again all the time.
func often(o *Options) { o.Resync = 50 * time.Millisecond }

// wantIdle waits until there are passes that write nothing. The first ones may
// still, since a pass may not see yet what the one before has written.
func (p *running) wantIdle(t *testing.T) {
	t.Helper()
	eventually(t, "passes without a write", func() (string, bool) {
		passes, writes := p.passes.Load(), p.writes.Load()
		eventually(t, "passes", func() (string, bool) { return "", p.passes.Load() > passes+16 })
		n := p.writes.Load() - writes
		return fmt.Sprint(n, " writes in 16 passes"), n == 0
	})
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, f func() (string, bool)) {
	t.Helper()
	deadline := time.Now().Add(timeout)
	for {
		is, ok := f()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: after %s it is %s", what, timeout, is)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// get returns a ConfigMap, or nil.
func (w *world) get(t *testing.T, ns, name string) *corev1.ConfigMap {
	t.Helper()
	var m corev1.ConfigMap
	err := w.client.Get(t.Context(), types.NamespacedName{Namespace: ns, Name: name}, &m)
	if apierrors.IsNotFound(err) {
		return nil
	}
	must(t, err)
	return &m
}

// wantKey waits until a ConfigMap's key is so.
func (w *world) wantKey(t *testing.T, ns, name, key, want string) {
	t.Helper()
	eventually(t, ns+"/"+name+" "+key, func() (string, bool) {
		m := w.get(t, ns, name)
		if m == nil {
			return "missing", false
		}
		return m.Data[key], m.Data[key] == want
	})
}

// conditions returns those of the ClusterOperator as type=status/reason/message.
func (w *world) conditions(t *testing.T) map[string]string {
	t.Helper()
	var o configv1.ClusterOperator
	all := map[string]string{}
	if err := w.client.Get(t.Context(), types.NamespacedName{Name: status.Name}, &o); apierrors.IsNotFound(err) {
		return all
	} else if err != nil {
		t.Fatal(err)
	}
	for _, c := range o.Status.Conditions {
		all[string(c.Type)] = string(c.Status) + "/" + c.Reason + "/" + c.Message
	}
	return all
}

// wantCondition waits until a condition begins so.
func (w *world) wantCondition(t *testing.T, name, want string) {
	t.Helper()
	eventually(t, name, func() (string, bool) {
		is := w.conditions(t)[name]
		return is, strings.HasPrefix(is, want)
	})
}

const (
	configAvailable = "CloudConfigControllerAvailable"
	configDegraded  = "CloudConfigControllerDegraded"
	configWarning   = "CloudConfigControllerWarning"
	caAvailable     = "TrustedCABundleControllerControllerAvailable"
	caDegraded      = "TrustedCABundleControllerControllerDegraded"
	caWarning       = "TrustedCABundleControllerControllerWarning"

	configWorks = "AsExpected/Cloud Config Controller works as expected"
	configFails = "SyncingFailed/Cloud Config Controller failed to sync cloud config"
	caWorks     = "AsExpected/Trusted CA Bundle Controller works as expected"
	caFails     = "SyncingFailed/Trusted CA Bundle Controller failed to sync cloud config"
)

func (w *world) wantConfigWorks(t *testing.T) {
	t.Helper()
	w.wantCondition(t, configAvailable, "True/"+configWorks)
	w.wantCondition(t, configDegraded, "False/"+configWorks)
	w.wantCondition(t, configWarning, "False/AsExpected/")
}

func (w *world) wantConfigFails(t *testing.T, why string) {
	t.Helper()
	w.wantCondition(t, configAvailable, "False/"+configFails)
	w.wantCondition(t, configDegraded, "True/"+configFails)
	w.wantCondition(t, configWarning, "True/SyncingFailed/"+why)
}
