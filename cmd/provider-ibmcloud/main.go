// SPDX-License-Identifier: Apache-2.0

// Command provider-ibmcloud is provider ibmcloud as a program of its own.
package main

import (
	"github.com/outrigger/outrigger/internal/providerprogram"
	"github.com/outrigger/outrigger/providers/ibmcloud"
)

func main() { providerprogram.Main(ibmcloud.Name) }
