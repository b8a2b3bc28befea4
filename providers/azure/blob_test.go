// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"errors"
	"net/http"
	"strings"
)

// blobsFail is a network that does not reach the storage of consoles.
type blobsFail struct{ http.RoundTripper }

func (b blobsFail) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasPrefix(r.URL.Path, "/console/") {
		return nil, errors.New("connection reset by peer")
	}
	return b.RoundTripper.RoundTrip(r)
}
