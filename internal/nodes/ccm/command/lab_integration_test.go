// SPDX-License-Identifier: Apache-2.0

//go:build integration

package command

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
)

func TestMain(m *testing.M) { testns.Main(m) }

// weather is what befalls calls that read.
type weather struct {
	get, list error
	hang      bool // until the call's time is over
	empty     bool
}

// simulated is a cloud in memory under changing weather.
type simulated struct {
	*fake.Cloud
	now   atomic.Pointer[weather]
	reads atomic.Int64
}

func (s *simulated) read(ctx context.Context, err func(*weather) error) (*weather, error) {
	s.reads.Add(1)
	w := s.now.Load()
	if w.hang {
		<-ctx.Done()
		return w, fmt.Errorf("%w: %w", provider.ErrUnavailable, ctx.Err())
	}
	return w, err(w)
}

func (s *simulated) GetInstance(ctx context.Context, id string) (*provider.Instance, error) {
	w, err := s.read(ctx, func(w *weather) error { return w.get })
	if err != nil {
		return nil, err
	}
	if w.empty {
		return nil, fmt.Errorf("%w: instance %s", provider.ErrNotFound, id)
	}
	return s.Cloud.GetInstance(ctx, id)
}

func (s *simulated) ListInstances(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
	w, err := s.read(ctx, func(w *weather) error { return w.list })
	if err != nil || w.empty {
		return nil, err
	}
	return s.Cloud.ListInstances(ctx, match)
}

// ParseCmd, LoadEnv and NewProvider make it a manager of itself.
func (s *simulated) ParseCmd(*flag.FlagSet)                  {}
func (s *simulated) LoadEnv()                                {}
func (s *simulated) NewProvider() (provider.Provider, error) { return s, nil }
func (s *simulated) Teardown() error                         { return nil }

// lab is a cluster of Node objects, and a cloud.
type lab struct {
	*testing.T
	api    *cluster.ControlPlane
	user   *cluster.User // the manager's
	client kubernetes.Interface
	cloud  *simulated
}

func newLab(t *testing.T, o fake.Options) *lab {
	t.Helper()
	// It would find that nobody renews the Nodes' leases.
	api := cluster.StartControlPlane(t, cluster.ControlPlaneOptions{ControllerManager: []string{"--controllers=*,-node-lifecycle-controller"}})
	memory, err := fake.New(o)
	if err != nil {
		t.Fatal(err)
	}
	api.Kubectl(t, "apply", "-k", filepath.Join(stand.Root(), "deploy", "ccm"))
	user := api.ServiceAccount(t, "kube-system", "cloud-controller-manager")
	l := &lab{T: t, api: api, user: user, client: kubernetes.NewForConfigOrDie(api.RESTConfig()), cloud: &simulated{Cloud: memory}}
	l.weather(weather{})
	provider.AddCloudProvider("simulated", l.cloud)
	return l
}

// of is the same lab for a part of the test.
func (l *lab) of(t *testing.T) *lab {
	part := *l
	part.T = t
	return &part
}

func (l *lab) weather(w weather) { l.cloud.now.Store(&w) }

// start runs a manager until the test ends, or stop is called.
func (l *lab) start(args ...string) (stop func()) {
	l.Helper()
	c := &Command{Getenv: func(string) string { return "" }}
	s, err := c.settings(append([]string{
		"--cloud-provider=simulated", "--kubeconfig=" + l.user.Kubeconfig, "--secure-port=0", "--leader-elect=false", "--instance-tags=outrigger-cluster=c1",
		"--node-monitor-period=200ms", "--gone-after=400ms", "--inventory-max-age=200ms", "--provider-call-timeout=500ms", "--node-labels=rack=1",
	}, args...))
	if err != nil {
		l.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.serve(ctx, s, slog.New(slog.NewTextHandler(io.Discard, nil))) }()
	var stopped atomic.Bool
	stop = func() {
		if !stopped.CompareAndSwap(false, true) {
			return
		}
		cancel()
		if err := <-ended; err != nil {
			l.Errorf("the manager ended with %v", err)
		}
	}
	l.Cleanup(stop)
	return stop
}

// instance makes one, and node the Node of that name, which waits.
func (l *lab) instance(name string) *provider.Instance {
	l.Helper()
	i, err := l.cloud.CreateInstance(l.Context(), name, name, cloudinit.Raw("x"), provider.InstanceTypeSpec{
		Tags: map[string]string{provider.TagCluster: "c1", provider.TagKey: name, provider.TagPod: name},
	})
	if err != nil {
		l.Fatal(err)
	}
	return i
}

const taint = "node.cloudprovider.kubernetes.io/uninitialized"

func (l *lab) node(name string) {
	l.Helper()
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NodeSpec{Taints: []v1.Taint{{Key: taint, Value: "true", Effect: v1.TaintEffectNoSchedule}}}}
	if _, err := l.client.CoreV1().Nodes().Create(l.Context(), n, metav1.CreateOptions{}); err != nil {
		l.Fatal(err)
	}
	l.ready(name, v1.ConditionTrue)
}

// ready says how a Node is, as its kubelet would.
func (l *lab) ready(name string, status v1.ConditionStatus) {
	l.Helper()
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q,"reason":"Test","message":"","lastHeartbeatTime":null,"lastTransitionTime":null}]}}`, status)
	if _, err := l.client.CoreV1().Nodes().Patch(l.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		l.Fatal(err)
	}
}

// get returns nil when there is no such Node.
func (l *lab) get(name string) *v1.Node {
	l.Helper()
	n, err := l.client.CoreV1().Nodes().Get(l.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		l.Fatal(err)
	}
	return n
}

func (l *lab) until(what string, ok func() bool) {
	l.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			l.Fatalf("not in 2 minutes: %s", what)
		}
	}
}

// reads waits until the cloud was asked so often.
func (l *lab) reads(n int64) {
	l.Helper()
	before := l.cloud.reads.Load()
	l.until(fmt.Sprintf("%d calls to the cloud", n), func() bool { return l.cloud.reads.Load() >= before+n })
}

func (l *lab) tainted(name, key string) bool {
	l.Helper()
	n := l.get(name)
	return n != nil && slices.ContainsFunc(n.Spec.Taints, func(t v1.Taint) bool { return t.Key == key })
}

func (l *lab) initialized(name string) {
	l.Helper()
	l.until(name+" is initialized", func() bool {
		n := l.get(name)
		return n != nil && !l.tainted(name, taint) && len(n.Status.Addresses) > 0
	})
}

func (l *lab) event(node, reason string) bool {
	l.Helper()
	list, err := l.client.CoreV1().Events("").List(l.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + node + ",reason=" + reason})
	if err != nil {
		l.Fatal(err)
	}
	return len(list.Items) > 0
}
