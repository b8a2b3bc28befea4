// SPDX-License-Identifier: Apache-2.0

package ccm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
)

// sky is a provider of few instances that says what a test wants.
type sky struct {
	*fake.Cloud // capabilities and calls that are not asked for
	all         map[string]provider.Instance
	get, list   error
	lists, gets int
	slow        func(operation string)
}

func (s *sky) GetInstance(_ context.Context, id string) (*provider.Instance, error) {
	s.gets++
	if s.slow != nil {
		s.slow("get")
	}
	if s.get != nil {
		return nil, s.get
	}
	i, ok := s.all[id]
	if !ok {
		return nil, fmt.Errorf("%w: no instance %s", provider.ErrNotFound, id)
	}
	return &i, nil
}

func (s *sky) ListInstances(_ context.Context, match map[string]string) ([]provider.Instance, error) {
	s.lists++
	if s.slow != nil {
		s.slow("list")
	}
	var list []provider.Instance
	for _, i := range s.all {
		if provider.HasTags(i.Tags, match) {
			list = append(list, i)
		}
	}
	return list, s.list
}

func instance(id, name string) provider.Instance {
	return provider.Instance{
		ID: id, Name: name, IPs: []netip.Addr{netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("203.0.113.9")}, State: provider.StateRunning,
		Tags: map[string]string{provider.TagCluster: "c1", "team": "a b/c"}, Zone: "z1", Region: "r1", Type: "t.small",
	}
}

// stand is a cloud with its Nodes.
type stand struct {
	*Cloud
	sky     *sky
	now     time.Time
	indexer cache.Indexer
	events  chan string
	failed  []string
}

func newStand(t *testing.T, o Options) *stand {
	t.Helper()
	s := &stand{sky: &sky{all: map[string]provider.Instance{}}, now: time.Unix(1e9, 0), events: make(chan string, 100)}
	o.Name, o.Provider, o.Now = "sky", s.sky, func() time.Time { return s.now }
	o.Failed = func(reason string) { s.failed = append(s.failed, reason) }
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Cloud = c
	s.indexer = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	c.nodes = corelisters.NewNodeLister(s.indexer)
	c.SetEvents(&record.FakeRecorder{Events: s.events})
	for _, id := range []string{"i-1", "i-2"} {
		s.sky.all[id] = instance(id, "node-"+id)
	}
	return s
}

// node makes a Node that waits to be initialized if it has no providerID.
func (s *stand) node(name, providerID string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: v1.NodeSpec{ProviderID: providerID}}
	if providerID == "" {
		n.Spec.Taints = []v1.Taint{{Key: "node.cloudprovider.kubernetes.io/uninitialized"}}
	}
	s.indexer.Add(n)
	return n
}

func (s *stand) event() string {
	select {
	case e := <-s.events:
		return e
	default:
		return ""
	}
}

func TestProviderNeedsCapabilities(t *testing.T) {
	type bare struct{ provider.Provider }
	_, err := New(Options{Name: "bare", Provider: bare{}})
	if !errors.Is(err, provider.ErrUnimplemented) || !strings.Contains(err.Error(), "Lister and Getter") {
		t.Errorf("a provider without capabilities: %v", err)
	}
}

func TestLabelsAreChecked(t *testing.T) {
	for _, o := range []Options{
		{Labels: map[string]string{"a b": "c"}}, {Labels: map[string]string{"a": "b c"}}, {Labels: map[string]string{"x.kubernetes.io/a": "b"}},
		{LabelsFromTags: map[string]string{"tag": "k8s.io/a"}}, {LabelsFromTags: map[string]string{"tag": ""}},
	} {
		o.Name, o.Provider = "sky", &sky{}
		if _, err := New(o); !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), "--node-labels") {
			t.Errorf("%v %v: %v", o.Labels, o.LabelsFromTags, err)
		}
	}
}

func TestMetadata(t *testing.T) {
	s := newStand(t, Options{Tags: map[string]string{provider.TagCluster: "c1"}, Labels: map[string]string{"rack": "1"}, LabelsFromTags: map[string]string{"team": "team", "none": "none"}})
	want := &cloudprovider.InstanceMetadata{
		ProviderID: "sky://i-1", InstanceType: "t.small", Zone: "z1", Region: "r1",
		NodeAddresses:    []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.7"}, {Type: v1.NodeExternalIP, Address: "203.0.113.9"}},
		AdditionalLabels: map[string]string{"rack": "1", "team": "a-b-c"},
	}
	for name, id := range map[string]string{"NODE-i-1.example.org": "", "given": "sky://i-1"} {
		node := s.node(name, id)
		got, err := s.InstanceMetadata(t.Context(), node)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
		s.indexer.Delete(node)
	}
	if s.sky.lists != 1 || s.sky.gets != 0 {
		t.Errorf("%d lists and %d look-ups for two Nodes; want one list", s.sky.lists, s.sky.gets)
	}
}

func TestNodesAreFoundByName(t *testing.T) {
	tags := map[string]string{provider.TagCluster: "c1"}
	for name, test := range map[string]struct {
		change func(*stand, *v1.Node)
		want   string // instance or reason
	}{
		"by the instance's name": {func(s *stand, n *v1.Node) { n.Name = "node-i-2" }, "sky://i-2"},
		"by the host's name":     {func(s *stand, n *v1.Node) { n.Labels = map[string]string{v1.LabelHostname: "node-i-2"} }, "sky://i-2"},
		"by the host's address": {func(s *stand, n *v1.Node) {
			n.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeHostName, Address: "node-i-2.lan"}}
		}, "sky://i-2"},
		"by the machine's name": {func(s *stand, n *v1.Node) { s.tag("i-2", provider.TagPod, "n") }, "sky://i-2"},
		"of Cluster API":        {func(s *stand, n *v1.Node) { n.Name = "node-i-2"; s.tag("i-2", tagRole, "worker") }, "outrigger://sky/i-2"},
		"nobody's":              {func(s *stand, n *v1.Node) {}, ReasonInstanceNotFound},
		"of another cluster":    {func(s *stand, n *v1.Node) { n.Name = "node-i-2"; s.tag("i-2", provider.TagCluster, "c2") }, ReasonInstanceNotFound},
		"being deleted":         {func(s *stand, n *v1.Node) { n.Name = "node-i-2"; s.state("i-2", provider.StateDeleting) }, ReasonInstanceNotFound},
		"two of one name": {func(s *stand, n *v1.Node) {
			s.sky.all["i-1"], s.sky.all["i-2"] = instance("i-1", "n"), instance("i-2", "n")
		}, ReasonInstanceAmbiguous},
		"another Node's": {func(s *stand, n *v1.Node) { n.Name = "node-i-2"; s.node("first", "outrigger://sky/i-2") }, ReasonInstanceTaken},
		"without addresses": {func(s *stand, n *v1.Node) {
			n.Name = "node-i-2"
			i := s.sky.all["i-2"]
			i.IPs = nil
			s.sky.all["i-2"] = i
		}, ReasonNoAddresses},
		"with another node IP": {func(s *stand, n *v1.Node) {
			n.Name = "node-i-2"
			n.Annotations = map[string]string{"alpha.kubernetes.io/provided-node-ip": "10.9.9.9"}
		}, ReasonNodeIP},
		"while the cloud is away":   {func(s *stand, n *v1.Node) { s.sky.list = provider.ErrUnavailable }, ReasonUnavailable},
		"with a refused credential": {func(s *stand, n *v1.Node) { s.sky.list = fmt.Errorf("x: %w", provider.ErrUnauthenticated) }, ReasonCredentials},
		"with an odd error":         {func(s *stand, n *v1.Node) { s.sky.list = errors.New("odd") }, ReasonCloud},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, Options{Tags: tags})
			node := s.node("n", "")
			test.change(s, node)
			got, err := s.InstanceMetadata(t.Context(), node)
			if strings.Contains(test.want, "://") {
				if err != nil || got.ProviderID != test.want {
					t.Errorf("%+v, %v; want %s", got, err, test.want)
				}
				return
			}
			if err == nil || !slices.Equal(s.failed, []string{test.want}) {
				t.Errorf("%+v, %v, failures %v; want %s", got, err, s.failed, test.want)
			}
			if e := s.event(); !strings.Contains(e, test.want) || !strings.Contains(e, err.Error()) {
				t.Errorf("event %q; want %s with %q", e, test.want, err)
			}
			s.InstanceMetadata(t.Context(), node)
			if e := s.event(); e != "" {
				t.Errorf("the same is told again at once: %q", e)
			}
		})
	}
}

func (s *stand) tag(id, tag, value string) {
	i := s.sky.all[id]
	i.Tags = maps.Clone(i.Tags)
	i.Tags[tag] = value
	s.sky.all[id] = i
}

func (s *stand) state(id string, state provider.InstanceState) {
	i := s.sky.all[id]
	i.State = state
	s.sky.all[id] = i
}

func TestNodeIPComesFirst(t *testing.T) {
	s := newStand(t, Options{})
	i := s.sky.all["i-1"]
	i.IPs = append(i.IPs, netip.MustParseAddr("10.0.0.8"))
	s.sky.all["i-1"] = i
	node := s.node("n", "sky://i-1")
	node.Annotations = map[string]string{"alpha.kubernetes.io/provided-node-ip": "10.0.0.8"}
	got, err := s.InstanceMetadata(t.Context(), node)
	if err != nil || got.NodeAddresses[0].Address != "10.0.0.8" || len(got.NodeAddresses) != 2 {
		t.Errorf("%+v, %v; want 10.0.0.8 as the one internal address", got, err)
	}
}

func TestTagsAreLearnedFromNodes(t *testing.T) {
	s := newStand(t, Options{})
	waiting := s.node("node-i-2", "")
	if _, err := s.InstanceMetadata(t.Context(), waiting); reasonOf(err) != ReasonNoTags {
		t.Fatalf("nobody says which instances there are: %v", err)
	}
	s.node("first", "sky://i-1")
	if got, err := s.InstanceMetadata(t.Context(), waiting); err != nil || got.ProviderID != "sky://i-2" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestNodesThatAProviderDoesNotLookUp: ids of a form that it leaves to others.
func TestNodesThatAProviderDoesNotLookUp(t *testing.T) {
	s := newStand(t, Options{})
	s.sky.get = provider.ErrUnimplemented
	node := s.node("n", "sky://i-unheard-of")
	if exists, err := s.InstanceExists(t.Context(), node); !exists || err != nil {
		t.Errorf("exists: %v, %v", exists, err)
	}
	if down, err := s.InstanceShutdown(t.Context(), node); down || err != nil {
		t.Errorf("shut down: %v, %v", down, err)
	}
	if got, err := s.InstanceMetadata(t.Context(), node); err != nil || got == nil || len(got.NodeAddresses) > 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestNodesOfOtherCloudsAreLeftAlone(t *testing.T) {
	s := newStand(t, Options{})
	node := s.node("n", "other://i-1")
	if got, err := s.InstanceMetadata(t.Context(), node); err != nil || got == nil || got.ProviderID != "other://i-1" || len(got.NodeAddresses) > 0 {
		t.Errorf("one that is initialized: %+v, %v", got, err)
	}
	node.Spec.Taints = []v1.Taint{{Key: "node.cloudprovider.kubernetes.io/uninitialized"}}
	if got, err := s.InstanceMetadata(t.Context(), node); err != nil || got != nil {
		t.Errorf("one that waits: %+v, %v", got, err)
	}
	if e := s.event(); !strings.HasPrefix(e, "Normal "+ReasonForeign) {
		t.Errorf("event %q", e)
	}
	for _, id := range []string{"other://i-1", "", "cn-hangzhou.i-1", "docker:////x"} {
		exists, err := s.InstanceExists(t.Context(), s.node("x", id))
		stopped, err2 := s.InstanceShutdown(t.Context(), s.node("x", id))
		if !exists || stopped || err != nil || err2 != nil {
			t.Errorf("%q: exists %v, %v, stopped %v, %v", id, exists, err, stopped, err2)
		}
	}
	if s.sky.gets+s.sky.lists > 0 {
		t.Error("the cloud was asked for other clouds' instances")
	}
}

func TestShutdown(t *testing.T) {
	s := newStand(t, Options{})
	node := s.node("n", "sky://i-1")
	for state, want := range map[provider.InstanceState]bool{
		provider.StateRunning: false, provider.StatePending: false, "": false, provider.StateStopped: true, provider.StateDeleting: true,
	} {
		s.now = s.now.Add(time.Minute)
		s.state("i-1", state)
		if got, err := s.InstanceShutdown(t.Context(), node); got != want || err != nil {
			t.Errorf("%q: %v, %v", state, got, err)
		}
	}
	s.sky.get, s.sky.list, s.now = provider.ErrUnavailable, provider.ErrUnavailable, s.now.Add(time.Minute)
	if got, err := s.InstanceShutdown(t.Context(), node); got || err == nil {
		t.Errorf("while the cloud is away: %v, %v", got, err)
	}
}
