// SPDX-License-Identifier: Apache-2.0

//go:build integration

package command

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
)

func TestMain(m *testing.M) { testns.Main(m) }

// fakeManager makes connections to one cloud.
type fakeManager struct{ cloud *fake.Cloud }

func (fakeManager) ParseCmd(*flag.FlagSet)                    {}
func (fakeManager) LoadEnv()                                  {}
func (m fakeManager) NewProvider() (provider.Provider, error) { return m.cloud.Reopen(), nil }

// crds are Cluster API's and ours.
func crds(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api")
	cmd.Dir = stand.Root()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("find the module of Cluster API: %v", err)
	}
	return []string{
		filepath.Join(strings.TrimSpace(string(out)), "core", "config", "crd", "bases"),
		filepath.Join(stand.Root(), "config", "crd", "bases"),
	}
}

// TestManager runs the whole manager at a real API server, on a cloud in
// memory; the test is Cluster API's core.
func TestManager(t *testing.T) {
	api := cluster.StartControlPlane(t, cluster.ControlPlaneOptions{})
	cloud, err := fake.New(fake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	other, err := fake.New(fake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	provider.AddCloudProvider("memory", fakeManager{cloud})
	provider.AddCloudProvider("other", config.New("other", func(struct{}) (provider.Provider, error) { return other.Reopen(), nil }))
	t.Setenv("POD_NAMESPACE", "default")
	var out bytes.Buffer
	if err := start(t.Context(), t, api.RESTConfig(), &out, freeAddress(t)); err == nil || !strings.Contains(err.Error(), "clusterctl init") {
		t.Fatalf("without Cluster API: %v", err)
	}
	for _, dir := range crds(t) {
		api.Kubectl(t, "apply", "--server-side", "-f", dir)
	}
	api.Kubectl(t, "wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")
	c, err := client.New(api.RESTConfig(), client.Options{Scheme: Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	s := &managed{t: t, Client: c, cloud: cloud, other: other, metrics: freeAddress(t)}
	if err := start(t.Context(), t, api.RESTConfig(), &out, freeAddress(t)); err == nil || !strings.Contains(err.Error(), "Secret default/provider-other") {
		t.Fatalf("without the Secret of the second provider: %v", err)
	}
	s.must(c.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "provider-other"}}))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- start(ctx, t, api.RESTConfig(), io.Discard, s.metrics) }()
	s.life()
	s.twoProviders()
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the manager ended with %v", err)
	}
}

// start runs the manager until ctx ends.
func start(ctx context.Context, t *testing.T, config *rest.Config, out io.Writer, metrics string) error {
	t.Helper()
	s, err := parse("--provider=memory", "--more-providers=other", "--webhook-port=0", "--health-addr=0", "--insecure-diagnostics", "--diagnostics-address="+metrics, "--observe-interval=1s", "--settle-after=1s")
	if err != nil {
		t.Fatal(err)
	}
	return s.serve(ctx, config, slog.New(slog.NewTextHandler(out, nil)))
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

type managed struct {
	t *testing.T
	client.Client
	cloud   *fake.Cloud
	other   *fake.Cloud
	metrics string
}

func (s *managed) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *managed) until(what string, ok func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("not in 3 minutes: %s", what)
		}
	}
}

// object is the metadata of an object of cluster cN.
func object(cluster, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster}}
}

// addCluster makes a Cluster with its infrastructure.
func (s *managed) addCluster(name, provider string) (*clusterv1.Cluster, *infrav1.OutriggerCluster) {
	s.t.Helper()
	owner := &clusterv1.Cluster{ObjectMeta: object(name, name)}
	owner.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "OutriggerCluster", Name: name}
	s.must(s.Create(s.t.Context(), owner))
	infra := &infrav1.OutriggerCluster{ObjectMeta: object(name, name)}
	infra.Spec.Provider = provider
	infra.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "10.0.0.1", Port: 6443}
	s.must(controllerutil.SetOwnerReference(owner, infra, Scheme()))
	s.must(s.Create(s.t.Context(), infra))
	return owner, infra
}

// provisionedCluster makes one and waits for it, and for nothing of core's.
func (s *managed) provisionedCluster(name, provider string) *infrav1.OutriggerCluster {
	s.t.Helper()
	ctx, yes := s.t.Context(), true
	owner, infra := s.addCluster(name, provider)
	s.until("the cluster is provisioned", func() bool { s.must(s.Get(ctx, client.ObjectKeyFromObject(infra), infra)); return infra.Status.Ready })
	before := owner.DeepCopy()
	owner.Status.Initialization.InfrastructureProvisioned = &yes
	s.must(s.Status().Patch(ctx, owner, client.MergeFrom(before)))
	return infra
}

// addMachine makes a Machine with its infrastructure, whose bootstrap data is missing.
func (s *managed) addMachine(cluster, name string) *infrav1.OutriggerMachine {
	s.t.Helper()
	machine := &clusterv1.Machine{ObjectMeta: object(cluster, name)}
	machine.Spec.ClusterName, machine.Spec.Bootstrap.DataSecretName = cluster, &name
	machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "OutriggerMachine", Name: name}
	s.must(s.Create(s.t.Context(), machine))
	m := &infrav1.OutriggerMachine{ObjectMeta: object(cluster, name)}
	s.must(controllerutil.SetOwnerReference(machine, m, Scheme()))
	s.must(s.Create(s.t.Context(), m))
	return m
}

// provision gives a machine its bootstrap data and waits for it.
func (s *managed) provision(cluster string, m *infrav1.OutriggerMachine) {
	s.t.Helper()
	s.must(s.Create(s.t.Context(), &corev1.Secret{ObjectMeta: object(cluster, m.Name), Data: map[string][]byte{"value": []byte("#cloud-config\n")}}))
	s.until("the machine is provisioned", func() bool {
		s.must(s.Get(s.t.Context(), client.ObjectKeyFromObject(m), m))
		return m.Status.Ready && m.Spec.ProviderID != ""
	})
}

// remove deletes objects and waits until they are gone.
func (s *managed) remove(objects ...client.Object) {
	s.t.Helper()
	for _, o := range objects {
		s.must(s.Delete(s.t.Context(), o))
	}
	for _, o := range objects {
		s.until(o.GetName()+" is gone", func() bool { return apierrors.IsNotFound(s.Get(s.t.Context(), client.ObjectKeyFromObject(o), o)) })
	}
}

// wantLeft looks at what both clouds have.
func (s *managed) wantLeft(atFirst, atOther int) {
	s.t.Helper()
	for cloud, want := range map[*fake.Cloud]int{s.cloud: atFirst, s.other: atOther} {
		instances := 0
		left, err := cloud.Leaks()
		s.must(err)
		for _, r := range left {
			if r.Kind == fake.KindInstance {
				instances++
			}
		}
		if instances != want || want == 0 && len(left) > 0 {
			s.t.Errorf("%d instances, want %d: %v", instances, want, left)
		}
	}
}

func (s *managed) life() {
	infra := s.provisionedCluster("c1", "")
	m := s.addMachine("c1", "m1")
	s.until("the missing Secret is reported", func() bool { return s.event("BootstrapSecretNotFound") })
	s.provision("c1", m)
	s.until("its provisioning is reported", func() bool { return s.event("Provisioned") })
	s.idle(m)
	s.remove(m, infra)
	s.wantLeft(0, 0)
}

// twoProviders: one manager has two clusters at two providers; a third names one that is
// not loaded, and says so.
func (s *managed) twoProviders() {
	ctx := s.t.Context()
	atFirst, atOther := s.provisionedCluster("c2", ""), s.provisionedCluster("c3", "other")
	first, second := s.addMachine("c2", "m2"), s.addMachine("c3", "m3")
	s.provision("c2", first)
	s.provision("c3", second)
	s.wantLeft(1, 1)
	for m, want := range map[*infrav1.OutriggerMachine]string{first: "memory", second: "other"} {
		if !strings.HasPrefix(m.Spec.ProviderID, "outrigger://"+want+"/") || m.Annotations[infrav1.ProviderAnnotation] != want {
			s.t.Errorf("%s: providerID %s, annotations %v; want provider %s", m.Name, m.Spec.ProviderID, m.Annotations, want)
		}
	}
	for _, to := range []string{"memory", ""} {
		changed := atOther.DeepCopy()
		changed.Spec.Provider = to
		if err := s.Patch(ctx, changed, client.MergeFrom(atOther)); err == nil || !strings.Contains(err.Error(), "spec.provider cannot change once the cluster is provisioned") {
			s.t.Errorf("a cluster's provider became %q: %v", to, err)
		}
	}

	_, nowhere := s.addCluster("c4", "third")
	s.until("the missing provider is reported", func() bool {
		s.must(s.Get(ctx, client.ObjectKeyFromObject(nowhere), nowhere))
		ready := apimeta.FindStatusCondition(nowhere.Status.Conditions, clusterv1.ReadyCondition)
		return ready != nil && ready.Reason == "ProviderNotLoaded" && strings.Contains(ready.Message, "it has memory, other: start it with --more-providers=third")
	})
	corrected := nowhere.DeepCopy()
	corrected.Spec.Provider = "other"
	s.must(s.Patch(ctx, corrected, client.MergeFrom(nowhere)))
	s.until("it is provisioned at another", func() bool {
		s.must(s.Get(ctx, client.ObjectKeyFromObject(nowhere), nowhere))
		return nowhere.Status.Ready
	})
	s.remove(second, atOther, nowhere)
	s.wantLeft(1, 0)
	s.remove(first, atFirst)
	s.wantLeft(0, 0)
}

// event reports whether there is one of that reason.
func (s *managed) event(reason string) bool {
	s.t.Helper()
	config := eventsv1.EventList{}
	scheme := s.Scheme()
	if !scheme.Recognizes(eventsv1.SchemeGroupVersion.WithKind("Event")) {
		s.must(eventsv1.AddToScheme(scheme))
	}
	s.must(s.List(s.t.Context(), &config))
	for _, e := range config.Items {
		if e.Reason == reason {
			return true
		}
	}
	return false
}

// idle: several looks at the cloud later nothing has been written.
func (s *managed) idle(m *infrav1.OutriggerMachine) {
	s.t.Helper()
	ctx := s.t.Context()
	lists := s.metric(`capi_manager_provider_call_seconds_count{operation="list",provider="memory"}`)
	s.must(s.Get(ctx, client.ObjectKeyFromObject(m), m))
	version := m.ResourceVersion
	s.until("three more lists", func() bool {
		return s.metric(`capi_manager_provider_call_seconds_count{operation="list",provider="memory"}`) >= lists+3
	})
	s.must(s.Get(ctx, client.ObjectKeyFromObject(m), m))
	if m.ResourceVersion != version {
		s.t.Errorf("an idle machine was written: version %s, then %s", version, m.ResourceVersion)
	}
}

// metric returns a value, 0 when there is none.
func (s *managed) metric(name string) (value float64) {
	s.t.Helper()
	response, err := http.Get("http://" + s.metrics + "/metrics")
	s.must(err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	s.must(err)
	for _, line := range strings.Split(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			_, err := fmt.Sscan(rest, &value)
			s.must(err)
		}
	}
	return value
}
