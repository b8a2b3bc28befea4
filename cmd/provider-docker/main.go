// SPDX-License-Identifier: Apache-2.0

// Command provider-docker is provider docker as a program of its own.
package main

import (
	"github.com/outrigger/outrigger/internal/providerprogram"
	"github.com/outrigger/outrigger/providers/docker"
)

func main() { providerprogram.Main(docker.Name) }
