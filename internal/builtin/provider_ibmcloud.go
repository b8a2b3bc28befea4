// SPDX-License-Identifier: Apache-2.0

//go:build ibmcloud

package builtin

import _ "github.com/outrigger/outrigger/providers/ibmcloud" // registers provider ibmcloud
