// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"net/http"
)

// tokenService is a metadata service that hands out user-data for a token, as
// those of EC2 (IMDSv2) and ECS do.
type tokenService struct {
	client         *http.Client
	name, base     string
	ttlHeader      string
	tokenHeader    string
	allowTokenless bool
}

// tokenTTL is how long a token lives, in seconds: one request.
const tokenTTL = "60"

// awsService reads as the EC2 user guide says, "Use IMDSv2". The older way,
// without a token, only if allowed: whoever can make this VM send a request
// can use it.
func awsService(client *http.Client, allowV1 bool) Source {
	return tokenService{
		client: client, name: "EC2 metadata service", base: linkLocal,
		ttlHeader: "X-aws-ec2-metadata-token-ttl-seconds", tokenHeader: "X-aws-ec2-metadata-token",
		allowTokenless: allowV1,
	}
}

// alibabaService reads as the ECS user guide says, "security hardening mode",
// which is the only one where instances are made with HttpTokens=required and
// works for the others too.
func alibabaService(client *http.Client, allowV1 bool) Source {
	return tokenService{
		client: client, name: "ECS metadata service", base: alibabaHost,
		ttlHeader: "X-aliyun-ecs-metadata-token-ttl-seconds", tokenHeader: "X-aliyun-ecs-metadata-token",
		allowTokenless: allowV1,
	}
}

// Name implements [Source].
func (s tokenService) Name() string { return s.name }

// Fetch implements [Source].
func (s tokenService) Fetch(ctx context.Context) ([]byte, error) {
	get := call{method: http.MethodGet, url: s.base + "/latest/user-data"}
	token, _, err := send(ctx, s.client, call{
		method: http.MethodPut, url: s.base + "/latest/api/token", headers: []string{s.ttlHeader, tokenTTL},
	})
	switch {
	case err == nil:
		get.headers = []string{s.tokenHeader, token}
	case !s.allowTokenless:
		return nil, err
	}
	data, _, err := send(ctx, s.client, get)
	if err != nil {
		return nil, err
	}
	return nothing(data, "user-data")
}
