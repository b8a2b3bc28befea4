// SPDX-License-Identifier: Apache-2.0

//go:build vsphere

package main

import _ "github.com/outrigger/outrigger/providers/vsphere" // registers provider vsphere
