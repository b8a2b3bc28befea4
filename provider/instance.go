// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode"
)

// MaxID is the longest id or name of an instance in bytes. The longest of known clouds
// have 300.
const MaxID = 1024

// CheckID reports whether a text can be the id of an instance. Its error does not quote a
// long one.
func CheckID(id string) error {
	switch {
	case len(id) > MaxID:
		return fmt.Errorf("the instance's id has %d bytes, of which it may have %d", len(id), MaxID)
	case strings.ContainsFunc(id, unicode.IsControl):
		return fmt.Errorf("the instance's id %q has control characters", id)
	}
	return nil
}

// CheckAddress reports whether an address can be that of a VM: not this machine's own, not
// one of many, none that every link has, such as a metadata service's.
func CheckAddress(ip netip.Addr) error {
	switch ip = ip.Unmap(); {
	case !ip.IsValid():
		return errors.New("an address is empty")
	case ip.IsLoopback(), ip.IsUnspecified():
		return fmt.Errorf("%s is an address of this machine, not of a VM", ip)
	case ip.IsMulticast(), ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Errorf("%s is an address of many machines, not of a VM", ip)
	case ip.IsLinkLocalUnicast():
		return fmt.Errorf("%s is an address of a link, at which nobody else reaches a VM", ip)
	}
	return nil
}

// Check returns what in an instance nobody may work with, whoever told it: its id, the
// length of its name, its addresses.
func (i *Instance) Check() error {
	errs := []error{CheckID(i.ID)}
	if i.ID == "" {
		errs = append(errs, errors.New("the instance has no id"))
	}
	if len(i.Name) > MaxID {
		errs = append(errs, fmt.Errorf("the instance's name has %d bytes, of which it may have %d", len(i.Name), MaxID))
	}
	for _, ip := range i.IPs {
		errs = append(errs, CheckAddress(ip))
	}
	return errors.Join(errs...)
}
