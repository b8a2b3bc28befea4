// SPDX-License-Identifier: Apache-2.0

// Command provider-azure is provider azure as a program of its own.
package main

import (
	"github.com/outrigger/outrigger/internal/providerprogram"
	"github.com/outrigger/outrigger/providers/azure"
)

func main() { providerprogram.Main(azure.Name) }
