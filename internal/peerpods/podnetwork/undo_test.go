// SPDX-License-Identifier: Apache-2.0

//go:build integration

package podnetwork

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/test/tier"
)

// state is what the node and the pod's namespace look like.
func (p *labPod) state() string {
	p.lab.t.Helper()
	return "## node\n" + p.lab.node.snapshot() + "## pod\n" + p.ns.snapshot()
}

func (p *labPod) expectState(when, want string) {
	p.lab.t.Helper()
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(p.state(), "\n")); diff != "" {
		p.lab.t.Errorf("%s: something is left:\n%s", when, diff)
	}
}

func forEachAttachment(t *testing.T, f func(t *testing.T, o podOptions)) {
	for _, attach := range []string{onBridge, ptp, calico} {
		for _, underlay6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/underlay6=%v", attach, underlay6), func(t *testing.T) {
				f(t, podOptions{attach: attach, underlay6: underlay6})
			})
		}
	}
	t.Run("tls", func(t *testing.T) { f(t, podOptions{attach: ptp, tls: true}) })
}

// TestTeardownLeavesNothing also tears down twice and sets up again.
func TestTeardownLeavesNothing(t *testing.T) {
	forEachAttachment(t, func(t *testing.T, o podOptions) {
		l := newLab(t)
		pod := l.addPod(o)
		before := pod.state()
		for range 2 {
			inside := pod.connect()
			mustExchange(t, "outside to pod", l.outside, inside, pod.ip4, 1<<20)
			if pod.state() == before {
				t.Fatal("setting up changed nothing that the comparison sees")
			}
			for range 2 {
				if err := pod.teardownNode(); err != nil {
					t.Fatal(err)
				}
			}
			pod.expectState("after teardown", before)
		}
	})
}

// TestSetupTwiceChangesNothing: traffic of a running pod must not notice.
func TestSetupTwiceChangesNothing(t *testing.T) {
	forEachAttachment(t, func(t *testing.T, o podOptions) {
		l := newLab(t)
		pod := l.addPod(o)
		before := pod.state()
		inside := pod.connect()
		node, guest := pod.state(), inside.snapshot()
		if err := errors.Join(pod.setupNode(), pod.setupGuest()); err != nil {
			t.Fatal(err)
		}
		pod.expectState("after the second set-up", node)
		if diff := cmp.Diff(strings.Split(guest, "\n"), strings.Split(inside.snapshot(), "\n")); diff != "" {
			t.Errorf("in the VM: %s", diff)
		}
		if err := pod.teardownNode(); err != nil {
			t.Fatal(err)
		}
		pod.expectState("after teardown", before)
	})
}

// crashAfter runs the first steps of a set-up and forgets how to undo them, as
// a killed process does.
func (p *labPod) crashAfter(steps int) error {
	return p.lab.node.do(func() error {
		end, err := openNode(p.ns.path(), p.cfg, p.vmAddr)
		if err != nil {
			return err
		}
		defer end.Close()
		return runSteps(context.Background(), end.steps()[:steps])
	})
}

func (p *labPod) countSteps() int { return len((&nodeEnd{cfg: p.cfg}).steps()) }

// TestKilledBetweenSteps: a process killed after any step leaves what another
// one removes completely, or completes.
func TestKilledBetweenSteps(t *testing.T) {
	forEachAttachment(t, func(t *testing.T, o podOptions) {
		l := newLab(t)
		pod := l.addPod(o)
		before := pod.state()
		for steps := range pod.countSteps() + 1 {
			if err := errors.Join(pod.crashAfter(steps), pod.teardownNode()); err != nil {
				t.Fatalf("killed after %d steps: %v", steps, err)
			}
			pod.expectState(fmt.Sprintf("killed after %d steps", steps), before)

			if err := pod.crashAfter(steps); err != nil {
				t.Fatal(err)
			}
			inside := pod.connect()
			mustExchange(t, fmt.Sprintf("resumed after %d steps", steps), l.outside, inside, pod.ip6, 1<<20)
			if err := pod.teardownNode(); err != nil {
				t.Fatal(err)
			}
			pod.expectState(fmt.Sprintf("resumed after %d steps, torn down", steps), before)
		}
	})
}

// TestKilledBeforeTheTunnelHasItsName: the one moment within a step at which
// something is there that the next run must know.
func TestKilledBeforeTheTunnelHasItsName(t *testing.T) {
	l := newLab(t)
	pod := l.addPod(podOptions{attach: ptp})
	before := pod.state()
	crash := func() error {
		end, err := openNode(pod.ns.path(), pod.cfg, pod.vmAddr)
		if err != nil {
			return err
		}
		defer end.Close()
		half := &tunnel{
			name: nodeTunnelName, vni: pod.cfg.VXLANID, port: pod.cfg.port(), mtu: 1450,
			local: pod.cfg.WorkerNodeIP.Addr(), remote: pod.vmAddr,
		}
		return half.create(end.node, end.pod)
	}
	for _, next := range []func() error{pod.teardownNode, pod.setupNode} {
		if err := l.node.do(crash); err != nil {
			t.Fatal(err)
		}
		if err := next(); err != nil {
			t.Fatal(err)
		}
		if err := pod.teardownNode(); err != nil {
			t.Fatal(err)
		}
		pod.expectState("after the crash", before)
	}
}

// TestFailedStepUndoes: an error after any number of steps leaves nothing.
func TestFailedStepUndoes(t *testing.T) {
	tier.OnlyAll(t) // TestKilledBetweenSteps ends at each of these steps too
	forEachAttachment(t, func(t *testing.T, o podOptions) {
		pod := newLab(t).addPod(o)
		before := pod.state()
		broken := errors.New("broken")
		for good := range pod.countSteps() + 1 {
			err := pod.lab.node.do(func() error {
				end, err := openNode(pod.ns.path(), pod.cfg, pod.vmAddr)
				if err != nil {
					return err
				}
				defer end.Close()
				fail := step{"fail", func() (func() error, error) { return nil, broken }}
				return runSteps(context.Background(), append(end.steps()[:good:good], fail))
			})
			if !errors.Is(err, broken) || strings.Contains(err.Error(), "undo") {
				t.Fatalf("got %v", err)
			}
			pod.expectState(fmt.Sprintf("failed after %d steps", good), before)
		}
	})
}

func TestCancelledSetupUndoes(t *testing.T) {
	pod := newLab(t).addPod(podOptions{attach: ptp})
	before := pod.state()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := pod.lab.node.do(func() error { return SetupNode(ctx, pod.ns.path(), pod.cfg, pod.vmAddr) })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	pod.expectState("cancelled", before)
}

// TestTeardownWithoutNamespace: the runtime may remove the namespace first.
func TestTeardownWithoutNamespace(t *testing.T) {
	l := newLab(t)
	before := l.node.snapshot()
	pod := l.addPod(podOptions{attach: onBridge})
	if err := pod.setupNode(); err != nil {
		t.Fatal(err)
	}
	pod.ns.ip("link del vxlan1", "link del eth0") // as the end of the namespace does
	pod.lab.node.ip("link del vm1")
	gone := t.TempDir() + "/gone"
	err := l.node.do(func() error { return TeardownNode(context.Background(), gone, pod.cfg, pod.vmAddr) })
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, l.node.snapshot()); diff != "" {
		t.Error(diff)
	}
}

// TestForeignFilters: another program's filters stop the set-up and survive.
func TestForeignFilters(t *testing.T) {
	pod := newLab(t).addPod(podOptions{attach: ptp})
	for _, qdisc := range []string{"clsact", "ingress"} {
		pod.ns.run("", "tc", "qdisc", "add", "dev", "eth0", qdisc)
		pod.ns.run("", "tc", "filter", "add", "dev", "eth0", "ingress", "prio", "7", "protocol", "ip", "u32", "match", "u32", "0", "0", "classid", "1:1")
		before := pod.state()
		if err := pod.setupNode(); !errors.Is(err, ErrForeignFilter) {
			t.Errorf("%s: got %v, want ErrForeignFilter", qdisc, err)
		}
		pod.expectState(qdisc+": refused", before)
		if err := pod.teardownNode(); err != nil {
			t.Error(err)
		}
		pod.expectState(qdisc+": torn down", before)
		pod.ns.run("", "tc", "qdisc", "del", "dev", "eth0", qdisc)
	}
}

// TestForeignClsact: a clsact qdisc without filters is used and stays.
func TestForeignClsact(t *testing.T) {
	l := newLab(t)
	pod := l.addPod(podOptions{attach: ptp})
	pod.ns.run("", "tc", "qdisc", "add", "dev", "eth0", "clsact")
	before := pod.state()
	inside := pod.connect()
	mustExchange(t, "over clsact", l.outside, inside, pod.ip4, 1<<20)
	if err := pod.teardownNode(); err != nil {
		t.Fatal(err)
	}
	pod.expectState("torn down", before)
}

// TestChangedTunnelKeepsMTU: a second set-up with another VNI replaces the
// tunnel and still knows the peer's first MTU.
func TestChangedTunnelKeepsMTU(t *testing.T) {
	pod := newLab(t).addPod(podOptions{attach: ptp})
	before := pod.state()
	if err := pod.setupNode(); err != nil {
		t.Fatal(err)
	}
	pod.cfg.VXLANID = int(nextVNI.Add(1))
	if err := errors.Join(pod.setupNode(), pod.teardownNode()); err != nil {
		t.Fatal(err)
	}
	pod.expectState("after both", before)
}

func TestVNIInUse(t *testing.T) {
	l := newLab(t)
	first, second := l.addPod(podOptions{attach: onBridge}), l.addPod(podOptions{attach: onBridge})
	if err := first.setupNode(); err != nil {
		t.Fatal(err)
	}
	before := second.state()
	second.cfg.VXLANID = first.cfg.VXLANID
	if err := second.setupNode(); !errors.Is(err, ErrVNIInUse) {
		t.Errorf("got %v, want ErrVNIInUse", err)
	}
	second.expectState("refused", before)
}

// TestRulesCannotBeMade: a tunnel that is to be guarded is not made without a
// guard; another one is. A set of another type is as near as a test comes to a
// failing nf_tables.
func TestRulesCannotBeMade(t *testing.T) {
	l := newLab(t)
	l.node.run("add table inet outrigger_podnetwork { set tunnels4 { type ipv4_addr; }; set tunnels6 { type ipv6_addr; }; }\n", "nft", "-f", "-")
	pod := l.addPod(podOptions{attach: onBridge})
	before := pod.state()
	if err := pod.setupNode(); err == nil || !strings.Contains(err.Error(), "-tunnel-source-check") {
		t.Errorf("error %v", err)
	}
	pod.expectState("refused", before)
	pod.cfg.SourceCheck = false
	inside := pod.connect()
	mustExchange(t, "outside to pod", l.outside, inside, pod.ip4, 1<<20)
}

// TestUntrackedFlow: tunnel packets leave no trace in connection tracking's
// table and the rules match both directions.
func TestUntrackedFlow(t *testing.T) {
	for _, underlay6 := range []bool{false, true} {
		l := newLab(t)
		l.node.run(`table inet probe {
 counter tracked {}
 counter untracked {}
 chain in { type filter hook input priority 0; udp dport 4789 ct state untracked counter name untracked; udp dport 4789 ct state != untracked counter name tracked; }
 chain out { type filter hook output priority 0; udp dport 4789 ct state untracked counter name untracked; udp dport 4789 ct state != untracked counter name tracked; }
}`, "nft", "-f", "-")
		pod, inside := l.newPod(podOptions{attach: ptp, underlay6: underlay6})
		mustExchange(t, "outside to pod", l.outside, inside, pod.ip4, 1<<20)
		tracked := l.node.run("", "nft", "list", "counter", "inet", "probe", "tracked")
		untracked := l.node.run("", "nft", "list", "counter", "inet", "probe", "untracked")
		if !strings.Contains(tracked, "packets 0 ") || strings.Contains(untracked, "packets 0 ") {
			t.Errorf("underlay6=%v: %s%s", underlay6, tracked, untracked)
		}
	}
}

func TestSetupNodeRefuses(t *testing.T) {
	pod := newLab(t).addPod(podOptions{attach: ptp})
	other := netip.MustParseAddr("fd31:1::2")
	for want, try := range map[string]func() error{
		"different families":    func() error { return SetupNode(context.Background(), pod.ns.path(), pod.cfg, other) },
		"the VM has no address": func() error { return SetupNode(context.Background(), pod.ns.path(), pod.cfg, netip.Addr{}) },
		"no such network":       func() error { return SetupNode(context.Background(), "/nowhere", pod.cfg, pod.vmAddr) },
		"is not a namespace":    func() error { return SetupNode(context.Background(), "/dev/null", pod.cfg, pod.vmAddr) },
		"worker-node-ip":        func() error { return SetupNode(context.Background(), pod.ns.path(), &Config{}, pod.vmAddr) },
		"no interface eth9": func() error {
			c := *pod.cfg
			c.Interface = "eth9"
			return SetupNode(context.Background(), pod.ns.path(), &c, pod.vmAddr)
		},
		"vxlan-id is missing": func() error {
			c := *pod.cfg
			c.VXLANID = 0
			return SetupNode(context.Background(), pod.ns.path(), &c, pod.vmAddr)
		},
		"needs at least 1280": func() error {
			c := *pod.cfg
			c.UnderlayMTU = 1300
			return SetupNode(context.Background(), pod.ns.path(), &c, pod.vmAddr)
		},
		"no route to 203.0.113.": func() error {
			return SetupNode(context.Background(), pod.ns.path(), pod.cfg, netip.MustParseAddr("203.0.113.1"))
		},
	} {
		before := pod.state()
		if err := pod.lab.node.do(try); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		pod.expectState(want, before)
	}
}

// TestThreadsStayHome: no call leaves a thread in another namespace.
func TestThreadsStayHome(t *testing.T) {
	pod := newLab(t).addPod(podOptions{attach: ptp})
	home := make(map[string]bool)
	pod.connect()
	if err := pod.teardownNode(); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		err := onOwnThread(func() error {
			var st unix.Stat_t
			err := unix.Stat("/proc/thread-self/ns/net", &st)
			home[fmt.Sprint(st.Ino)] = true
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(home) != 1 {
		t.Errorf("threads are in %d namespaces", len(home))
	}
}
