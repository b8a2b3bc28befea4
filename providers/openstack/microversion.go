// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/utils"

	"github.com/outrigger/outrigger/provider"
)

// Microversions of the Compute API, the minor number of 2.x ("REST API Version
// History"). Without one Nova speaks 2.1.
const (
	flavorEmbedded = 47 // a server shows the name of its flavor
	volumeTypes    = 67 // a root volume can have a type
	// wanted is the newest that this provider knows.
	wanted = volumeTypes
)

// negotiate asks Nova which microversions it speaks, and takes the newest that
// both know. Whoever needs one that Nova lacks is refused where it is needed.
func (c *clients) negotiate(ctx context.Context) error {
	root, err := utils.BaseVersionedEndpoint(c.compute.Endpoint)
	if err != nil {
		return fmt.Errorf("%w: compute endpoint %s: %w", provider.ErrInvalidArgument, c.compute.Endpoint, err)
	}
	var reply struct {
		Version struct {
			Newest string `json:"version"`
			Oldest string `json:"min_version"`
		} `json:"version"`
	}
	_, err = c.compute.ProviderClient.Request(ctx, "GET", root, &gophercloud.RequestOpts{JSONResponse: &reply, OkCodes: []int{200}})
	if err != nil {
		return fmt.Errorf("ask for the versions of the compute service: %w", err)
	}
	c.minor = min(minorOf(reply.Version.Newest), wanted)
	if oldest := minorOf(reply.Version.Oldest); oldest > c.minor && oldest > 0 {
		return fmt.Errorf("%w: the compute service at %s speaks microversions from 2.%d on, this provider up to 2.%d", provider.ErrInvalidArgument, root, oldest, wanted)
	}
	if c.minor > 0 {
		c.compute.Microversion = "2." + strconv.Itoa(c.minor)
	}
	return nil
}

// minorOf returns 0 for what is not a microversion of 2.
func minorOf(version string) int {
	rest, ok := strings.CutPrefix(version, "2.")
	minor, err := strconv.Atoi(rest)
	if !ok || err != nil {
		return 0
	}
	return minor
}

// checkVolumeType returns an error for a volume type if Nova is too old for it.
func (c *clients) checkVolumeType(name string) error {
	if name == "" || c.minor >= volumeTypes {
		return nil
	}
	return fmt.Errorf("%w: -root-volume-type (OPENSTACK_ROOT_VOLUME_TYPE) %s: the compute service speaks microversions up to 2.%d, and a type of the root volume needs 2.%d; leave it out, and Cinder chooses its default type",
		provider.ErrInvalidArgument, name, c.minor, volumeTypes)
}
