// SPDX-License-Identifier: Apache-2.0

// Package podvm defines the pod VM image: the kernel modules and the fixed
// files in it. The builder is internal/guest/image.
package podvm

import "embed"

// Modules is modules.list: one "STAGE NAME" a line, # starts a comment.
//
//go:embed modules.list
var Modules string

// Etc holds the files that the image has under /etc.
//
//go:embed os-release passwd group hosts
var Etc embed.FS
