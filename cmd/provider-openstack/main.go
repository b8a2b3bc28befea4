// SPDX-License-Identifier: Apache-2.0

// Command provider-openstack is provider openstack as a program of its own.
package main

import (
	"github.com/outrigger/outrigger/internal/providerprogram"
	"github.com/outrigger/outrigger/providers/openstack"
)

func main() { providerprogram.Main(openstack.Name) }
