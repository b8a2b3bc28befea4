// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"errors"
	"net/http"
	"strings"
)

// flavor is the header that requests must carry and real answers do (Google's
// page "Query VM metadata").
var flavor = []string{"Metadata-Flavor", "Google"}

type gcpService struct{ client *http.Client }

// Name implements [Source].
func (gcpService) Name() string { return "Compute Engine metadata service" }

// Fetch implements [Source].
func (s gcpService) Fetch(ctx context.Context) ([]byte, error) {
	data, err := s.attribute(ctx, "user-data")
	if err != nil {
		return nil, err
	}
	encoding, err := s.attribute(ctx, "user-data-encoding")
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

func (s gcpService) attribute(ctx context.Context, name string) (string, error) {
	data, headers, err := send(ctx, s.client, call{
		method: http.MethodGet, url: googleHost + "/computeMetadata/v1/instance/attributes/" + name, headers: flavor,
	})
	if err == nil && headers.Get(flavor[0]) != flavor[1] {
		err = errors.New("the server that answered is not the metadata service: no header Metadata-Flavor: Google")
	}
	return data, err
}
