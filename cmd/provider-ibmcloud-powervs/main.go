// SPDX-License-Identifier: Apache-2.0

// Command provider-ibmcloud-powervs is provider ibmcloud-powervs as a program of its own.
package main

import (
	"github.com/outrigger/outrigger/internal/providerprogram"
	"github.com/outrigger/outrigger/providers/ibmcloudpowervs"
)

func main() { providerprogram.Main(ibmcloudpowervs.Name) }
