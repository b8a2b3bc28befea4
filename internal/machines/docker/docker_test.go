// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/machines/docker/nodeagent"
	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
)

func TestNames(t *testing.T) {
	one := identity{key: "a", name: strings.Repeat("long-name.", 20)}
	other := one
	other.key = "b"
	if one.unique() == other.unique() || len(one.unique()) > 63 {
		t.Errorf("%s, %s", one.unique(), other.unique())
	}
	if got := hostname(strings.Repeat("a", 63)); got != strings.Repeat("a", 63) {
		t.Error(got)
	}
	// Machines of one set differ at the end.
	set := strings.Repeat("a", 50) + "-" + strings.Repeat("b", 10)
	if a, b := hostname(set+"-x7k2p"), hostname(set+"-x7k2q"); a == b || len(a) > 63 || len(validation.IsDNS1123Label(a)) > 0 {
		t.Errorf("%s, %s", a, b)
	}
}

func TestAddresses(t *testing.T) {
	for _, row := range []struct {
		subnet, gateway, reserved, first string
		count                            int
	}{
		{"10.0.0.0/24", "10.0.0.1", "10.0.0.2", "10.0.0.10", 245},
		{"10.0.0.16/28", "10.0.0.17", "10.0.0.18", "10.0.0.19", 12},
		{"10.0.0.0/24", "10.0.0.254", "10.0.0.1", "10.0.0.10", 244},
	} {
		n := &clusterNetwork{subnet: netip.MustParsePrefix(row.subnet), gateway: netip.MustParseAddr(row.gateway)}
		if n.reserved().String() != row.reserved {
			t.Errorf("%s: reserved %s", row.subnet, n.reserved())
		}
		taken := map[netip.Addr]bool{}
		for addr, err := n.free(taken); ; addr, err = n.free(taken) {
			if errors.Is(err, provider.ErrCapacity) {
				break
			}
			if err != nil || taken[addr] || !n.subnet.Contains(addr) || len(taken) == 0 && addr.String() != row.first {
				t.Fatalf("%s: %s, %v", row.subnet, addr, err)
			}
			taken[addr] = true
		}
		if len(taken) != row.count {
			t.Errorf("%s: %d addresses, want %d", row.subnet, len(taken), row.count)
		}
	}
}

// TestPairsOfAddresses: an IPv6 address is as far from the beginning of its subnet as the
// IPv4 address that it belongs to, and leads back to it; others belong to none.
func TestPairsOfAddresses(t *testing.T) {
	n := &clusterNetwork{subnet: netip.MustParsePrefix("172.17.4.0/22"), subnet6: netip.MustParsePrefix("fd12:3456:789a:1::/64")}
	for v4, v6 := range map[string]string{"172.17.4.2": "fd12:3456:789a:1::2", "172.17.7.254": "fd12:3456:789a:1::3fe"} {
		pair := n.at(netip.MustParseAddr(v4))
		if pair.v6.String() != v6 || n.beside(pair.v6) != pair.v4 {
			t.Errorf("%s: %v, and back %s; want %s", v4, pair, n.beside(pair.v6), v6)
		}
	}
	for _, other := range []string{"fd12:3456:789a:2::2", "fd12:3456:789a:1:8000::2", "172.17.4.2"} {
		if back := n.beside(netip.MustParseAddr(other)); back.IsValid() {
			t.Errorf("%s belongs to %s", other, back)
		}
	}
	n.subnet6 = netip.Prefix{}
	if pair := n.at(netip.MustParseAddr("172.17.4.2")); pair.v6.IsValid() || len(nodeIPs(pair.labels(map[string]string{}, onlyIPv4))) > 0 {
		t.Errorf("without IPv6: %v", pair)
	}
}

func TestClassify(t *testing.T) {
	for text, want := range map[string]struct {
		class  error
		reason string
	}{
		"driver failed programming external connectivity: Bind for 0.0.0.0:80 failed: port is already allocated": {provider.ErrUnavailable, ReasonPortTaken},
		"write /var/lib/x: no space left on device":                                                              {provider.ErrCapacity, ReasonDiskFull},
		"Address already in use":                                                                                                  {provider.ErrUnavailable, ReasonAddressTaken},
		"invalid mount config: bind source path does not exist: /x":                                                               {provider.ErrInvalidArgument, ReasonMountMissing},
		"error while removing network: network n id x has active endpoints":                                                       {provider.ErrUnavailable, ReasonNetworkInUse},
		"Pool overlaps with other one on this address space":                                                                      {provider.ErrUnavailable, ReasonSubnetTaken},
		"could not find an available, non-overlapping IPv4 address pool among the defaults to assign to the network":              {provider.ErrUnavailable, ReasonNoSubnet},
		"all predefined address pools have been fully subnetted":                                                                  {provider.ErrUnavailable, ReasonNoSubnet},
		"task 8a1f: already exists: unknown":                                                                                      {provider.ErrUnavailable, ReasonStartInterrupted},
		"failed to create task for container: task 8a1f already exists":                                                           {provider.ErrUnavailable, ReasonStartInterrupted},
		"failed to start shim: mkdir /run/docker/containerd/daemon/io.containerd.runtime.v2.task/moby/74f3: file exists: unknown": {provider.ErrUnavailable, ReasonStartInterrupted},
		"runc create failed: container with given ID already exists: unknown":                                                     {provider.ErrUnavailable, ReasonStartInterrupted},
		"something else": {provider.ErrUnknown, ""},
	} {
		err := classify(fmt.Errorf("outer: %w", errors.New(text)))
		if !errors.Is(err, want.class) || want.reason != "" && !reasonIs(err, want.reason) {
			t.Errorf("%s: %v", text, err)
		}
		if again := classify(err); again != err && want.reason != "" {
			t.Errorf("classified twice: %v", again)
		}
	}
	if classify(nil) != nil {
		t.Error("nil is an error")
	}
}

// TestWarns: the reasons that the documentation tells what to do about are told
// with Events, except for those about which there is nothing to do.
func TestWarns(t *testing.T) {
	text, err := os.ReadFile("../../../docs/capi-docker.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## What can be wrong")
	reasons := regexp.MustCompile("`([A-Z][A-Za-z]+)`").FindAllStringSubmatch(table, -1)
	if len(reasons) < 10 {
		t.Fatalf("reasons %q", reasons)
	}
	quiet := []string{"Ready", ReasonVolumeInUse, ReasonStartInterrupted, ReasonWaitingForAgent, reconciler.ReasonInstanceGone, reconciler.ReasonInstanceStopped} // the last two are all backends'
	for _, r := range reasons {
		if got, want := (*Backend)(nil).Warns(r[1]), !slices.Contains(quiet, r[1]); got != want {
			t.Errorf("%s: %v, want %v", r[1], got, want)
		}
	}
}

var defaults = config.Defaults[Config]()

// TestDocumentedImages: the page that says how to bring images in gives them the names
// that a manager asks for by itself, and says what a release's manager asks for.
func TestDocumentedImages(t *testing.T) {
	text, err := os.ReadFile("../../../docs/capi-docker.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		" - " + defaults.LoadBalancerImage + "\n", "OUTRIGGER_DOCKER_LOADBALANCER_IMAGE=" + defaults.LoadBalancerImage,
		"`PREFIX/cluster-loadbalancer:VERSION`", "`" + defaults.NodeImage + "` to pull", defaults.NodeImage + ":v",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("docs/capi-docker.md does not have %q", want)
		}
	}
}

func TestLoadBalancerImage(t *testing.T) {
	b := &Backend{cfg: Config{LoadBalancerImage: "default"}}
	for want, spec := range map[string]infrav1.DockerClusterSpec{
		"default":            {},
		"mine":               {LoadbalancerImage: "mine"},
		"kindest/haproxy:v1": {LoadBalancer: infrav1.DockerLoadBalancer{ImageRepository: "kindest", ImageTag: "v1"}},
		"r.io/x/haproxy":     {LoadBalancer: infrav1.DockerLoadBalancer{ImageRepository: "r.io/x/"}},
		"haproxy:3":          {LoadBalancer: infrav1.DockerLoadBalancer{ImageTag: "3"}},
	} {
		if got := b.imageOf(spec); got != want {
			t.Errorf("%+v: %s, want %s", spec, got, want)
		}
	}
}

// TestEndpoints: what was promised is what is made again.
func TestEndpoints(t *testing.T) {
	n := &clusterNetwork{id: "n", subnet: netip.MustParsePrefix("10.0.0.0/24"), gateway: netip.MustParseAddr("10.0.0.1"), families: onlyIPv4}
	six := &clusterNetwork{id: "six", subnet: n.subnet, gateway: n.gateway, subnet6: netip.MustParsePrefix("fd00::/64"), gateway6: netip.MustParseAddr("fd00::1"), families: firstIPv6}
	four := *six
	four.families = firstIPv4
	at := func(host string, port int32) (spec infrav1.DockerClusterSpec) {
		spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: host, Port: port}
		return spec
	}
	pair := func(v4, v6 string) (a addresses) {
		if a.v4 = netip.MustParseAddr(v4); v6 != "" {
			a.v6 = netip.MustParseAddr(v6)
		}
		return a
	}
	for _, row := range []struct {
		advertise string
		net       *clusterNetwork
		spec      infrav1.DockerClusterSpec
		want      balancer
	}{
		{"", n, at("", 0), balancer{port: 6443, addr: pair("10.0.0.2", ""), publish: true, hostIP: n.gateway}},
		{"", n, at("10.0.0.1", 32000), balancer{port: 6443, addr: pair("10.0.0.2", ""), publish: true, hostPort: 32000, hostIP: n.gateway}},
		{"", n, at("10.0.0.7", 443), balancer{port: 443, addr: pair("10.0.0.7", "")}},
		{"", n, at("my.host", 7000), balancer{port: 6443, addr: pair("10.0.0.2", ""), publish: true, hostPort: 7000}},
		{"h", n, at("", 0), balancer{port: 6443, addr: pair("10.0.0.2", ""), publish: true}},
		{"h", n, at("h", 32000), balancer{port: 6443, addr: pair("10.0.0.2", ""), publish: true, hostPort: 32000}},
		{"", six, at("", 0), balancer{port: 6443, addr: pair("10.0.0.2", "fd00::2"), publish: true, hostIP: six.gateway6}},
		{"", six, at("fd00::1", 32000), balancer{port: 6443, addr: pair("10.0.0.2", "fd00::2"), publish: true, hostPort: 32000, hostIP: six.gateway6}},
		{"", six, at("fd00::face:1:7", 443), balancer{port: 443, addr: pair("10.0.0.2", "fd00::face:1:7")}},
		{"", &four, at("", 0), balancer{port: 6443, addr: pair("10.0.0.2", "fd00::2"), publish: true, hostIP: n.gateway}},
		{"[fd01::9]", six, at("fd01::9", 32000), balancer{port: 6443, addr: pair("10.0.0.2", "fd00::2"), publish: true, hostPort: 32000}},
	} {
		b := &Backend{cfg: Config{AdvertiseHost: row.advertise, Host: defaults.Host}}
		got := b.wanted(identity{}, row.net, row.spec, 6443)
		if got.port != row.want.port || got.addr != row.want.addr || got.publish != row.want.publish || got.hostIP != row.want.hostIP || got.hostPort != row.want.hostPort {
			t.Errorf("%q %v: %+v", row.advertise, row.spec.ControlPlaneEndpoint, got)
		}
		if row.spec.ControlPlaneEndpoint.Host == "" || got.hostPort == 0 && got.publish {
			continue
		}
		if e := b.endpoint(got); (row.advertise != "" || got.hostIP.IsValid() || !got.publish) && e != row.spec.ControlPlaneEndpoint {
			t.Errorf("endpoint %v, want %v", e, row.spec.ControlPlaneEndpoint)
		}
	}
}

func TestJudge(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	created := func(ago time.Duration) *container.InspectResponse {
		return &container.InspectResponse{Name: "/c", Created: now.Add(-ago).Format(time.RFC3339Nano)}
	}
	short := machine{image: "i", spec: infrav1.DockerMachineSpec{DockerNodeSpec: infrav1.DockerNodeSpec{BootstrapTimeout: &metav1.Duration{Duration: time.Minute}}}}
	for _, row := range []struct {
		m            machine
		s            nodeagent.State
		ago          time.Duration
		reason, text string
	}{
		{machine{image: "i"}, nodeagent.State{}, time.Second, ReasonWaitingForAgent, "image i"},
		{machine{image: "i"}, nodeagent.State{}, 6 * time.Minute, ReasonBootstrapTimeout, "5m0s"},
		{machine{image: "i", began: now.Add(-time.Minute)}, nodeagent.State{}, time.Hour, ReasonWaitingForAgent, "image i"}, // by a clock that is behind
		{machine{image: "i", began: now.Add(-time.Hour)}, nodeagent.State{}, time.Minute, ReasonWaitingForAgent, "image i"}, // begun again
		{machine{image: "i", began: now.Add(-time.Hour)}, nodeagent.State{}, 6 * time.Minute, ReasonBootstrapTimeout, "5m0s"},
		{machine{}, nodeagent.State{Phase: nodeagent.PhaseRunning, Step: "runcmd/0", Done: 1, Total: 3}, time.Minute, ReasonBootstrapRunning, "step runcmd/0, 2 of 3"},
		{short, nodeagent.State{Phase: nodeagent.PhaseRunning, Step: "runcmd/0"}, 2 * time.Minute, ReasonBootstrapTimeout, "1m0s"},
		{short, nodeagent.State{Phase: nodeagent.PhaseFailed, Message: "runcmd/0: exit status 1"}, time.Hour, ReasonBootstrapFailed, "exit status 1; docker logs c"},
		{short, nodeagent.State{Phase: nodeagent.PhaseDone, Ignored: []string{"ntp"}}, time.Hour, ReasonBootstrapDone, "ntp"},
	} {
		reason, text := row.m.judge(row.s, created(row.ago), now)
		if reason != row.reason || !strings.Contains(text, row.text) {
			t.Errorf("%+v: %s, %q; want %s, %q", row.s, reason, text, row.reason, row.text)
		}
	}
}

func TestNodeImage(t *testing.T) {
	for image, want := range map[string]string{
		"outrigger/node": "outrigger/node:v1.36.3_x", "r:5000/node": "r:5000/node:v1.36.3_x", "node:mine": "node:mine", "node@sha256:0": "node@sha256:0",
	} {
		b := &Backend{cfg: Config{NodeImage: image}}
		m := &clusterv1.Machine{}
		m.Spec.Version = "v1.36.3+x"
		if got := b.machineOf(&reconciler.MachineScope{Machine: m}, &infrav1.DockerMachine{}); got.image != want {
			t.Errorf("%s: %s, want %s", image, got.image, want)
		}
	}
}

// TestTasks: the end of a task is reported once, and tasks end with their
// owner.
func TestTasks(t *testing.T) {
	ts := newTasks()
	defer ts.close()
	let, queue, enqueuer := make(chan error), newQueue(t), &reconciler.Enqueuer{}
	if err := enqueuer.Source().Start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	begin := func(name string) (bool, error) {
		return ts.do("k", machineOwner{enqueuer, types.NamespacedName{Name: name}}, func(ctx context.Context) error {
			select {
			case err := <-let:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}
	for _, name := range []string{"a", "b", "a"} {
		if ended, err := begin(name); ended || err != nil {
			t.Fatal(ended, err)
		}
	}
	failure := errors.New("failure")
	let <- failure
	if got := woken(queue, 2); got != "a b" {
		t.Fatalf("woken: %s", got)
	}
	if ended, err := begin("a"); !ended || err != failure {
		t.Fatal(ended, err)
	}
	if ended, _ := begin("a"); ended { // again
		t.Fatal("an end that was told before")
	}
	ts.forget("k")
	if ended, _ := begin("a"); ended {
		t.Fatal("of a task that was forgotten")
	}
}

type requests = workqueue.TypedRateLimitingInterface[reconcile.Request]

func newQueue(t *testing.T) requests {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(q.ShutDown)
	return q
}

// woken waits for so many objects and returns their names.
func woken(q requests, n int) string {
	var names []string
	for range n {
		r, _ := q.Get()
		q.Done(r)
		names = append(names, r.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}
