// SPDX-License-Identifier: Apache-2.0

//go:build gcp

package builtin

import _ "github.com/outrigger/outrigger/providers/gcp" // registers provider gcp
