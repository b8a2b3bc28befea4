// SPDX-License-Identifier: Apache-2.0

//go:build !failpoints

package main

import "github.com/outrigger/outrigger/internal/peerpods/adaptor"

var failpoint func(adaptor.Point)
