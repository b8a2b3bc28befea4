// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	"github.com/outrigger/outrigger/internal/peerpods/podnetwork"
	"github.com/outrigger/outrigger/internal/peerpods/podtls"
)

// nodeNetwork is the kernel's networking on this node.
type nodeNetwork struct {
	hostInterface string
	subnets       []netip.Prefix
	external      bool
	metadata      bool
	sourceCheck   bool
}

func (n *nodeNetwork) Inspect(_ context.Context, netns string, node netip.Addr) (*podnetwork.Config, error) {
	return podnetwork.Inspect(podnetwork.InspectOptions{
		Netns:            netns,
		HostInterface:    n.hostInterface,
		NodeAddress:      node,
		PodSubnets:       n.subnets,
		ExternalViaPodVM: n.external,
		MetadataAccess:   n.metadata,
		SourceCheck:      n.sourceCheck,
	})
}

func (n *nodeNetwork) Setup(ctx context.Context, netns string, cfg *podnetwork.Config, vm netip.Addr) error {
	return podnetwork.SetupNode(ctx, netns, cfg, vm)
}

func (n *nodeNetwork) Teardown(ctx context.Context, netns string, cfg *podnetwork.Config, vm netip.Addr) error {
	return podnetwork.TeardownNode(ctx, netns, cfg, vm)
}

func (n *nodeNetwork) OpenFrames(netns string) (*os.File, error) {
	return podnetwork.OpenNodeFrames(netns)
}

func parseSubnets(texts []string) ([]netip.Prefix, error) {
	var subnets []netip.Prefix
	for _, text := range texts {
		subnet, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("-pod-subnet-cidrs (POD_SUBNET_CIDRS): %q is not a network such as 10.244.0.0/16", text)
		}
		subnets = append(subnets, subnet.Masked())
	}
	return subnets, nil
}

// issue makes the certificates of one pod.
func issue(serverName string, now time.Time) (*adaptor.Identity, error) {
	bundle, err := podtls.NewBundle(serverName, now)
	if err != nil {
		return nil, err
	}
	return &adaptor.Identity{
		NodeIdentity: adaptor.NodeIdentity{
			CA:         string(bundle.CAPEM),
			ClientCert: string(bundle.ClientCertPEM),
			ClientKey:  string(bundle.ClientKeyPEM),
		},
		ServerCert: string(bundle.ServerCertPEM),
		ServerKey:  string(bundle.ServerKeyPEM),
	}, nil
}
