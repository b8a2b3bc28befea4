// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/outrigger/outrigger/internal/guestinfo"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// announceLimit bounds the wait for an address. DHCP has been tried before; see
// podvm-init.
const announceLimit = time.Minute

// Announce reports to the platform what an agent of the platform, which the pod VM lacks,
// would report: to vSphere the VM's addresses, to Azure that the VM is ready. On other
// platforms it does nothing.
func Announce(ctx context.Context, p Platform) error {
	ctx, cancel := context.WithTimeout(ctx, announceLimit)
	defer cancel()
	switch p {
	case Azure:
		return reportReady(ctx, newClient(), wireServer, 100*time.Millisecond)
	case VSphere:
		return announce(ctx, backdoor{}, localAddresses, 500*time.Millisecond)
	}
	return nil
}

// announce waits for an address and writes all into the guest information,
// which the provider reads in the VM's extraConfig.
func announce(ctx context.Context, info guestInfo, local func() ([]netip.Addr, error), pause time.Duration) error {
	for {
		if list, err := local(); err == nil && len(list) > 0 {
			return info.Set(guestinfo.Address, joined(list))
		}
		if err := poll.Sleep(ctx, pause); err != nil {
			return fmt.Errorf("%s is not set, since there is no address: %w", guestinfo.Address, err)
		}
	}
}

func joined(list []netip.Addr) string {
	texts := make([]string, len(list))
	for i, addr := range list {
		texts[i] = addr.String()
	}
	return strings.Join(texts, ",")
}

// localAddresses returns those by which others reach this machine, IPv4 first.
func localAddresses() ([]netip.Addr, error) {
	links, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var list []netip.Addr
	for _, link := range links {
		if link.Flags&net.FlagUp == 0 || link.Flags&net.FlagLoopback != 0 {
			continue
		}
		addrs, err := link.Addrs()
		if err != nil {
			return nil, err
		}
		for _, addr := range addrs {
			if prefix, err := netip.ParsePrefix(addr.String()); err == nil && prefix.Addr().IsGlobalUnicast() {
				list = append(list, prefix.Addr())
			}
		}
	}
	slices.SortStableFunc(list, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	return list, nil
}
