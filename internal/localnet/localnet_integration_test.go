// SPDX-License-Identifier: Apache-2.0

//go:build integration

package localnet

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/test/testns"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("LOCALNET_TEST_ATTACH"); dir != "" {
		attachForEver(dir)
	}
	testns.Main(m)
}

// newNetwork returns a network that is empty now and must be gone in the end.
func newNetwork(t *testing.T, change ...func(*Config)) *Network {
	t.Helper()
	testns.RequireRoot(t)
	cfg := testConfig(filepath.Join(t.TempDir(), "net"))
	for _, c := range change {
		c(&cfg)
	}
	network, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	before := machine(t)
	t.Cleanup(func() {
		detachAll(t, network)
		if after := machine(t); after != before {
			t.Errorf("left behind; before:\n%s\nafter:\n%s", before, after)
		}
		if _, err := os.Stat(cfg.StateDir); !os.IsNotExist(err) {
			t.Errorf("state folder is still there (%v)", err)
		}
	})
	return network
}

func testConfig(dir string) Config {
	return Config{Bridge: "ortest0", Subnets: prefixes("10.77.0.0/24", "fd77::/64"), StateDir: dir}
}

func detachAll(t *testing.T, network *Network) {
	t.Helper()
	ports, err := network.Ports()
	if err != nil {
		t.Fatal(err)
	}
	for _, port := range append(ports, Port{ID: "nobody"}) {
		if err := network.Detach(port.ID); err != nil {
			t.Errorf("detach %s: %v", port.ID, err)
		}
	}
}

// machine describes everything the package may change outside its folder.
func machine(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		fmt.Fprintln(&text, link.Attrs().Name, link.Type())
	}
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	tables, err := conn.ListTables()
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		fmt.Fprintln(&text, "table", table.Family, table.Name)
	}
	spaces, _ := filepath.Glob(netnsDir + "/*")
	runs, _ := filepath.Glob(defaultRunDir + "/*")
	fmt.Fprintln(&text, spaces, runs, readSysctl(forward4), readSysctl(forward6))
	return text.String()
}

func mustTap(t *testing.T, network *Network, id string) *Port {
	t.Helper()
	port, err := network.AttachTap(id)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func mustLink(t *testing.T, name string) netlink.Link {
	t.Helper()
	link, err := netlink.LinkByName(name)
	if err != nil {
		t.Fatalf("interface %s: %v", name, err)
	}
	return link
}

func TestTapIsAttachedOnceAndComplete(t *testing.T) {
	network := newNetwork(t)
	port := mustTap(t, network, "vm1")
	again := mustTap(t, network, "vm1")
	if fmt.Sprint(port) != fmt.Sprint(again) {
		t.Errorf("attached twice: %v, then %v", port, again)
	}
	bridge, tap := mustLink(t, "ortest0"), mustLink(t, port.Interface)
	if tap.Attrs().MasterIndex != bridge.Attrs().Index || tap.Attrs().Flags&net.FlagUp == 0 {
		t.Errorf("tap is not an active port of the bridge: %+v", tap.Attrs())
	}
	if readSysctl(forward4) != "1" || readSysctl(forward6) != "1" {
		t.Error("forwarding is off")
	}
	for _, addr := range port.Addrs {
		if !hasPermanentNeighbour(t, bridge, addr.Addr(), port.MAC) {
			t.Errorf("no permanent neighbour entry for %s", addr)
		}
	}
	ports, err := network.Ports()
	if err != nil || len(ports) != 1 || ports[0].ID != "vm1" {
		t.Errorf("ports %v, %v", ports, err)
	}
}

func hasPermanentNeighbour(t *testing.T, bridge netlink.Link, addr netip.Addr, mac net.HardwareAddr) bool {
	t.Helper()
	all, err := netlink.NeighList(bridge.Attrs().Index, netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range all {
		if n.IP.Equal(addr.AsSlice()) && n.HardwareAddr.String() == mac.String() && n.State == netlink.NUD_PERMANENT {
			return true
		}
	}
	return false
}

func TestAttachMendsWhatIsMissingAndRemovesWhatIsLeft(t *testing.T) {
	network := newNetwork(t)
	port := mustTap(t, network, "vm1")
	lost := mustTap(t, network, "lost")

	// A lease without an interface, an interface without a lease, a namespace
	// without a lease, and a ruleset that somebody flushed.
	if err := deleteLink(port.Interface); err != nil {
		t.Fatal(err)
	}
	st, err := network.load()
	if err != nil {
		t.Fatal(err)
	}
	delete(st.Leases, "lost")
	if err := network.save(st); err != nil {
		t.Fatal(err)
	}
	orphan := filepath.Join(netnsDir, "ortest0-0123456789ab")
	if err := CreateNetns(orphan); err != nil {
		t.Fatal(err)
	}
	if err := network.removeNAT(); err != nil {
		t.Fatal(err)
	}

	again := mustTap(t, network, "vm1")
	if fmt.Sprint(port) != fmt.Sprint(again) {
		t.Errorf("port changed from %v to %v", port, again)
	}
	mustLink(t, port.Interface)
	if link, err := findLink(lost.Interface); link != nil || err != nil {
		t.Errorf("leftover tap: %v, %v", link, err)
	}
	if isNetns(orphan) {
		t.Error("leftover namespace is still there")
	}
	conn, _ := nftables.New()
	if there, err := network.hasTable(conn); !there || err != nil {
		t.Errorf("nft table is not back: %v", err)
	}
}

func TestLostStateFolder(t *testing.T) {
	network := newNetwork(t)
	port := mustTap(t, network, "vm1")
	if err := os.RemoveAll(network.cfg.StateDir); err != nil {
		t.Fatal(err)
	}
	if err := network.Detach("vm1"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{port.Interface, "ortest0"} {
		if link, err := findLink(name); link != nil || err != nil {
			t.Errorf("%s is left: %v", name, err)
		}
	}
}

func TestBridgeOfAnotherFolder(t *testing.T) {
	network := newNetwork(t)
	mustTap(t, network, "vm1")
	other, err := Open(testConfig(filepath.Join(t.TempDir(), "other")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.AttachTap("vm1"); !errors.Is(err, ErrClash) || !strings.Contains(err.Error(), network.cfg.StateDir) {
		t.Fatalf("attach to another's bridge: %v, want a clash that names %s", err, network.cfg.StateDir)
	}
	if err := other.Detach("vm1"); err != nil {
		t.Errorf("detach: %v", err)
	}
	mustLink(t, "ortest0")

	// When that folder is gone, its bridge is fair game.
	if err := os.RemoveAll(network.cfg.StateDir); err != nil {
		t.Fatal(err)
	}
	if _, err := other.AttachTap("vm1"); err != nil {
		t.Fatalf("take over an abandoned bridge: %v", err)
	}
	if err := other.Detach("vm1"); err != nil {
		t.Error(err)
	}
}

func TestForeignInterfaceOfThatName(t *testing.T) {
	network := newNetwork(t, func(c *Config) { c.Bridge = "theirs0" })
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "theirs0"
	theirs := &netlink.Bridge{LinkAttrs: attrs}
	if err := netlink.LinkAdd(theirs); err != nil {
		t.Fatal(err)
	}
	defer netlink.LinkDel(theirs)
	if _, err := network.AttachTap("vm1"); !errors.Is(err, ErrClash) {
		t.Errorf("attach: %v, want a clash", err)
	}
	if err := network.Detach("vm1"); err != nil {
		t.Error(err)
	}
	mustLink(t, "theirs0")
}

func TestSubnetThatIsInUse(t *testing.T) {
	network := newNetwork(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "lan0"
	lan := &netlink.Bridge{LinkAttrs: attrs}
	if err := netlink.LinkAdd(lan); err != nil {
		t.Fatal(err)
	}
	defer netlink.LinkDel(lan)
	addr := &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("10.77.0.9/16"))}
	if err := errors.Join(netlink.AddrAdd(lan, addr), netlink.LinkSetUp(lan)); err != nil {
		t.Fatal(err)
	}
	_, err := network.AttachTap("vm1")
	if !errors.Is(err, ErrClash) || !strings.Contains(err.Error(), "10.77.0.0/24") || !strings.Contains(err.Error(), "lan0") {
		t.Errorf("attach: %v, want a clash that names subnet and interface", err)
	}
}

func TestTwoNetworksShareForwarding(t *testing.T) {
	first := newNetwork(t)
	second := newNetwork(t, func(c *Config) {
		c.Bridge, c.Subnets = "ortest1", prefixes("10.78.0.0/24")
	})
	mustTap(t, first, "a")
	mustTap(t, second, "b")
	if err := first.Detach("a"); err != nil {
		t.Fatal(err)
	}
	if readSysctl(forward4) != "1" {
		t.Error("forwarding went off while a network needs it")
	}
	if err := second.Detach("b"); err != nil {
		t.Fatal(err)
	}
	if readSysctl(forward4) != "0" {
		t.Error("forwarding is still on")
	}
}

// Filters like Docker's, which drop what they do not know, must let our ports
// out and be as before in the end.
func TestForeignFilterThatDrops(t *testing.T) {
	network := newNetwork(t)
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	drop := nftables.ChainPolicyDrop
	table := conn.AddTable(&nftables.Table{Name: "filter", Family: nftables.TableFamilyIPv4})
	chain := conn.AddChain(&nftables.Chain{
		Name: "FORWARD", Table: table, Type: nftables.ChainTypeFilter, Policy: &drop,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter,
	})
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		conn.DelTable(table)
		conn.Flush()
	}()
	outside := newOutside(t)
	_, path := mustNetns(t, network, "pod")
	mustTap(t, network, "vm") // the second attach must not add the rules again
	if rules, err := conn.GetRules(table, chain); err != nil || len(rules) != 2 {
		t.Errorf("%d rules in the foreign chain, want 2 (%v)", len(rules), err)
	}
	if got := dialFrom(t, path, outside.addr4); got != outside.node4 {
		t.Errorf("server saw %q, want the node's %s", got, outside.node4)
	}
	detachAll(t, network)
	if rules, err := conn.GetRules(table, chain); err != nil || len(rules) != 0 {
		t.Errorf("%d rules left in the foreign chain (%v)", len(rules), err)
	}
}

// TestNamedNamespacesOfOthers: the first `ip netns add` of a machine mounts its folder
// over itself, and what was mounted in it before cannot be removed any more.
func TestNamedNamespacesOfOthers(t *testing.T) {
	network := newNetwork(t)
	mustNetns(t, network, "pod")
	for _, args := range [][]string{{"add", "foreign"}, {"delete", "foreign"}} {
		if out, err := exec.Command("ip", append([]string{"netns"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("ip netns %v: %v: %s", args, err, out)
		}
	}
	t.Cleanup(func() { unix.Unmount("/run/netns", unix.MNT_DETACH) })
	detachAll(t, network)
}

func mustNetns(t *testing.T, network *Network, id string) (*Port, string) {
	t.Helper()
	port, path, err := network.AttachNetns(id)
	if err != nil {
		t.Fatal(err)
	}
	return port, path
}

func TestPodsReachEachOtherAndTheOutside(t *testing.T) {
	network := newNetwork(t, func(c *Config) { c.MTU = 1430 })
	outside := newOutside(t)
	first, firstPath := mustNetns(t, network, "pod1")
	second, secondPath := mustNetns(t, network, "pod2")
	if again, path := mustNetns(t, network, "pod1"); path != firstPath || fmt.Sprint(again) != fmt.Sprint(first) {
		t.Errorf("attached twice: %v, then %v", first, again)
	}
	if first.MTU != 1430 {
		t.Errorf("MTU %d, want 1430", first.MTU)
	}
	for i, want := range []string{outside.node4, outside.node6} {
		addr := []string{outside.addr4, outside.addr6}[i]
		if got := dialFrom(t, firstPath, addr); got != want {
			t.Errorf("server at %s saw %q, want the node's %s", addr, got, want)
		}
	}
	for i, addr := range second.Addrs {
		listen := serveIn(t, secondPath, netip.AddrPortFrom(addr.Addr(), 7001).String())
		if got, want := dialFrom(t, firstPath, listen), first.Addrs[i].Addr().String(); got != want {
			t.Errorf("second pod saw %q, want %s", got, want)
		}
	}
	if _, err := network.AttachTap("pod1"); !errors.Is(err, ErrClash) {
		t.Errorf("a tap of a pod's id: %v, want a clash", err)
	}
}

// The outside cannot begin a conversation with a port, even with a route.
func TestOutsideCannotReachIn(t *testing.T) {
	network := newNetwork(t)
	outside := newOutside(t)
	port, path := mustNetns(t, network, "pod")
	listen := serveIn(t, path, netip.AddrPortFrom(port.Addrs[0].Addr(), 7002).String())
	if got := dialFrom(t, path, outside.addr4); got != outside.node4 {
		t.Fatalf("no way out: %q", got)
	}
	err := within(t, outside.path, func() error {
		link, err := netlink.LinkByName("up1")
		if err != nil {
			return err
		}
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(network.cfg.Subnets[0]), Gw: net.ParseIP(outside.node4)}
		if err := netlink.RouteAdd(route); err != nil {
			return err
		}
		conn, err := net.DialTimeout("tcp", listen, 300*time.Millisecond)
		if err == nil {
			conn.Close()
			return errors.New("connected")
		}
		return nil
	})
	if err != nil {
		t.Errorf("from outside: %v", err)
	}
}

func TestConcurrentAttachAndDetach(t *testing.T) {
	network := newNetwork(t)
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			id := fmt.Sprint("id", i%3) // each id from two sides
			for range 5 {
				if _, err := network.AttachTap(id); err != nil {
					t.Error(err)
				}
				if err := network.Detach(id); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// attachForEver is another process that attaches and detaches until killed.
func attachForEver(dir string) {
	network, err := Open(testConfig(dir))
	if err != nil {
		panic(err)
	}
	fmt.Println("ready")
	for i := 0; ; i++ {
		id := fmt.Sprint("victim", i%3)
		if i%2 == 0 {
			_, err = network.AttachTap(id)
		} else {
			_, _, err = network.AttachNetns("pod" + id)
		}
		if err == nil && i%5 > 2 {
			err = errors.Join(network.Detach(id), network.Detach("pod"+id))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func TestKilledAtAnyInstant(t *testing.T) {
	network := newNetwork(t)
	for round := range 12 {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), "LOCALNET_TEST_ATTACH="+network.cfg.StateDir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Duration(round*7) * time.Millisecond) // the instant, not a wait
		if err := cmd.Process.Kill(); err != nil {
			t.Fatalf("the other process ended by itself: %v", err)
		}
		cmd.Wait()
		mustTap(t, network, "mine")
		detachAll(t, network)
		if link, err := findLink("ortest0"); link != nil || err != nil {
			t.Fatalf("round %d: bridge is left (%v)", round, err)
		}
	}
}

// outside is a server in a namespace of its own, one hop from this one, that
// knows no way back to any subnet of ours. It answers with the caller's address.
type outside struct {
	path, addr4, addr6, node4, node6 string
}

func newOutside(t *testing.T) outside {
	t.Helper()
	o := outside{path: filepath.Join(t.TempDir(), "outside"), node4: "198.51.100.1", node6: "2001:db8::1"}
	if err := CreateNetns(o.path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteNetns(o.path) })
	handle, err := netns.GetFromPath(o.path)
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "up0"
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerNamespace = "up1", netlink.NsFd(handle)
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { netlink.LinkDel(veth) })
	address(t, "up0", o.node4+"/24", o.node6+"/64")
	if err := within(t, o.path, func() error {
		address(t, "up1", "198.51.100.2/24", "2001:db8::2/64")
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	o.addr4 = serveIn(t, o.path, "198.51.100.2:7000")
	o.addr6 = serveIn(t, o.path, "[2001:db8::2]:7000")
	return o
}

func address(t *testing.T, name string, addrs ...string) {
	t.Helper()
	link := mustLink(t, name)
	for _, addr := range addrs {
		entry := &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix(addr)), Flags: unix.IFA_F_NODAD}
		if err := netlink.AddrAdd(link, entry); err != nil {
			t.Errorf("address %s on %s: %v", addr, name, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		t.Errorf("set %s up: %v", name, err)
	}
}

// within runs do on a thread in another namespace, which then ends.
func within(t *testing.T, path string, do func() error) error {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		handle, err := netns.GetFromPath(path)
		if err == nil {
			defer handle.Close()
			err = netns.Set(handle)
		}
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}

func serveIn(t *testing.T, path, addr string) string {
	t.Helper()
	var listener net.Listener
	err := within(t, path, func() (err error) {
		listener, err = net.Listen("tcp", addr)
		return err
	})
	if err != nil {
		t.Fatalf("listen on %s: %v", addr, err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(conn, conn.RemoteAddr().(*net.TCPAddr).IP)
			conn.Close()
		}
	}()
	return addr
}

func dialFrom(t *testing.T, path, addr string) string {
	t.Helper()
	var seen []byte
	err := within(t, path, func() error {
		conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
		if err != nil {
			return err
		}
		defer conn.Close()
		seen, err = io.ReadAll(conn)
		return err
	})
	if err != nil {
		t.Errorf("dial %s: %v", addr, err)
	}
	return string(seen)
}
