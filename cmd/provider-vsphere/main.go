// SPDX-License-Identifier: Apache-2.0

// Command provider-vsphere is provider vsphere as a program of its own.
package main

import (
	"github.com/outrigger/outrigger/internal/providerprogram"
	"github.com/outrigger/outrigger/providers/vsphere"
)

func main() { providerprogram.Main(vsphere.Name) }
