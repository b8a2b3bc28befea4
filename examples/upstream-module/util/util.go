// SPDX-License-Identifier: Apache-2.0

// Package util gives github.com/outrigger/outrigger/provider/compat/util the import path
// of upstream's.
package util

import "github.com/outrigger/outrigger/provider/compat/util"

var (
	GenerateInstanceName = util.GenerateInstanceName
	Contains             = util.Contains
	RedactStruct         = util.RedactStruct
)
