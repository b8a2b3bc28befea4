// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"net/http"
)

// openstackService is Nova's, at the address that EC2's has ("Metadata
// service" in Nova's user guide).
type openstackService struct{ client *http.Client }

// Name implements [Source].
func (openstackService) Name() string { return "OpenStack metadata service" }

// Fetch implements [Source].
func (s openstackService) Fetch(ctx context.Context) ([]byte, error) {
	data, _, err := send(ctx, s.client, call{method: http.MethodGet, url: linkLocal + "/openstack/latest/user_data"})
	if err != nil {
		return nil, err
	}
	return nothing(data, "user_data")
}
