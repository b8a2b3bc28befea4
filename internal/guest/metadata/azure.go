// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"net/http"
)

// azureVersion is the first version of the Instance Metadata Service that has
// userData (Azure's page "Azure Instance Metadata Service").
const azureVersion = "2021-01-01"

type azureService struct{ client *http.Client }

// Name implements [Source].
func (azureService) Name() string { return "Azure metadata service" }

// Fetch implements [Source].
func (s azureService) Fetch(ctx context.Context) ([]byte, error) {
	data, _, err := send(ctx, s.client, call{
		method:  http.MethodGet,
		url:     linkLocal + "/metadata/instance/compute/userData?api-version=" + azureVersion + "&format=text",
		headers: []string{"Metadata", "true"},
	})
	if err != nil {
		return nil, err
	}
	return decode(data, "userData")
}
