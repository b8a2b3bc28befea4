// SPDX-License-Identifier: Apache-2.0

//go:build gcp

package main

import _ "github.com/outrigger/outrigger/providers/gcp" // registers provider gcp
