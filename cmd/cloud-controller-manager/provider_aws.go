// SPDX-License-Identifier: Apache-2.0

//go:build aws

package main

import _ "github.com/outrigger/outrigger/providers/aws" // registers provider aws
