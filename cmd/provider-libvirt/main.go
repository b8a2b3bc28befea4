// SPDX-License-Identifier: Apache-2.0

// Command provider-libvirt is provider libvirt as a program of its own.
package main

import (
	"github.com/outrigger/outrigger/internal/providerprogram"
	"github.com/outrigger/outrigger/providers/libvirt"
)

func main() { providerprogram.Main(libvirt.Name) }
