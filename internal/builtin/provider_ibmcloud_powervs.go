// SPDX-License-Identifier: Apache-2.0

//go:build ibmcloud_powervs

package builtin

import _ "github.com/outrigger/outrigger/providers/ibmcloudpowervs" // registers provider ibmcloud-powervs
