// SPDX-License-Identifier: Apache-2.0

//go:build docker

package main

import _ "github.com/outrigger/outrigger/providers/docker" // registers provider docker
