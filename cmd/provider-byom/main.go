// SPDX-License-Identifier: Apache-2.0

// Command provider-byom is provider byom as a program of its own.
package main

import (
	"github.com/outrigger/outrigger/internal/providerprogram"
	"github.com/outrigger/outrigger/providers/byom"
)

func main() { providerprogram.Main(byom.Name) }
