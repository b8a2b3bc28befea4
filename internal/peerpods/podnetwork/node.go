// SPDX-License-Identifier: Apache-2.0

package podnetwork

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
)

// Names of what SetupNode adds to a pod's namespace.
const (
	nodeTunnelName = "vxlan1"
	// answerBridgeName is the bridge that makes the tunnel answer packets that
	// are too big; see [nodeEnd.ensureAnswers].
	answerBridgeName = "vxlan1-mtu"
)

// addrGenModeNone is IN6_ADDR_GEN_MODE_NONE of linux/if_link.h.
const addrGenModeNone = 1

// nodeEnd is the node's half of one pod's network.
type nodeEnd struct {
	node, pod *namespace
	cfg       *Config
	vm        netip.Addr

	podLink    netlink.Link
	tunnelLink netlink.Link
}

// SetupNode connects the pod's namespace with its VM: what enters the pod's
// interface leaves by the tunnel, and the other way round. It is called in the
// node's network namespace. Calling it again changes nothing that is right.
// On an error it undoes what this call did. Errors: [ErrNoNetns],
// [ErrVNIInUse], [ErrForeignFilter].
func SetupNode(ctx context.Context, netns string, cfg *Config, vm netip.Addr) error {
	end, err := openNode(netns, cfg, vm)
	if err != nil {
		return fmt.Errorf("set up pod network: %w", err)
	}
	defer end.Close()
	if err := runSteps(ctx, end.steps()); err != nil {
		return fmt.Errorf("set up pod network: %w", err)
	}
	return nil
}

func openNode(netns string, cfg *Config, vm netip.Addr) (*nodeEnd, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.VXLANID == 0 {
		return nil, errors.New("pod-network: vxlan-id is missing")
	}
	if !vm.IsValid() {
		return nil, errors.New("the VM has no address")
	}
	if own := cfg.WorkerNodeIP.Addr().Unmap(); own.Is4() != vm.Unmap().Is4() {
		return nil, fmt.Errorf("the node's address %s and the VM's address %s are of different families", own, vm.Unmap())
	}
	node, err := currentNamespace()
	if err != nil {
		return nil, err
	}
	pod, err := openNamespace(netns)
	if err != nil {
		node.Close()
		return nil, err
	}
	end := &nodeEnd{node: node, pod: pod, cfg: cfg, vm: vm.Unmap()}
	if end.podLink, err = pod.link(cfg.Interface); err == nil && end.podLink == nil {
		err = fmt.Errorf("the pod's namespace has no interface %s", cfg.Interface)
	}
	if err != nil {
		end.Close()
		return nil, err
	}
	return end, nil
}

func (e *nodeEnd) Close() {
	e.node.Close()
	e.pod.Close()
}

// step does one thing and reports how to undo what it changed; a nil undo
// says that everything was in place already.
type step struct {
	name string
	do   func() (undo func() error, err error)
}

// runSteps runs steps in order. When one fails, or ctx ends between two, it
// undoes in reverse what they changed.
func runSteps(ctx context.Context, steps []step) error {
	var undos []func() error
	for _, s := range steps {
		err := ctx.Err()
		if err == nil {
			var undo func() error
			if undo, err = s.do(); undo != nil {
				undos = append(undos, undo)
			}
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", s.name, err)
			for _, undo := range slices.Backward(undos) {
				if undoErr := undo(); undoErr != nil {
					err = errors.Join(err, fmt.Errorf("undo: %w", undoErr))
				}
			}
			return err
		}
	}
	return nil
}

// steps go from the underlay to the pod; traffic flows after the last.
func (e *nodeEnd) steps() []step {
	if e.cfg.encrypted() {
		return e.frameSteps()
	}
	return []step{
		{"keep others out of the tunnel", e.ensureRules},
		{"create tunnel", e.ensureTunnel},
		{"answer packets that are too big", e.ensureAnswers},
		{"lower MTU towards the pod", e.ensureInboundMTU},
		{"redirect pod to tunnel", func() (func() error, error) { return e.ensureRedirect(e.podLink, e.tunnelLink) }},
		{"redirect tunnel to pod", func() (func() error, error) { return e.ensureRedirect(e.tunnelLink, e.podLink) }},
		{"start tunnel", e.startTunnel},
	}
}

func (e *nodeEnd) ensureRules() (func() error, error) {
	far := e.cfg.farEnd(e.vm)
	changed, err := addRules(e.node.ns, far)
	if !changed {
		return nil, err
	}
	return func() error { return removeRules(e.node.ns, far) }, err
}

// farEnd returns the end of the tunnel at addr.
func (c *Config) farEnd(addr netip.Addr) farEnd {
	return farEnd{addr: addr.Unmap(), port: c.port(), vni: c.VXLANID, guard: c.SourceCheck}
}

func (e *nodeEnd) ensureTunnel() (func() error, error) {
	path, err := e.node.pathTo(e.vm)
	if err != nil {
		return nil, err
	}
	mtu, err := e.cfg.tunnelMTU(path.mtu)
	if err != nil {
		return nil, err
	}
	t := &tunnel{
		name: nodeTunnelName, vni: e.cfg.VXLANID, port: e.cfg.port(), mtu: mtu,
		local: e.cfg.WorkerNodeIP.Addr().Unmap(), remote: e.vm,
	}
	if err := e.releasePeer(t); err != nil {
		return nil, err
	}
	link, created, err := t.ensure(e.node, e.pod)
	e.tunnelLink = link
	if !created {
		return nil, err
	}
	return func() error { return e.pod.deleteLink(nodeTunnelName, "vxlan") }, err
}

// releasePeer restores the peer's MTU before a tunnel of an earlier set-up,
// which stores that MTU, is replaced.
func (e *nodeEnd) releasePeer(t *tunnel) error {
	old, err := e.pod.link(nodeTunnelName)
	if err != nil || old == nil || t.matches(old) {
		return err
	}
	return restorePeerMTU(e.node, e.pod, e.podLink, old)
}

func (e *nodeEnd) ensureRedirect(from, to netlink.Link) (func() error, error) {
	changed, err := e.pod.ensureRedirect(from, to)
	if !changed {
		return nil, err
	}
	return func() error { return e.pod.removeRedirect(from) }, err
}

// startTunnel keeps the kernel from giving the tunnel an IPv6 address of its
// own: its router solicitations would go to the VM. Kernels without IPv6 have
// nothing to refuse.
func (e *nodeEnd) startTunnel() (func() error, error) {
	_ = e.pod.LinkSetIP6AddrGenMode(e.tunnelLink, addrGenModeNone)
	if err := e.pod.LinkSetUp(e.tunnelLink); err != nil {
		return nil, fmt.Errorf("set %s up: %w", e.tunnelLink.Attrs().Name, err)
	}
	return nil, nil // removing the tunnel undoes it
}

// deleteLink removes an interface of the given type; success if there is none.
func (n *namespace) deleteLink(name, kind string) error {
	link, err := n.link(name)
	if err != nil || link == nil || link.Type() != kind {
		return err
	}
	if err := n.LinkDel(link); err != nil && !isNotFound(err) {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}

// TeardownNode removes everything SetupNode makes and gives the pod's interface
// and its peer back as CNI left them, however far SetupNode came and whether or
// not the namespace still exists. It is called in the node's network namespace.
// Removing what is not there is success; on an error the rest is still removed
// and a repeated call finishes. It takes milliseconds and does not stop when
// ctx ends: half a pod network is of no use.
//
// An ingress qdisc without any filter is taken for one that an interrupted
// SetupNode left, and removed.
func TeardownNode(_ context.Context, netns string, cfg *Config, vm netip.Addr) error {
	node, err := currentNamespace()
	if err != nil {
		return fmt.Errorf("tear down pod network: %w", err)
	}
	defer node.Close()
	err = errors.Join(
		teardownPod(node, netns, cfg),
		node.removeHostRoutes(cfg),
		removeRules(node.ns, cfg.farEnd(vm)),
	)
	if err != nil {
		return fmt.Errorf("tear down pod network: %w", err)
	}
	return nil
}

// teardownPod has nothing to do when the namespace is gone: its interfaces
// went with it, and the peer of the pod's with those.
func teardownPod(node *namespace, netns string, cfg *Config) error {
	if netns == "" {
		return nil
	}
	pod, err := openNamespace(netns)
	if errors.Is(err, ErrNoNetns) {
		return nil
	}
	if err != nil {
		return err
	}
	defer pod.Close()
	podLink, err := pod.link(cfg.Interface)
	if err != nil {
		return err
	}
	tunnelLink, err := pod.link(nodeTunnelName)
	if err != nil {
		return err
	}
	frameLink, err := pod.link(frameLinkName)
	if err != nil {
		return err
	}
	// Filters before the tunnel: a redirect to nowhere drops packets, and logs
	// each. The tunnel last: it holds the peer's former MTU.
	return errors.Join(
		pod.removeRedirect(podLink),
		restorePeerMTU(node, pod, podLink, tunnelLink),
		pod.deleteLink(answerBridgeName, "bridge"),
		pod.deleteLink(passingName(cfg.VXLANID), "vxlan"),
		pod.deleteLink(nodeTunnelName, "vxlan"),
		pod.removeRedirect(frameLink),
		pod.deleteLink(frameLinkName, "veth"),
	)
}
