// SPDX-License-Identifier: Apache-2.0

// Command network is the program node-network of a node: names for pods, and
// ways between the pods of nodes that share a network.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// Files of a node.
const (
	// networkSwitch turns the pods' network on; who wants another network
	// removes it before kubeadm is run.
	networkSwitch = "/etc/kubernetes/node-network.yaml"
	kubeconfig    = "/etc/kubernetes/kubelet.conf"
	pluginConfig  = "/etc/cni/net.d/10-node.conflist"
	hostResolver  = "/etc/resolv.conf"
	podResolver   = "/run/node/resolv.conf"
)

// routeOwner marks our routes, among those of the kernel and of people
// (rtnetlink(7), rtm_protocol; values above 4 are free to use).
const routeOwner = 87

// nodeIPsVariable is what node-agent tells its services the Node's addresses in, separated by
// commas: NodeIPsVariable of its package nodeagent.
const nodeIPsVariable = "NODE_IPS"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil)).With("program", "node-network")
	if err := nodeNetwork(ctx, log); err != nil && ctx.Err() == nil {
		log.Error("ends", "error", err)
		os.Exit(1)
	}
}

func nodeNetwork(ctx context.Context, log *slog.Logger) error {
	addresses, err := ownAddresses()
	if err != nil {
		return err
	}
	if err := serveNames(ctx, addresses[0], log); err != nil {
		return fmt.Errorf("names for pods: %w", err)
	}
	n := &network{addresses: addresses, log: log}
	var client kubernetes.Interface
	for client == nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
			client, _ = connect() // kubelet has no certificate yet
		}
	}
	if _, err := os.Stat(networkSwitch); errors.Is(err, os.ErrNotExist) {
		log.Info("the pods' network is somebody else's")
		<-ctx.Done()
		return nil
	}
	return n.follow(ctx, client)
}

// connect returns a client with kubelet's identity.
func connect() (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "node-network"
	return kubernetes.NewForConfig(config)
}

// ownAddresses are the node's on the network of the nodes, at most one of each family: those
// that node-agent tells, or else the one of IPv4.
func ownAddresses() (list []netip.Addr, err error) {
	for _, text := range strings.FieldsFunc(os.Getenv(nodeIPsVariable), func(r rune) bool { return r == ',' }) {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", nodeIPsVariable, err)
		}
		list = append(list, addr)
	}
	if len(list) > 0 {
		return list, nil
	}
	routes, err := netlink.RouteGet(net.IPv4(192, 0, 2, 1)) // nobody's, so by the default route (RFC 5737)
	if err != nil {
		return nil, fmt.Errorf("the machine has no default route, which tells its address: %w", err)
	}
	if len(routes) == 0 {
		return nil, errors.New("the machine has no default route, which tells its address")
	}
	addr, ok := netip.AddrFromSlice(routes[0].Src.To4())
	if !ok {
		return nil, errors.New("the machine's default route has no address of its own")
	}
	return []netip.Addr{addr}, nil
}

// network keeps this node's part of the pods' network.
type network struct {
	addresses []netip.Addr
	log       *slog.Logger
}

// peer is another node: where its pods are.
type peer struct {
	pods netip.Prefix
	via  netip.Addr
}

// applyAgain is how soon what could not be applied is tried again.
const applyAgain = 5 * time.Second

// follow applies what the nodes are, each time they change.
func (n *network) follow(ctx context.Context, client kubernetes.Interface) error {
	factory := informers.NewSharedInformerFactory(client, 10*time.Minute)
	nodes := factory.Core().V1().Nodes()
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default: // there is one to come
		}
	}
	_, err := nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { notify() }, UpdateFunc: func(any, any) { notify() }, DeleteFunc: func(any) { notify() },
	})
	if err != nil {
		return err
	}
	factory.StartWithContext(ctx)
	factory.WaitForCacheSyncWithContext(ctx)
	var before string
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-again:
		}
		list, err := nodes.Lister().List(labels.Everything())
		if err != nil {
			return err
		}
		own, peers := n.sort(list)
		if now := fmt.Sprint(own, peers); now != before { // heartbeats change nothing
			if err := n.apply(own, peers); err != nil {
				// To end would be to answer no questions for names meanwhile.
				n.log.Error("ways to pods are not complete", "error", err, "again in", applyAgain)
				before, again = "", time.After(applyAgain) // part of it may be there
				continue
			}
			n.log.Info("ways to pods", "own", own, "peers", len(peers))
			before, again = now, nil
		}
	}
}

// sort tells the pods of this node from those of others. Nodes without subnet or
// address have no pods yet.
func (n *network) sort(list []*corev1.Node) (own []netip.Prefix, peers []peer) {
	for _, node := range list {
		var addresses []netip.Addr
		for _, a := range node.Status.Addresses {
			if addr, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
				addresses = append(addresses, addr)
			}
		}
		mine := slices.ContainsFunc(addresses, func(a netip.Addr) bool { return slices.Contains(n.addresses, a) })
		for _, text := range node.Spec.PodCIDRs {
			pods, err := netip.ParsePrefix(text)
			if err != nil {
				continue
			}
			if mine {
				own = append(own, pods)
			} else if via := wayTo(pods, addresses); via.IsValid() {
				peers = append(peers, peer{pods, via})
			}
		}
	}
	slices.SortFunc(peers, func(a, b peer) int { return a.pods.Compare(b.pods) })
	return own, peers
}

// wayTo returns the address of a node by which its pods are reached: one of their family.
// IPv4 also goes by an IPv6 address (RFC 5549), which may be the only one that a Node has.
func wayTo(pods netip.Prefix, addresses []netip.Addr) (via netip.Addr) {
	for _, a := range addresses {
		if a.Is4() == pods.Addr().Is4() {
			return a
		}
		if a.Is6() {
			via = a
		}
	}
	return via
}

// apply does what it can: a node that cannot be reached keeps none from having
// pods.
func (n *network) apply(own []netip.Prefix, peers []peer) error {
	var errs []error
	if err := n.route(peers); err != nil {
		errs = append(errs, fmt.Errorf("ways to the pods of other nodes: %w", err))
	}
	for _, pods := range own {
		if err := masquerade(pods, peers); err != nil {
			errs = append(errs, fmt.Errorf("the way of pods %s out of the cluster: %w", pods, err))
		}
	}
	if len(own) > 0 {
		errs = append(errs, n.configure(own))
	}
	return errors.Join(errs...)
}

// route makes our routes those to the peers.
func (n *network) route(peers []peer) error {
	wanted := map[netip.Prefix]netip.Addr{}
	for _, p := range peers {
		wanted[p.pods] = p.via
	}
	there, err := n.routes()
	if err != nil {
		return err
	}
	for _, r := range there {
		if to, ok := prefixOf(r.Dst); ok && wanted[to].IsValid() {
			continue // replaced below
		}
		if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	var errs []error
	for _, to := range slices.SortedFunc(maps.Keys(wanted), netip.Prefix.Compare) {
		if err := netlink.RouteReplace(routeTo(to, wanted[to])); err != nil {
			errs = append(errs, fmt.Errorf("%s by %s: %w", to, wanted[to], err))
		}
	}
	return errors.Join(errs...)
}

// routes returns those that are ours. IPv6 may be missing in the kernel.
func (n *network) routes() (list []netlink.Route, err error) {
	families := []int{unix.AF_INET}
	if slices.ContainsFunc(n.addresses, netip.Addr.Is6) {
		families = append(families, unix.AF_INET6)
	}
	for _, family := range families {
		there, err := netlink.RouteListFiltered(family, &netlink.Route{Protocol: routeOwner}, netlink.RT_FILTER_PROTOCOL)
		if err != nil {
			return nil, err
		}
		list = append(list, there...)
	}
	return list, nil
}

func routeTo(to netip.Prefix, via netip.Addr) *netlink.Route {
	dst := &net.IPNet{IP: to.Addr().AsSlice(), Mask: net.CIDRMask(to.Bits(), to.Addr().BitLen())}
	if to.Addr().Is4() && via.Is6() {
		return &netlink.Route{Dst: dst, Via: &netlink.Via{AddrFamily: unix.AF_INET6, Addr: via.AsSlice()}, Protocol: routeOwner}
	}
	return &netlink.Route{Dst: dst, Gw: via.AsSlice(), Protocol: routeOwner}
}

func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(addr.Unmap(), ones), ok
}

// masquerade gives pods that speak to others than pods the node's address, which
// is the only one that others know.
func masquerade(own netip.Prefix, peers []peer) error {
	const chain = "NODE-NETWORK"
	program, multicast := "iptables", "224.0.0.0/4"
	if own.Addr().Is6() {
		program, multicast = "ip6tables", "ff00::/8"
	}
	var rules strings.Builder
	fmt.Fprintf(&rules, "*nat\n:%s - [0:0]\n", chain)
	for _, p := range append(slices.Clone(peers), peer{pods: own}) {
		if p.pods.Addr().Is4() == own.Addr().Is4() {
			fmt.Fprintf(&rules, "-A %s -d %s -j RETURN\n", chain, p.pods)
		}
	}
	fmt.Fprintf(&rules, "-A %s ! -d %s -j MASQUERADE\nCOMMIT\n", chain, multicast)
	cmd := exec.Command(program+"-restore", "--wait", "10", "--noflush")
	cmd.Stdin = strings.NewReader(rules.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd.Path, err, bytes.TrimSpace(out))
	}
	jump := []string{"POSTROUTING", "-s", own.String(), "-j", chain}
	if nat(program, append([]string{"-C"}, jump...)...) == nil {
		return nil
	}
	return nat(program, append([]string{"-A"}, jump...)...)
}

func nat(program string, args ...string) error {
	cmd := exec.Command(program, append([]string{"--wait", "10", "-t", "nat"}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd, err, bytes.TrimSpace(out))
	}
	return nil
}

// configure tells containerd how pods are connected; the node is Ready when it
// knows. With ptp all that pods send is routed, so that Services work without
// the kernel's filter for bridges.
func (n *network) configure(own []netip.Prefix) error {
	type object = map[string]any
	var ranges [][]any // one set for each family: a pod has an address of each set
	var routes []any
	for _, pods := range own {
		ranges = append(ranges, []any{object{"subnet": pods.String()}})
		routes = append(routes, object{"dst": netip.PrefixFrom(pods.Addr(), 0).Masked().String()}) // 0.0.0.0/0 or ::/0
	}
	text, err := json.MarshalIndent(object{
		"cniVersion": "0.4.0", "name": "node",
		"plugins": []any{
			object{"type": "ptp", "ipMasq": false, "ipam": object{
				"type": "host-local", "dataDir": "/run/cni-ipam",
				"ranges": ranges, "routes": routes,
			}},
			object{"type": "portmap", "capabilities": object{"portMappings": true}},
		},
	}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(pluginConfig), 0o755); err != nil {
		return err
	}
	fresh := pluginConfig + ".new" // a name that containerd does not read
	if err := os.WriteFile(fresh, append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(fresh, pluginConfig)
}
