// SPDX-License-Identifier: Apache-2.0

// Command provider-alibabacloud is provider alibabacloud as a program of its own.
package main

import (
	"github.com/outrigger/outrigger/internal/providerprogram"
	"github.com/outrigger/outrigger/providers/alibabacloud"
)

func main() { providerprogram.Main(alibabacloud.Name) }
