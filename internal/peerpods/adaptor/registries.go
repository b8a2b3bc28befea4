// SPDX-License-Identifier: Apache-2.0

package adaptor

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/outrigger/outrigger/internal/peerpods/podnetwork"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

const (
	guestInsecureRegistries = "/run/peerpod/insecure-registries"
	// NodeItself stands, in Options.InsecureRegistries, for the address at which
	// a VM sees this node.
	NodeItself = "@node"
	// maxRegistries bounds the list in bytes, since user-data is small.
	maxRegistries = 1024
)

var registryHost = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$`)

// checkRegistries refuses URLs: entries are hosts.
func checkRegistries(list []string) error {
	for _, one := range list {
		if one == NodeItself {
			continue
		}
		_, port, _ := strings.Cut(one[strings.LastIndex(one, "]")+1:], ":")
		n, err := strconv.Atoi(port)
		if !registryHost.MatchString(one) || port != "" && (err != nil || n < 1 || n > 65535) {
			return fmt.Errorf("-insecure-registries (INSECURE_REGISTRIES): %q: want HOST, HOST:PORT or %s", shorten(one, 80), NodeItself)
		}
	}
	if size := len(strings.Join(list, "\n")); size > maxRegistries {
		return fmt.Errorf("-insecure-registries (INSECURE_REGISTRIES): %d bytes; at most %d fit into a VM's user-data", size, maxRegistries)
	}
	return nil
}

// insecureRegistries returns the file with the operator's list for the guest; nil
// without any.
func (s *Service) insecureRegistries(ctx context.Context, network *podnetwork.Config) ([]cloudinit.WriteFile, error) {
	var list []string
	for _, one := range s.opts.InsecureRegistries {
		if one != NodeItself {
			list = append(list, one)
			continue
		}
		node, err := s.nodeAddress(ctx)
		if err != nil {
			return nil, err
		}
		if !node.IsValid() && network != nil {
			node = network.WorkerNodeIP.Addr()
		}
		if node.IsValid() {
			list = append(list, hostOf(node))
		}
	}
	if len(list) == 0 {
		return nil, nil
	}
	slices.Sort(list)
	return []cloudinit.WriteFile{{Path: guestInsecureRegistries, Content: strings.Join(slices.Compact(list), "\n") + "\n"}}, nil
}

// hostOf writes an address as it stands in the name of an image.
func hostOf(addr netip.Addr) string {
	if addr = addr.Unmap(); addr.Is6() {
		return "[" + addr.WithZone("").String() + "]"
	}
	return addr.String()
}
