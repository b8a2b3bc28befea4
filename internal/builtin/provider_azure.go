// SPDX-License-Identifier: Apache-2.0

//go:build azure

package builtin

import _ "github.com/outrigger/outrigger/providers/azure" // registers provider azure
