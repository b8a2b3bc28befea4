// SPDX-License-Identifier: Apache-2.0

//go:build ibmcloud

package main

import _ "github.com/outrigger/outrigger/providers/ibmcloud" // registers provider ibmcloud
