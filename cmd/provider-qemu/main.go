// SPDX-License-Identifier: Apache-2.0

// Command provider-qemu is provider qemu as a program of its own.
package main

import (
	"github.com/outrigger/outrigger/internal/providerprogram"
	"github.com/outrigger/outrigger/providers/qemu"
)

func main() { providerprogram.Main(qemu.Name) }
