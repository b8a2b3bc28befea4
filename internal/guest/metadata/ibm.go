// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// ibmVersion is the date that requests have to name (IBM's page "Using the
// instance metadata service").
const ibmVersion = "2022-03-01"

// ibmService is that of IBM Cloud VPC. It is served over http or https, as the
// instance was made; https has a name.
type ibmService struct{ client *http.Client }

// Name implements [Source].
func (ibmService) Name() string { return "IBM VPC metadata service" }

// Fetch implements [Source].
func (s ibmService) Fetch(ctx context.Context) ([]byte, error) {
	data, err := s.fetch(ctx, linkLocal)
	if err == nil {
		return data, nil
	}
	secure, secureErr := s.fetch(ctx, ibmHost)
	if secureErr == nil {
		return secure, nil
	}
	return nil, errors.Join(err, secureErr)
}

func (s ibmService) fetch(ctx context.Context, base string) ([]byte, error) {
	var token struct {
		AccessToken string `json:"access_token"`
	}
	err := s.json(ctx, &token, call{
		method: http.MethodPut, url: base + "/instance_identity/v1/token?version=" + ibmVersion,
		body:    `{"expires_in":300}`,
		headers: []string{"Metadata-Flavor", "ibm", "Content-Type", "application/json", "Accept", "application/json"},
	})
	if err != nil {
		return nil, err
	}
	if token.AccessToken == "" {
		return nil, errors.New("the server that answered is not the metadata service: no access_token")
	}
	var initialization struct {
		UserData string `json:"user_data"`
	}
	err = s.json(ctx, &initialization, call{
		method: http.MethodGet, url: base + "/metadata/v1/instance/initialization?version=" + ibmVersion,
		headers: []string{"Authorization", "Bearer " + token.AccessToken, "Accept", "application/json"},
	})
	if err != nil {
		return nil, err
	}
	return nothing(initialization.UserData, "user_data")
}

func (s ibmService) json(ctx context.Context, into any, c call) error {
	body, _, err := send(ctx, s.client, c)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(body), into); err != nil {
		return fmt.Errorf("%s %s answered no JSON", c.method, c.url)
	}
	return nil
}
