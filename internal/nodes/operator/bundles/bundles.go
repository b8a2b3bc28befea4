// SPDX-License-Identifier: Apache-2.0

// Package bundles has the bundles that are built in, a folder each. Nothing but
// the folders makes a platform: see package bundle.
package bundles

import (
	"embed"
	"io/fs"
	"sync"

	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
)

//go:embed all:alibabacloud all:aws all:azure all:azurestackhub all:docker all:gcp all:ibmcloud all:libvirt all:nutanix all:openstack all:powervs all:qemu all:vsphere
var folders embed.FS

// Folders returns the files of the bundles.
func Folders() fs.FS { return folders }

// Set are the bundles. They are the same for all callers, and do not change.
var Set = sync.OnceValues(func() (bundle.Set, error) { return bundle.LoadSet(folders) })
