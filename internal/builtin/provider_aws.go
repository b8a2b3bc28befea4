// SPDX-License-Identifier: Apache-2.0

//go:build aws

package builtin

import _ "github.com/outrigger/outrigger/providers/aws" // registers provider aws
