// SPDX-License-Identifier: Apache-2.0

//go:build byom

package main

import _ "github.com/outrigger/outrigger/providers/byom" // registers provider byom
