// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/kubeapi"
	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	hypervisorpb "github.com/outrigger/outrigger/internal/protocol/hypervisor"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/test/adaptortest"
)

// patience is how long a test waits for what must happen.
const patience = time.Minute

const (
	nodeName  = "node1"
	namespace = "default"
)

// stand is an adaptor on a fake cloud in a cluster.
type stand struct {
	t     testing.TB
	admin *kubeapi.Client
	pods  *claims.REST
	// network is between adaptor and API server.
	network *network
	cloud   *fake.Cloud
	dir     string
	opts    Options
	change  func(*adaptor.Options)

	service  *adaptor.Service
	cluster  *Cluster
	stop     func()
	userData sync.Map // by sandbox id
}

// who may ask the API server: somebody who may do all, the adaptor, and the
// node, if it has an identity.
type who struct{ admin, adaptor, node *rest.Config }

func newStand(t testing.TB, w who, change func(*stand)) *stand {
	t.Helper()
	admin, config := w.admin, w.adaptor
	s := &stand{t: t, network: new(network), dir: tempDir(t)}
	admin = rest.CopyConfig(admin)
	admin.QPS = -1
	var err error
	if s.admin, err = kubeapi.New(admin); err != nil {
		t.Fatal(err)
	}
	if s.pods, err = claims.NewREST(admin); err != nil {
		t.Fatal(err)
	}
	config = rest.CopyConfig(config)
	config.Wrap(s.network.wrap)
	s.opts = Options{
		Config: config, NodeName: nodeName, Owner: "adaptor-1", Provider: "fake", ClusterID: "here", Limit: -1,
		ClaimWait: 2 * time.Second, AwayWait: 20 * time.Millisecond, MinRetry: 5 * time.Millisecond, MaxRetry: 100 * time.Millisecond,
		Log: slog.New(slog.DiscardHandler),
	}
	s.cloud, err = fake.New(fake.Options{Boot: func(_ context.Context, r fake.BootRequest) ([]netip.Addr, error) {
		s.userData.Store(r.Instance.Key, r.UserData)
		return nil, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"network", "relay", "netns"} {
		if err := os.Mkdir(filepath.Join(s.dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if change != nil {
		change(s)
	}
	s.open()
	t.Cleanup(func() { s.close() })
	return s
}

func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "oac")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// open starts an adaptor on what is there.
func (s *stand) open() {
	s.t.Helper()
	var err error
	if s.cluster, err = New(s.opts); err != nil {
		s.t.Fatal(err)
	}
	opts := adaptor.Options{
		Provider: s.cloud, ProviderName: "fake", Cluster: s.cluster,
		Network: &adaptortest.Network{Dir: filepath.Join(s.dir, "network")},
		Relay:   &adaptortest.Relay{Dir: filepath.Join(s.dir, "relay")},
		VNIs:    &adaptortest.VNIs{Min: 1}, MinVNI: 1,
		TLS:       adaptor.TLS{Issue: adaptortest.Issue},
		PodsDir:   filepath.Join(s.dir, "pods"),
		ClusterID: "here", NodeName: nodeName,
		ListSettle: time.Nanosecond, MinBackoff: time.Millisecond, MaxBackoff: 50 * time.Millisecond,
		Log: slog.New(slog.DiscardHandler),
	}
	if s.change != nil {
		s.change(&opts)
	}
	if s.service, err = adaptor.New(opts); err != nil {
		s.t.Fatal(err)
	}
	if err := s.service.Recover(context.Background()); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.cluster.Run(ctx) }()
	s.stop = func() { cancel(); <-done }
}

// close ends the adaptor in good order.
func (s *stand) close() {
	if s.service == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // what is being removed is left to the next
	if err := s.service.Close(ctx); err != nil {
		s.t.Error(err)
	}
	s.stop()
	s.service = nil
}

// pod makes a Pod that was scheduled to this node, and returns its UID.
func (s *stand) pod(name string, change ...func(map[string]any)) string {
	s.t.Helper()
	object := map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": name, "namespace": namespace},
		"spec": map[string]any{
			"nodeName":   nodeName,
			"containers": []any{map[string]any{"name": "c", "image": "i"}},
		},
	}
	for _, c := range change {
		c(object)
	}
	var made pod
	if err := s.admin.Create(s.t.Context(), kubeapi.Path(kubeapi.Core, namespace, "pods"), object, &made); err != nil {
		s.t.Fatal(err)
	}
	return string(made.Metadata.UID)
}

func (s *stand) secret(name, kind, key, value string) {
	s.t.Helper()
	err := s.admin.Create(s.t.Context(), kubeapi.Path(kubeapi.Core, namespace, "secrets"), map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": kind,
		"metadata": map[string]any{"name": name, "namespace": namespace},
		"data":     map[string][]byte{key: []byte(value)},
	}, nil)
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *stand) create(id, podName string, annotations ...string) error {
	all := map[string]string{"io.kubernetes.cri.sandbox-name": podName, "io.kubernetes.cri.sandbox-namespace": namespace}
	for i := 0; i < len(annotations); i += 2 {
		all[annotations[i]] = annotations[i+1]
	}
	_, err := s.service.CreateVM(context.Background(), &hypervisorpb.CreateVMRequest{
		Id: id, NetworkNamespacePath: filepath.Join(s.dir, "netns"), Annotations: all,
	})
	return err
}

func (s *stand) start(id string) error {
	_, err := s.service.StartVM(context.Background(), &hypervisorpb.StartVMRequest{Id: id})
	return err
}

// run takes a sandbox to ready.
func (s *stand) run(id, podName string) {
	s.t.Helper()
	if err := errors.Join(s.create(id, podName), s.start(id)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stand) remove(id string) {
	s.t.Helper()
	if _, err := s.service.StopVM(context.Background(), &hypervisorpb.StopVMRequest{Id: id}); err != nil {
		s.t.Fatal(err)
	}
}

// peerPod returns the sandbox's; nil when there is none.
func (s *stand) peerPod(id, podName string) *v1alpha1.PeerPod {
	s.t.Helper()
	pp, err := s.pods.Get(context.Background(), namespace, claims.Name(podName, id))
	if err != nil {
		return nil
	}
	return pp
}

func (s *stand) events(podName string) []corev1.Event {
	s.t.Helper()
	list, err := kubeapi.List[corev1.Event](context.Background(), s.admin, kubeapi.Path(kubeapi.Core, namespace, "events"), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	of := slices.DeleteFunc(list, func(e corev1.Event) bool {
		return e.InvolvedObject.Name != podName || e.Source.Component != component
	})
	slices.SortFunc(of, func(a, b corev1.Event) int { return strings.Compare(a.Name, b.Name) })
	return of
}

// event waits for one of that reason.
func (s *stand) event(podName, reason string) corev1.Event {
	s.t.Helper()
	var found corev1.Event
	s.eventually("event "+reason+" of "+podName, func() bool {
		for _, e := range s.events(podName) {
			if e.Reason == reason {
				found = e
				return true
			}
		}
		return false
	})
	return found
}

func (s *stand) eventually(what string, happened func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); !happened(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("still not: %s", what)
		}
	}
}

func (s *stand) wantNoInstances() {
	s.t.Helper()
	s.eventually("no instances", func() bool {
		list, err := s.cloud.ListInstances(context.Background(), map[string]string{provider.TagNode: nodeName})
		return err == nil && len(list) == 0
	})
}

// network is the way to the API server, which can be cut.
type network struct {
	cut    atomic.Bool
	writes atomic.Int64
	// listed is called once, between a list of PeerPods and its reader.
	listed atomic.Pointer[func()]
}

func (n *network) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if n.cut.Load() {
			return nil, errors.New("connection refused by the test")
		}
		if r.Method != http.MethodGet {
			n.writes.Add(1)
		}
		response, err := next.RoundTrip(r)
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/"+v1alpha1.Resource) {
			if listed := n.listed.Swap(nil); listed != nil {
				(*listed)()
			}
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func hasFinalizer(pp *v1alpha1.PeerPod) bool {
	return pp != nil && slices.Contains(pp.Finalizers, claims.Finalizer)
}

func ownedByPod(pp *v1alpha1.PeerPod, uid string) error {
	for _, owner := range pp.OwnerReferences {
		if owner.Kind == "Pod" && string(owner.UID) == uid {
			return nil
		}
	}
	return fmt.Errorf("owners %v, want pod %s", pp.OwnerReferences, uid)
}
