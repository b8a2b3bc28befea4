// SPDX-License-Identifier: Apache-2.0

package deploy

// The providers whose overlays are held against their settings.
import (
	_ "github.com/outrigger/outrigger/providers/libvirt"
	_ "github.com/outrigger/outrigger/providers/qemu"
)
