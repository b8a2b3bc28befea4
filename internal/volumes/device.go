// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"fmt"
	"os"
	"strings"

	"github.com/outrigger/outrigger/internal/blockdevice"
	"github.com/outrigger/outrigger/provider"
)

// device returns the path of the disk with a serial number.
func (n *node) device(serial string) (string, error) {
	if serial == "" {
		return "", invalid("publish_context has no %s", keySerial)
	}
	found := blockdevice.Find(n.Sys, n.Dev, serial)
	if len(found) == 0 {
		if err := blockdevice.Discover(n.Sys); err != nil {
			return "", fmt.Errorf("look for the disk with the serial number %s: %w", serial, err)
		}
		found = blockdevice.Find(n.Sys, n.Dev, serial)
	}
	switch {
	case len(found) > 1:
		return "", fmt.Errorf("%w: disks %s all have the serial number %s", errPrecondition, strings.Join(found, ", "), serial)
	case len(found) == 0:
		return "", fmt.Errorf("%w: no disk of this node has the serial number %s", provider.ErrUnavailable, serial)
	}
	if _, err := os.Stat(found[0]); err != nil {
		return "", fmt.Errorf("%w: the disk with the serial number %s: %v", provider.ErrUnavailable, serial, err)
	}
	return found[0], nil
}
