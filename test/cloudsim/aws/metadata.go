// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"io"
	"net/http"
	"strings"
)

// Metadata is the metadata service of an instance that the tests run on,
// version 2: a token comes first.
type Metadata struct {
	// Values by path below /latest/meta-data/.
	Values map[string]string
	// Dynamic by path below /latest/dynamic/.
	Dynamic map[string]string
}

// StandardMetadata is that of a machine in the standard stock.
func StandardMetadata() Metadata {
	const mac = "0a:ff:ee:00:00:01"
	return Metadata{
		Values: map[string]string{
			"mac": mac, "placement/region": Region,
			"network/interfaces/macs/" + mac + "/subnet-id":          SubnetA,
			"network/interfaces/macs/" + mac + "/security-group-ids": Group + "\n" + Group2,
			"public-keys/": "0=" + Key,
		},
		Dynamic: map[string]string{"instance-identity/document": `{"region":"` + Region + `","instanceId":"i-0123456789abcdef0"}`},
	}
}

const metadataToken = "token-of-the-metadata-service"

// ServeHTTP implements http.Handler.
func (m Metadata) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/latest/")
	switch {
	case path == "api/token" && r.Method == http.MethodPut && r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds") != "":
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds"))
		io.WriteString(w, metadataToken)
		return
	case r.Method != http.MethodGet || r.Header.Get("X-aws-ec2-metadata-token") != metadataToken:
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
		return
	}
	value, ok := m.Values[strings.TrimPrefix(path, "meta-data/")]
	if dynamic, is := strings.CutPrefix(path, "dynamic/"); is {
		value, ok = m.Dynamic[dynamic]
	}
	if !ok {
		http.NotFound(w, r)
		return
	}
	io.WriteString(w, value)
}
