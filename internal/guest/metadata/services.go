// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// service is the metadata service of a cloud.
type service struct {
	name  string
	fetch func(context.Context, *http.Client) ([]byte, error)
}

// Name implements [Source].
func (s service) Name() string { return s.name }

// Fetch implements [Source].
func (s service) Fetch(ctx context.Context) ([]byte, error) { return s.fetch(ctx, newClient()) }

// tokenTTL is how long a token lives, in seconds: one request.
const tokenTTL = "60"

// withToken reads from a service that hands out user-data for a token, as those of EC2
// (IMDSv2) and ECS do, each with headers of its own.
func withToken(base, header string, allowTokenless bool) func(context.Context, *http.Client) ([]byte, error) {
	return func(ctx context.Context, client *http.Client) ([]byte, error) {
		get := call{url: base + "/latest/user-data"}
		token, _, err := send(ctx, client, call{
			method: http.MethodPut, url: base + "/latest/api/token", headers: []string{header + "-ttl-seconds", tokenTTL},
		})
		switch {
		case err == nil:
			get.headers = []string{header, token}
		case !allowTokenless:
			return nil, err
		}
		data, _, err := send(ctx, client, get)
		if err != nil {
			return nil, err
		}
		return nothing(data, "user-data")
	}
}

// azureVersion is the first version of the Instance Metadata Service that has
// userData (Azure's page "Azure Instance Metadata Service").
const azureVersion = "2021-01-01"

func fetchAzure(ctx context.Context, client *http.Client) ([]byte, error) {
	data, _, err := send(ctx, client, call{
		url:     linkLocal + "/metadata/instance/compute/userData?api-version=" + azureVersion + "&format=text",
		headers: []string{"Metadata", "true"},
	})
	if err != nil {
		return nil, err
	}
	return decode(data, "userData")
}

// flavor is the header that requests must carry and real answers do (Google's
// page "Query VM metadata").
var flavor = []string{"Metadata-Flavor", "Google"}

func fetchGCP(ctx context.Context, client *http.Client) ([]byte, error) {
	attribute := func(name string) (string, error) {
		data, headers, err := send(ctx, client, call{url: googleHost + "/computeMetadata/v1/instance/attributes/" + name, headers: flavor})
		if err == nil && headers.Get(flavor[0]) != flavor[1] {
			err = errors.New("the server that answered is not the metadata service: no header Metadata-Flavor: Google")
		}
		return data, err
	}
	data, err := attribute("user-data")
	if err != nil {
		return nil, err
	}
	encoding, err := attribute("user-data-encoding")
	switch {
	case isStatus(err, http.StatusNotFound):
		return nothing(data, "attribute user-data")
	case err != nil:
		return nil, err
	case strings.TrimSpace(encoding) == "base64":
		return decode(data, "attribute user-data")
	}
	return nil, errors.New("attribute user-data-encoding is not base64, which is all that is known")
}

// fetchOpenStack reads from Nova's service, at the address that EC2's has ("Metadata
// service" in Nova's user guide).
func fetchOpenStack(ctx context.Context, client *http.Client) ([]byte, error) {
	data, _, err := send(ctx, client, call{url: linkLocal + "/openstack/latest/user_data"})
	if err != nil {
		return nil, err
	}
	return nothing(data, "user_data")
}

// ibmVersion is the date that requests have to name (IBM's page "Using the
// instance metadata service").
const ibmVersion = "2022-03-01"

// fetchIBM reads from the service of IBM Cloud VPC. It is served over http or https, as
// the instance was made; https has a name.
func fetchIBM(ctx context.Context, client *http.Client) ([]byte, error) {
	var errs []error
	for _, base := range []string{linkLocal, ibmHost} {
		data, err := fetchIBMFrom(ctx, client, base)
		if err == nil {
			return data, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func fetchIBMFrom(ctx context.Context, client *http.Client, base string) ([]byte, error) {
	ask := func(into any, c call) error {
		body, _, err := send(ctx, client, c)
		if err == nil && json.Unmarshal([]byte(body), into) != nil {
			err = fmt.Errorf("%s %s answered no JSON", c.method, c.url)
		}
		return err
	}
	var token struct {
		AccessToken string `json:"access_token"`
	}
	err := ask(&token, call{
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
	err = ask(&initialization, call{
		method: http.MethodGet, url: base + "/metadata/v1/instance/initialization?version=" + ibmVersion,
		headers: []string{"Authorization", "Bearer " + token.AccessToken, "Accept", "application/json"},
	})
	if err != nil {
		return nil, err
	}
	return nothing(initialization.UserData, "user_data")
}
