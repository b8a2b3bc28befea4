// SPDX-License-Identifier: Apache-2.0

package kubectl

// The program has these too.
import (
	_ "github.com/outrigger/outrigger/providers/libvirt"
	_ "github.com/outrigger/outrigger/providers/qemu"
)
