// SPDX-License-Identifier: Apache-2.0

//go:build byom

package builtin

import _ "github.com/outrigger/outrigger/providers/byom" // registers provider byom
