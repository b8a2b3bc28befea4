// SPDX-License-Identifier: Apache-2.0

//go:build integration

package podnetwork

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// testNS is a network namespace that has no name and goes away with the test.
type testNS struct {
	t  testing.TB
	fd netns.NsHandle
}

func newTestNS(t testing.TB) *testNS {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for network namespaces; run: sudo go test -tags integration ./internal/peerpods/podnetwork")
	}
	n := &testNS{t: t}
	err := onOwnThread(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			n.fd, err = netns.Get()
		}
		return err
	})
	if err != nil {
		t.Fatalf("new network namespace: %v", err)
	}
	t.Cleanup(func() { n.fd.Close() })
	n.sysctl("net/ipv6/conf/all/accept_dad", "0")
	n.sysctl("net/ipv6/conf/default/accept_dad", "0")
	n.ip("link set lo up")
	return n
}

// path names the namespace for this process and its children.
func (n *testNS) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.fd) }

// do runs f on a thread inside the namespace.
func (n *testNS) do(f func() error) error {
	return onOwnThread(func() error {
		if err := netns.Set(n.fd); err != nil {
			return err
		}
		return f()
	})
}

func (n *testNS) must(f func() error) {
	n.t.Helper()
	if err := n.do(f); err != nil {
		n.t.Fatal(err)
	}
}

func (n *testNS) sysctl(name, value string) {
	n.t.Helper()
	n.must(func() error { return os.WriteFile("/proc/sys/"+name, []byte(value), 0) })
}

// run starts a command inside; children inherit their thread's namespace.
func (n *testNS) run(stdin string, argv ...string) string {
	n.t.Helper()
	var stdout, stderr bytes.Buffer
	n.must(func() error {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%v: %w: %s%s", argv, err, stderr.String(), stdin)
		}
		return nil
	})
	return stdout.String()
}

// try is run whose failure is an answer too.
func (n *testNS) try(argv ...string) (out []byte, err error) {
	n.must(func() error {
		out, err = exec.Command(argv[0], argv[1:]...).CombinedOutput()
		return nil
	})
	return out, err
}

// ip runs lines of an ip batch.
func (n *testNS) ip(lines ...string) {
	n.t.Helper()
	n.run(strings.Join(lines, "\n"), "ip", "-batch", "-")
}

// passing matches what changes by itself: a bridge's running timers, and the
// operational state, which follows an interface's flags late.
var passing = regexp.MustCompile(`.*(_timer|"operstate)": .*\n`)

// snapshot is everything in the namespace that setting up could change.
// Learned neighbours come and go with traffic and are left out.
func (n *testNS) snapshot() string {
	n.t.Helper()
	n.settle()
	var out strings.Builder
	for _, argv := range []string{
		"ip -d -p -j link", "ip -p -j addr", "ip -p -j -4 route show table all", "ip -p -j -6 route show table all",
		"ip -p -j neigh show nud permanent", "ip -p -j rule", "tc -p -j qdisc", "nft list ruleset",
	} {
		text := n.run("", strings.Fields(argv)...)
		fmt.Fprintf(&out, "# %s\n%s\n", argv, passing.ReplaceAllString(text, ""))
	}
	for _, line := range strings.Split(n.run("", "ip", "-br", "link"), "\n") {
		if dev, _, ok := strings.Cut(line, " "); ok {
			dev, _, _ = strings.Cut(dev, "@")
			fmt.Fprintf(&out, "# filters of %s\n%s\n", dev, n.run("", "tc", "filter", "show", "dev", dev, "ingress"))
		}
	}
	return out.String()
}

// settle waits for the kernel's work queues, which finish new IPv6 addresses
// and carry the news of a carrier.
func (n *testNS) settle() {
	n.t.Helper()
	unsettled := func() bool {
		return n.run("", "ip", "-o", "-6", "addr", "show", "tentative") != "" ||
			strings.Contains(n.run("", "ip", "-o", "link", "show", "up"), "NO-CARRIER")
	}
	for deadline := time.Now().Add(time.Minute); unsettled(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			n.t.Fatal("interfaces do not settle")
		}
	}
}

// lab is a node with an outside network behind it.
type lab struct {
	t             testing.TB
	node, outside *testNS
	pods          int
}

const (
	outside4 = "192.0.2.2"
	outside6 = "fd99::2"
)

func newLab(t testing.TB) *lab {
	t.Helper()
	l := &lab{t: t, node: newTestNS(t), outside: newTestNS(t)}
	l.node.sysctl("net/ipv4/ip_forward", "1")
	l.node.sysctl("net/ipv6/conf/all/forwarding", "1")
	l.node.ip(
		"link add out0 type veth peer name eth0 netns "+l.outside.path(),
		"addr add 192.0.2.1/24 dev out0", "addr add fd99::1/64 dev out0", "link set out0 up",
		"link add cni0 address 02:00:00:00:00:01 type bridge", "addr add 10.244.1.1/24 dev cni0", "addr add fd44::1/64 dev cni0", "link set cni0 up",
		// A port that is always there keeps the bridge the same with and without pods.
		"link add keep0 type veth peer name keep1", "link set keep0 addrgenmode none", "link set keep1 addrgenmode none",
		"link set keep0 master cni0 up", "link set keep1 up",
	)
	l.outside.ip(
		"addr add 192.0.2.2/24 dev eth0", "addr add fd99::2/64 dev eth0", "link set eth0 up",
		"route add default via 192.0.2.1", "route add default via fd99::1",
	)
	return l
}

// The ways a CNI plugin attaches a pod.
const (
	onBridge = "bridge" // peer is a port of the bridge cni0
	ptp      = "ptp"    // routes over a gateway with a link-scope host route
	calico   = "calico" // /32, gateway 169.254.1.1, permanent neighbours
)

// labPod is a pod's namespace on the node and its VM.
type labPod struct {
	lab    *lab
	number int
	ns, vm *testNS
	ip4    netip.Addr
	ip6    netip.Addr
	vmAddr netip.Addr
	cfg    *Config
	// guestPath is where the VM half makes its namespace.
	guestPath string
	// carrier is there if the tunnel is encrypted.
	carrier *carrier
}

var nextVNI atomic.Uint32

type podOptions struct {
	attach      string
	underlay6   bool
	underlayMTU int // 0 means 1500
	podMTU      int // 0 means 1500
	// slowAddress lets the VM's IPv6 address be tentative for two seconds.
	slowAddress bool
	// tls asks for an encrypted tunnel.
	tls bool
}

// addPod makes a pod as CNI leaves it and a VM beside the node, without any
// tunnel yet.
func (l *lab) addPod(o podOptions) *labPod {
	l.t.Helper()
	l.pods++
	p := &labPod{lab: l, number: l.pods, ns: newTestNS(l.t), vm: newTestNS(l.t)}
	p.ip4 = netip.MustParseAddr(fmt.Sprintf("10.244.1.%d", 10+p.number))
	p.ip6 = netip.MustParseAddr(fmt.Sprintf("fd44::%x", 0x100+p.number))
	p.attach(o)
	node := p.underlay(o)
	cfg := p.inspect(node)
	cfg.VXLANID = int(nextVNI.Add(1))
	if o.tls {
		cfg.TunnelType = TunnelTLS
	}
	p.cfg = cfg
	dir, err := os.MkdirTemp("/tmp", "pn")
	if err != nil {
		l.t.Fatal(err)
	}
	p.guestPath = dir + "/podns"
	l.t.Cleanup(func() {
		_ = unix.Unmount(p.guestPath, unix.MNT_DETACH)
		_ = unix.Unmount(p.guestPath+frameNamespace, unix.MNT_DETACH)
		os.RemoveAll(dir)
	})
	return p
}

func (p *labPod) attach(o podOptions) {
	p.lab.t.Helper()
	mtu := o.podMTU
	if mtu == 0 {
		mtu = 1500
	}
	veth := fmt.Sprintf("veth%d", p.number)
	p.lab.node.ip(fmt.Sprintf("link add %s mtu %d type veth peer name eth0 mtu %d netns %s", veth, mtu, mtu, p.ns.path()))
	switch o.attach {
	case onBridge:
		p.lab.node.ip("link set "+veth+" master cni0 up", "link set cni0 up")
		p.ns.ip(
			fmt.Sprintf("addr add %s/24 dev eth0", p.ip4), fmt.Sprintf("addr add %s/64 dev eth0", p.ip6), "link set eth0 up",
			"route add default via 10.244.1.1", "route add default via fd44::1",
		)
	case ptp:
		p.lab.node.ip("addr add 10.244.1.1/32 dev "+veth, "addr add fd44::1/128 dev "+veth, "link set "+veth+" up",
			fmt.Sprintf("route add %s/32 dev %s", p.ip4, veth), fmt.Sprintf("route add %s/128 dev %s", p.ip6, veth))
		p.ns.ip(
			fmt.Sprintf("addr add %s/24 dev eth0 noprefixroute", p.ip4), fmt.Sprintf("addr add %s/64 dev eth0 noprefixroute", p.ip6),
			"link set eth0 up",
			"route add 10.244.1.1 dev eth0 scope link", "route add 10.244.1.0/24 via 10.244.1.1", "route add default via 10.244.1.1",
			"route add fd44::1 dev eth0", "route add fd44::/64 via fd44::1", "route add default via fd44::1",
		)
	case calico:
		p.lab.node.ip("link set "+veth+" address ee:ee:ee:ee:ee:ee up", "addr add fe80::ecee:eeff:feee:eeee/64 dev "+veth+" nodad",
			fmt.Sprintf("route add %s/32 dev %s", p.ip4, veth), fmt.Sprintf("route add %s/128 dev %s", p.ip6, veth))
		p.lab.node.sysctl("net/ipv4/conf/"+veth+"/proxy_arp", "0")
		p.ns.ip(
			fmt.Sprintf("addr add %s/32 dev eth0", p.ip4), fmt.Sprintf("addr add %s/128 dev eth0", p.ip6), "link set eth0 up",
			"route add 169.254.1.1 dev eth0 scope link", "route add default via 169.254.1.1",
			"route add default via fe80::ecee:eeff:feee:eeee dev eth0",
			"neigh add 169.254.1.1 lladdr ee:ee:ee:ee:ee:ee dev eth0 nud permanent",
		)
	}
}

// underlay joins the VM to the node and returns the node's address there.
func (p *labPod) underlay(o podOptions) netip.Addr {
	p.lab.t.Helper()
	mtu := o.underlayMTU
	if mtu == 0 {
		mtu = 1500
	}
	dev, n := fmt.Sprintf("vm%d", p.number), p.number
	if o.slowAddress {
		p.vm.sysctl("net/ipv6/conf/default/accept_dad", "1")
		p.vm.sysctl("net/ipv6/conf/default/dad_transmits", "2")
	}
	p.lab.node.ip(
		fmt.Sprintf("link add %s mtu %d type veth peer name ens3 mtu %d netns %s", dev, mtu, mtu, p.vm.path()),
		fmt.Sprintf("addr add 172.31.%d.1/24 dev %s", n, dev), fmt.Sprintf("addr add fd31:%x::1/64 dev %s", n, dev), "link set "+dev+" up",
	)
	p.vm.ip(fmt.Sprintf("addr add 172.31.%d.2/24 dev ens3", n), fmt.Sprintf("addr add fd31:%x::2/64 dev ens3", n), "link set ens3 up")
	node := netip.MustParseAddr(fmt.Sprintf("172.31.%d.1", n))
	if o.underlay6 {
		node = netip.MustParseAddr(fmt.Sprintf("fd31:%x::1", n))
	}
	p.vmAddr = node.Next()
	return node
}

func (p *labPod) inspect(node netip.Addr) (cfg *Config) {
	p.lab.t.Helper()
	p.lab.node.must(func() (err error) {
		cfg, err = Inspect(InspectOptions{Netns: p.ns.path(), NodeAddress: node, SourceCheck: true})
		return err
	})
	return cfg
}

func (p *labPod) setupNode() error {
	return p.lab.node.do(func() error { return SetupNode(context.Background(), p.ns.path(), p.cfg, p.vmAddr) })
}

func (p *labPod) teardownNode() error {
	return p.lab.node.do(func() error { return TeardownNode(context.Background(), p.ns.path(), p.cfg, p.vmAddr) })
}

func (p *labPod) setupGuest() error {
	return p.vm.do(func() error { return SetupGuest(context.Background(), p.guestPath, "", p.cfg) })
}

// connect sets up both halves and returns the namespace the pod's processes
// run in, in the VM.
func (p *labPod) connect() *testNS {
	p.lab.t.Helper()
	if err := p.setupNode(); err != nil {
		p.lab.t.Fatal(err)
	}
	if err := p.setupGuest(); err != nil {
		p.lab.t.Fatal(err)
	}
	if p.cfg.encrypted() {
		p.carry()
	}
	return p.inside()
}

func (p *labPod) inside() *testNS {
	p.lab.t.Helper()
	fd, err := netns.GetFromPath(p.guestPath)
	if err != nil {
		p.lab.t.Fatal(err)
	}
	p.lab.t.Cleanup(func() { fd.Close() })
	return &testNS{t: p.lab.t, fd: fd}
}

// newPod is addPod and connect.
func (l *lab) newPod(o podOptions) (*labPod, *testNS) {
	l.t.Helper()
	p := l.addPod(o)
	return p, p.connect()
}

func unmount(path string) error { return unix.Unmount(path, unix.MNT_DETACH) }

// explain shows what there is in the namespaces when a test has failed.
func (p *labPod) explain(t *testing.T, inside *testNS) {
	if !t.Failed() {
		return
	}
	for name, n := range map[string]*testNS{"node": p.lab.node, "pod": p.ns, "VM": p.vm, "pod in the VM": inside} {
		var out strings.Builder
		for _, argv := range []string{"ip -d -s link", "ip addr", "ip -4 route show table all", "ip -6 route show table all", "ip neigh", "bridge fdb", "nstat -az Ip6OutNoRoutes Ip6InDiscards Ip6OutDiscards UdpInErrors Udp6InErrors Udp6NoPorts Udp6InCsumErrors"} {
			text, err := n.try(strings.Fields(argv)...)
			fmt.Fprintf(&out, "# %s\n%s%v\n", argv, text, err)
		}
		t.Logf("%s:\n%s", name, out.String())
	}
}

// onOwnThread runs f on a thread of its own and puts the thread back into its
// namespace. A thread that cannot go back ends.
func onOwnThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := netns.Get()
		if err != nil {
			done <- err
			return
		}
		defer home.Close()
		err = f()
		if netns.Set(home) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}
