// SPDX-License-Identifier: Apache-2.0

// Command provider-aws is provider aws as a program of its own.
package main

import (
	"github.com/outrigger/outrigger/internal/providerprogram"
	"github.com/outrigger/outrigger/providers/aws"
)

func main() { providerprogram.Main(aws.Name) }
