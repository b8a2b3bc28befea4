// SPDX-License-Identifier: Apache-2.0

// Command provider-gcp is provider gcp as a program of its own.
package main

import (
	"github.com/outrigger/outrigger/internal/providerprogram"
	"github.com/outrigger/outrigger/providers/gcp"
)

func main() { providerprogram.Main(gcp.Name) }
