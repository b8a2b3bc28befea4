// SPDX-License-Identifier: Apache-2.0

//go:build integration

package command

import (
	"context"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/test/cluster"
)

// TestManager is the whole program at a real API server, over a cloud in memory;
// the kubelets are the test.
func TestManager(t *testing.T) {
	l := newLab(t, fake.Options{})
	l.instance("witness")
	l.node("witness")
	port := cluster.HoldPort(t)
	stop := l.start("--secure-port="+port, "--bind-address=127.0.0.1", "--authentication-kubeconfig="+l.user.Kubeconfig, "--authorization-kubeconfig="+l.user.Kubeconfig)
	l.initialized("witness")
	for _, test := range []struct {
		name string
		run  func(*lab)
	}{
		{"N1 a Node is initialized", initializes}, {"a failure is told", tellsFailures}, {"N4 a stopped instance taints its Node", taintsStopped},
		{"N2 an outage deletes nothing", survivesOutages}, {"N3 an instance that is gone takes its Node along when that is not Ready", deletesGone},
		{"Nodes of other clouds stay", leavesForeign},
		{"a Service gets its load balancer", balances},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(l.of(t)) })
	}
	t.Run("health and metrics are served", func(t *testing.T) { serves(l.of(t), port) })
	stop()
	t.Run("N5 controllers are chosen by name", func(t *testing.T) { choosesControllers(l.of(t)) })
	t.Run("a Service at --load-balancer-address", func(t *testing.T) { balancesHere(l.of(t)) })
	t.Run("Services at Alibaba Cloud", func(t *testing.T) { balancesAtAlibaba(l.of(t)) })
	t.Run("L1 one leads, and gives the lease back", func(t *testing.T) { elects(l.of(t)) })
}

func initializes(l *lab) {
	i := l.instance("n1")
	l.node("n1")
	l.initialized("n1")
	n := l.get("n1")
	if n.Spec.ProviderID != "simulated://"+i.ID {
		l.Errorf("providerID %s", n.Spec.ProviderID)
	}
	if a := n.Status.Addresses[0]; a.Type != v1.NodeInternalIP && a.Type != v1.NodeExternalIP || a.Address != i.IPs[0].String() {
		l.Errorf("addresses %v; want %s", n.Status.Addresses, i.IPs[0])
	}
	full, err := l.cloud.GetInstance(l.Context(), i.ID)
	if err != nil || full.Type == "" {
		l.Fatalf("%+v, %v", full, err)
	}
	for key, want := range map[string]string{
		v1.LabelInstanceTypeStable: full.Type, v1.LabelTopologyZone: full.Zone, v1.LabelTopologyRegion: full.Region, "rack": "1",
	} {
		if n.Labels[key] != want {
			l.Errorf("label %s is %q, want %q", key, n.Labels[key], want)
		}
	}
	l.until("the Event Synced", func() bool { return l.event("n1", "Synced") })
}

func tellsFailures(l *lab) {
	l.node("nobody")
	l.until("the Event", func() bool { return l.event("nobody", "InstanceNotFound") })
	if !l.tainted("nobody", taint) {
		l.Error("a Node without an instance was initialized")
	}
	l.weather(weather{get: provider.ErrUnauthenticated, list: provider.ErrUnauthenticated})
	l.node("late")
	l.until("the Event", func() bool { return l.event("late", "CloudCredentialsRefused") })
	l.weather(weather{})
	l.instance("late")
	l.initialized("late") // though its turn in the queue may be minutes away
}

func taintsStopped(l *lab) {
	const shutdown = "node.cloudprovider.kubernetes.io/shutdown"
	i := l.instance("n4")
	l.node("n4")
	l.initialized("n4")
	if err := l.cloud.PowerOff(l.Context(), i.ID); err != nil {
		l.Fatal(err)
	}
	l.ready("n4", v1.ConditionUnknown)
	l.until("the taint", func() bool { return l.tainted("n4", shutdown) })
	if err := l.cloud.PowerOn(l.Context(), i.ID); err != nil {
		l.Fatal(err)
	}
	l.ready("n4", v1.ConditionTrue)
	l.until("the taint is taken away", func() bool { return !l.tainted("n4", shutdown) })
}

// survivesOutages has a Node that is not Ready in each weather for so many looks
// that it would be gone many times over.
func survivesOutages(l *lab) {
	i := l.instance("n2")
	l.node("n2")
	l.initialized("n2")
	if err := l.cloud.DeleteInstance(l.Context(), i.ID); err != nil { // the worst case: it is gone in truth
		l.Fatal(err)
	}
	for name, w := range map[string]weather{
		"timeout":         {hang: true},
		"401":             {get: provider.ErrUnauthenticated, list: provider.ErrUnauthenticated},
		"403":             {get: provider.ErrPermissionDenied, list: provider.ErrPermissionDenied},
		"5xx":             {get: provider.ErrUnavailable, list: provider.ErrUnavailable},
		"an odd error":    {get: provider.ErrUnknown, list: provider.ErrUnknown},
		"unreadable list": {list: provider.ErrUnknown},
		"empty":           {empty: true},
	} {
		l.Run(name, func(t *testing.T) {
			here := l.of(t)
			here.weather(w)
			here.ready("n2", v1.ConditionFalse)
			here.reads(6)
			time.Sleep(700 * time.Millisecond) // longer than --gone-after: a manager that errs has had the time
			here.reads(2)
			if here.get("n2") == nil || here.get("witness") == nil {
				t.Error("a Node was deleted")
			}
			here.ready("n2", v1.ConditionTrue)
		})
	}
	l.until("the reason is told", func() bool { return l.event("n2", "InventoryShowsNoNode") })
	l.weather(weather{})
}

func deletesGone(l *lab) {
	l.instance("n3")
	i := l.instance("n3-alive")
	l.node("n3")
	l.node("n3-alive")
	l.initialized("n3")
	l.initialized("n3-alive")
	gone := strings.TrimPrefix(l.get("n3").Spec.ProviderID, "simulated://")
	if err := l.cloud.DeleteInstance(l.Context(), gone); err != nil {
		l.Fatal(err)
	}
	l.ready("n3-alive", v1.ConditionFalse) // whose looks show that passes go on
	time.Sleep(1500 * time.Millisecond)
	if l.get("n3") == nil {
		l.Fatal("a Node that is Ready was deleted")
	}
	l.ready("n3", v1.ConditionUnknown)
	l.until("the Node is deleted", func() bool { return l.get("n3") == nil })
	l.until("the Event DeletingNode", func() bool { return l.event("n3", "DeletingNode") })
	if l.get("n3-alive") == nil || l.get("n3-alive").Spec.ProviderID != "simulated://"+i.ID {
		l.Error("a Node whose instance lives was deleted")
	}
}

func leavesForeign(l *lab) {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}, Spec: v1.NodeSpec{ProviderID: "aws:///z/i-1", Taints: []v1.Taint{{Key: taint, Effect: v1.TaintEffectNoSchedule}}}}
	if _, err := l.client.CoreV1().Nodes().Create(l.Context(), n, metav1.CreateOptions{}); err != nil {
		l.Fatal(err)
	}
	l.ready("foreign", v1.ConditionFalse)
	l.until("it is told whose it is not", func() bool { return l.event("foreign", "ForeignProviderID") })
	time.Sleep(1500 * time.Millisecond)
	if !l.tainted("foreign", taint) {
		l.Error("the Node of another cloud was initialized or deleted")
	}
}

func balances(l *lab) {
	services := l.client.CoreV1().Services("default")
	_, err := services.Create(l.Context(), &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "front"},
		Spec:       v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer, Ports: []v1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		l.Fatal(err)
	}
	made := func() *provider.LoadBalancer {
		list, err := l.cloud.ListLoadBalancers(l.Context(), map[string]string{provider.TagCluster: "c1", "outrigger-service": "default.front"})
		if err != nil || len(list) > 1 {
			l.Fatalf("%+v, %v", list, err)
		}
		if len(list) == 0 {
			return nil
		}
		return &list[0]
	}
	l.until("the Service has an address", func() bool {
		s, err := services.Get(l.Context(), "front", metav1.GetOptions{})
		if err != nil {
			l.Fatal(err)
		}
		there := made()
		return there != nil && len(s.Status.LoadBalancer.Ingress) == 1 && s.Status.LoadBalancer.Ingress[0].IP == there.Addrs[0].String()
	})
	there := made()
	if len(there.Ports) != 1 || there.Ports[0].Port != 80 || there.Ports[0].Target == 0 {
		l.Errorf("ports %+v", there.Ports)
	}
	witness := l.get("witness").Spec.ProviderID
	if !slices.ContainsFunc(there.Backends, func(b provider.LoadBalancerBackend) bool {
		return b.Name == "witness" && b.Addr.IsValid() && "simulated://"+b.InstanceID == witness
	}) {
		l.Errorf("backends %+v; want the Node witness, %s, among them", there.Backends, witness)
	}
	if err := services.Delete(l.Context(), "front", metav1.DeleteOptions{}); err != nil {
		l.Fatal(err)
	}
	l.until("the load balancer is removed", func() bool { return made() == nil })
	l.until("the Service is gone", func() bool {
		_, err := services.Get(l.Context(), "front", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func serves(l *lab, port string) {
	ask := func(config *rest.Config, path string) (int, string) {
		config.TLSClientConfig.Insecure, config.TLSClientConfig.CAData, config.TLSClientConfig.CAFile = true, nil, ""
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			l.Fatal(err)
		}
		defer client.CloseIdleConnections()
		response, err := client.Get("https://127.0.0.1:" + port + path)
		if err != nil {
			l.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			l.Fatal(err)
		}
		return response.StatusCode, string(text)
	}
	if code, text := ask(&rest.Config{}, "/healthz"); code != http.StatusOK {
		l.Errorf("/healthz: %d, %s", code, text)
	}
	if code, _ := ask(&rest.Config{}, "/metrics"); code != http.StatusForbidden {
		l.Errorf("/metrics of somebody: %d", code)
	}
	_, text := ask(l.api.RESTConfig(), "/metrics")
	for _, want := range []string{
		`outrigger_ccm_provider_calls_total{operation="list",provider="simulated",result="ok"}`,
		`outrigger_ccm_provider_calls_total{operation="list",provider="simulated",result="unauthenticated"}`,
		`outrigger_ccm_provider_call_seconds_count{operation="get",provider="simulated"}`,
		`outrigger_ccm_node_initialization_failures_total{reason="InstanceNotFound"}`,
		`outrigger_ccm_node_deletions_held_total{reason="InventoryShowsNoNode"}`,
		`node_controller_initial_node_sync_delay_seconds_count`,
	} {
		if !strings.Contains(text, want) {
			l.Errorf("/metrics lacks %s", want)
		}
	}
}

// choosesControllers: with the one that initializes alone nothing is deleted.
func choosesControllers(l *lab) {
	for _, name := range []string{"cloud-node", "cloud-node-controller"} {
		gone, node := l.instance(name+"-gone"), name+"-gone"
		l.node(node)
		stop := l.start("--controllers=" + name)
		l.initialized(node)
		if err := l.cloud.DeleteInstance(l.Context(), gone.ID); err != nil {
			l.Fatal(err)
		}
		l.ready(node, v1.ConditionFalse)
		time.Sleep(1500 * time.Millisecond)
		if l.get(node) == nil {
			l.Errorf("--controllers=%s deletes Nodes", name)
		}
		stop()
	}
	stop := l.start("--controllers=cloud-node-lifecycle")
	l.until("the other one deletes them", func() bool { return l.get("cloud-node-gone") == nil && l.get("cloud-node-controller-gone") == nil })
	stop()
}

func elects(l *lab) {
	holder := func() string {
		lease, err := l.client.CoordinationV1().Leases("kube-system").Get(l.Context(), "cloud-controller-manager", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		if err != nil {
			l.Fatal(err)
		}
		if lease.Spec.HolderIdentity == nil {
			return ""
		}
		return *lease.Spec.HolderIdentity
	}
	// With this lease the second could not lead within the test's time unless it
	// is given back.
	args := []string{"--leader-elect=true", "--leader-elect-lease-duration=30m", "--leader-elect-renew-deadline=20m", "--leader-elect-retry-period=1s"}
	stop := l.start(args...)
	l.until("one leads", func() bool { return holder() != "" })
	first := holder()
	l.start(args...)
	l.instance("led")
	l.node("led")
	l.initialized("led")
	if holder() != first {
		l.Errorf("%s leads beside %s", holder(), first)
	}
	stop()
	l.until("the other leads", func() bool { return holder() != "" && holder() != first })
	l.instance("led-on")
	l.node("led-on")
	l.initialized("led-on")
}

// TestKubelet: the Node of a real kubelet, which waits for its cloud.
func TestKubelet(t *testing.T) {
	var ip netip.Addr
	l := newLab(t, fake.Options{Boot: func(context.Context, fake.BootRequest) ([]netip.Addr, error) { return []netip.Addr{ip}, nil }})
	n := cluster.StartNode(t, l.api, cluster.NodeOptions{KubeletArgs: []string{"--cloud-provider=external"}})
	if !l.tainted(n.Name, taint) {
		t.Fatal("the kubelet does not wait for a cloud")
	}
	ip = netip.MustParseAddr(n.IP)
	i := l.instance(n.Name)
	l.start()
	l.initialized(n.Name)
	node := l.get(n.Name)
	if node.Spec.ProviderID != "simulated://"+i.ID || node.Labels[v1.LabelInstanceTypeStable] == "" {
		t.Errorf("providerID %s, labels %v", node.Spec.ProviderID, node.Labels)
	}
	if !slices.ContainsFunc(node.Status.Addresses, func(a v1.NodeAddress) bool { return a.Address == n.IP }) {
		t.Errorf("addresses %v; want %s among them", node.Status.Addresses, n.IP)
	}
}
