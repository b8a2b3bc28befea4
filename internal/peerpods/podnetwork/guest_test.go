// SPDX-License-Identifier: Apache-2.0

//go:build integration

package podnetwork

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestGuestEqualsPod: inside the VM the pod sees the interface that CNI made.
func TestGuestEqualsPod(t *testing.T) {
	forEachAttachment(t, func(t *testing.T, o podOptions) {
		pod, inside := newLab(t).newPod(o)
		pod.ns.settle()
		for _, argv := range []string{
			"ip -4 route", "ip -6 route", "ip neigh show nud permanent", "cat /sys/class/net/eth0/address",
			"ip -o -4 addr show dev eth0 scope global", "ip -o -6 addr show dev eth0 scope global",
		} {
			want, got := describe(pod.ns, argv), describe(inside, argv)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s", argv, diff)
			}
		}
	})
}

// describe leaves out what a rebuilt interface need not share: its number, the
// broadcast address that CNI plugins set and ip does not, and flags that say
// where a route came from.
func describe(n *testNS, argv string) []string {
	if strings.HasPrefix(argv, "cat ") { // sysfs shows the mounter's namespace
		out := n.run("", "ip", "-br", "link", "show", "eth0")
		return strings.Fields(out)[2:3]
	}
	var lines []string
	for _, line := range strings.Split(n.run("", strings.Fields(argv)...), "\n") {
		if _, after, ok := strings.Cut(line, ": eth0 "); ok {
			line = after
		}
		line, _, _ = strings.Cut(line, "\\")
		line = strings.NewReplacer("noprefixroute ", "", "nodad ", "", "brd 10.244.1.255 ", "").Replace(line)
		line, _, _ = strings.Cut(line, " src ")
		line, _, _ = strings.Cut(line, " pref ")
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// TestPermanentNeighbours: Calico's gateway answers no ARP here, so traffic
// shows that the entry came over.
func TestPermanentNeighbours(t *testing.T) {
	l := newLab(t)
	_, inside := l.newPod(podOptions{attach: calico})
	if got := inside.run("", "ip", "neigh", "show", "169.254.1.1"); !strings.Contains(got, "ee:ee:ee:ee:ee:ee PERMANENT") {
		t.Errorf("got %q", got)
	}
	mustExchange(t, "pod to outside", inside, l.outside, netip.MustParseAddr(outside4), 1<<20)
}

// TestGuestResumes: the forwarder dies after any part of its set-up.
func TestGuestResumes(t *testing.T) {
	l := newLab(t)
	pod, inside := l.newPod(podOptions{attach: ptp})
	want := inside.snapshot()
	for what, undo := range map[string][]string{
		"routes":    {"route flush dev eth0"},
		"addresses": {"addr flush dev eth0 scope global"},
		"interface": {"link set eth0 down"},
		"mtu":       {"link set eth0 mtu 1300"},
		"address":   {"link set eth0 address 02:00:00:00:00:99"},
	} {
		inside.ip(undo...)
		if err := pod.setupGuest(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		mustExchange(t, what, l.outside, inside, pod.ip4, 1<<20)
	}
	inside.ip("link del eth0")
	if err := pod.setupGuest(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(withoutIndex(want), withoutIndex(inside.snapshot())); diff != "" {
		t.Error(diff)
	}
}

func withoutIndex(snapshot string) string {
	var out []string
	for _, line := range strings.Split(snapshot, "\n") {
		if !strings.Contains(line, `"ifindex"`) && !strings.Contains(line, `"link_index"`) {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

// TestGuestRehearsal: nothing is left of it, and nothing is in the way of the pod.
func TestGuestRehearsal(t *testing.T) {
	l := newLab(t)
	pod := l.addPod(podOptions{attach: onBridge})
	before := pod.vm.snapshot()
	pod.vm.must(func() error { return RehearseGuest(t.Context(), pod.guestPath) })
	if diff := cmp.Diff(before, pod.vm.snapshot()); diff != "" {
		t.Errorf("the VM's network has changed: %s", diff)
	}
	if _, err := os.Lstat(pod.guestPath); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", pod.guestPath, err)
	}
	if err := os.WriteFile(pod.guestPath, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pod.vm.must(func() error {
		if err := RehearseGuest(t.Context(), pod.guestPath+"/in/a/file"); err == nil {
			return errors.New("a rehearsal that cannot keep its namespace succeeds")
		}
		return nil
	})
	os.Remove(pod.guestPath)
	inside := pod.connect()
	mustExchange(t, "outside to pod", l.outside, inside, pod.ip4, 1<<20)
}

// TestGuestReusesStaleFile: a crash between making the file and mounting it.
func TestGuestReusesStaleFile(t *testing.T) {
	l := newLab(t)
	pod := l.addPod(podOptions{attach: onBridge})
	if err := os.WriteFile(pod.guestPath, nil, 0o444); err != nil {
		t.Fatal(err)
	}
	inside := pod.connect()
	mustExchange(t, "outside to pod", l.outside, inside, pod.ip4, 1<<20)
}

// TestGuestWaitsForItsNetwork: the VM's address comes after the forwarder.
func TestGuestWaitsForItsNetwork(t *testing.T) {
	l := newLab(t)
	pod := l.addPod(podOptions{attach: onBridge})
	pod.vm.ip("addr flush dev ens3")
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	err := pod.vm.do(func() error { return SetupGuest(ctx, pod.guestPath, "", pod.cfg) })
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no route to 172.31.1.1") {
		t.Errorf("got %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- pod.setupGuest() }()
	pod.vm.ip("addr add 172.31.1.2/24 dev ens3")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestGuestHostInterface(t *testing.T) {
	l := newLab(t)
	pod := l.addPod(podOptions{attach: onBridge})
	setup := func(ctx context.Context, dev string) error {
		return pod.vm.do(func() error { return SetupGuest(ctx, pod.guestPath, dev, pod.cfg) })
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := setup(ctx, "ens9"); err == nil || !strings.Contains(err.Error(), "-host-interface ens9") {
		t.Errorf("got %v", err)
	}
	if err := errors.Join(pod.setupNode(), setup(context.Background(), "ens3")); err != nil {
		t.Fatal(err)
	}
	mustExchange(t, "outside to pod", l.outside, pod.inside(), pod.ip4, 1<<20)
}

// TestExternalNetViaPodVM: the pod leaves by the VM's second interface, still
// serves its address on the node's side, and a restart keeps it so.
func TestExternalNetViaPodVM(t *testing.T) {
	l := newLab(t)
	pod := l.addPod(podOptions{attach: ptp})
	internet := newTestNS(t)
	internet.ip("link add i0 type veth peer name eth0 netns "+pod.vm.path(),
		"addr add 198.51.100.1/24 dev i0", "link set i0 up", "link add srv type veth peer name srv1",
		"addr add 203.0.113.1/32 dev srv", "link set srv up", "link set srv1 up")
	pod.vm.ip("addr add 198.51.100.2/24 dev eth0", "link set eth0 up", "route add default via 198.51.100.1 dev eth0")
	pod.cfg.ExternalNetViaPodVM = true
	pod.cfg.Routes = addSubnets(pod.cfg.Routes, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, "eth0")
	inside := pod.connect()
	for _, address := range []string{"169.254.169.254", "169.254.170.2", "168.63.129.16", "100.100.100.200", "fd00:ec2::254"} {
		if out, err := inside.try("ip", "route", "get", address); err == nil {
			t.Errorf("the pod reaches the VM's metadata service:\n%s", out)
		}
	}
	for _, when := range []string{"first", "again"} {
		mustExchange(t, when+": pod to the internet", inside, internet, netip.MustParseAddr("203.0.113.1"), 1<<20)
		mustExchange(t, when+": outside to pod", l.outside, inside, pod.ip4, 1<<20)
		if err := pod.setupGuest(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestManyPods: twenty at once on one node, all connected concurrently.
func TestManyPods(t *testing.T) {
	const count = 20
	l := newLab(t)
	before := l.node.snapshot()
	var pods []*labPod
	for i := range count {
		pods = append(pods, l.addPod(podOptions{attach: onBridge, underlay6: i%2 == 1}))
	}
	each := func(what string, f func(*labPod) error) {
		t.Helper()
		errs := make(chan error, count)
		for _, pod := range pods {
			go func() { errs <- f(pod) }()
		}
		for range count {
			if err := <-errs; err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	each("set up", func(p *labPod) error { return errors.Join(p.setupNode(), p.setupGuest()) })
	if t.Failed() {
		return
	}
	insides := map[*labPod]*testNS{}
	for _, pod := range pods {
		insides[pod] = pod.inside()
	}
	each("traffic", func(p *labPod) error {
		return errors.Join(exchange(l.outside, insides[p], p.ip4, 4<<20), exchange(l.outside, insides[p], p.ip6, 4<<20))
	})
	mustExchange(t, "pod to pod", insides[pods[0]], insides[pods[1]], pods[1].ip6, 1<<20)
	each("tear down", (*labPod).teardownNode)
	for _, pod := range pods {
		l.node.ip(fmt.Sprintf("link del veth%d", pod.number), fmt.Sprintf("link del vm%d", pod.number))
	}
	if diff := cmp.Diff(before, l.node.snapshot()); diff != "" {
		t.Errorf("left on the node: %s", diff)
	}
}

// TestGuestMakesDirectories: /run/netns does not exist in a small image.
func TestGuestMakesDirectories(t *testing.T) {
	l := newLab(t)
	pod := l.addPod(podOptions{attach: onBridge})
	file := filepath.Join(filepath.Dir(pod.guestPath), "netns", "podns")
	err := pod.vm.do(func() error {
		ns, err := ensureNamespace(file)
		if err == nil {
			ns.Close()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := unmount(file); err != nil {
		t.Fatal(err)
	}
}
