// SPDX-License-Identifier: Apache-2.0

// Package cloudinit gives github.com/outrigger/outrigger/provider/cloudinit the import
// path of upstream's.
package cloudinit

import "github.com/outrigger/outrigger/provider/cloudinit"

type (
	CloudConfigGenerator = cloudinit.CloudConfigGenerator
	CloudConfig          = cloudinit.CloudConfig
	WriteFile            = cloudinit.WriteFile
)
