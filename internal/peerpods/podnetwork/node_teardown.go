// SPDX-License-Identifier: Apache-2.0

package podnetwork

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
)

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
	// Filters before the tunnel: a redirect to nowhere drops packets, and logs
	// each. The tunnel last: it holds the peer's former MTU.
	return errors.Join(
		pod.removeRedirect(podLink),
		restorePeerMTU(node, pod, podLink, tunnelLink),
		pod.deleteLink(answerBridgeName, "bridge"),
		pod.deleteLink(passingName(cfg.VXLANID), "vxlan"),
		pod.deleteLink(nodeTunnelName, "vxlan"),
	)
}
