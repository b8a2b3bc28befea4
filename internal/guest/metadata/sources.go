// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"path/filepath"

	"github.com/outrigger/outrigger/internal/guest/userdata"
)

// Source is [userdata.Source].
type Source = userdata.Source

// ConfigDriveDir is where podvm-init mounts OpenStack's config drive.
const ConfigDriveDir = "/media/config-2"

// Options say where to look.
type Options struct {
	// SeedDir and ConfigDriveDir are where those disks are mounted, if any.
	SeedDir        string
	ConfigDriveDir string
	// AllowV1 lets AWS and Alibaba Cloud answer without a token.
	AllowV1 bool
}

// Sources returns where user-data can be on a platform, in the order to ask.
// Disks come first: looking for one takes no time, and a hypervisor attaches
// one only on purpose.
func Sources(p Platform, o Options) []Source {
	client := newClient()
	sources := []Source{
		userdata.NoCloud{Dir: o.SeedDir},
		configDrive{o.ConfigDriveDir},
	}
	switch p {
	case AWS:
		return append(sources, awsService(client, o.AllowV1))
	case Azure:
		return append(sources, azureService{client})
	case GCP:
		return append(sources, gcpService{client})
	case Alibaba:
		return append(sources, alibabaService(client, o.AllowV1))
	case OpenStack:
		return append(sources, openstackService{client})
	case VSphere:
		return append(sources, vmwareSource{backdoor{}})
	}
	// Only IBM's service answers its token request; so Nova's plain path, which
	// identifies no service, comes after it.
	return append(sources, ibmService{client}, openstackService{client})
}

// configDrive is a disk with the label config-2 ("Config drives" in Nova's
// user guide).
type configDrive struct{ dir string }

// Name implements [Source].
func (c configDrive) Name() string { return "config drive " + c.dir }

// Fetch implements [Source].
func (c configDrive) Fetch(context.Context) ([]byte, error) {
	return userdata.ReadFile(filepath.Join(c.dir, "openstack", "latest", "user_data"))
}
