// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/outrigger/outrigger/provider"
)

// stsClient takes a role by the token of a service account: STS 2015-04-01,
// AssumeRoleWithOIDC, which is not signed.
type stsClient struct {
	http     *http.Client
	endpoint string
	cfg      Config
}

const assumeRoleAction = "sts:AssumeRoleWithOIDC"

// maxReply bounds what is read of a reply.
const maxReply = 1 << 20

func newSTS(c Config, client *http.Client) *stsClient {
	host := c.STSEndpoint
	if host == "" {
		host = c.host("sts")
	}
	return &stsClient{http: client, endpoint: host, cfg: c}
}

type stsReply struct {
	Credentials struct {
		AccessKeyID     string `json:"AccessKeyId"`
		AccessKeySecret string
		SecurityToken   string
		Expiration      time.Time
	}
	Code, Message, RequestID string
}

func (s *stsClient) assumeRole(ctx context.Context) (keys, error) {
	token, err := s.token()
	if err != nil {
		return keys{}, err
	}
	form := url.Values{
		"RoleArn": {s.cfg.RoleARN}, "OIDCProviderArn": {s.cfg.OIDCProviderARN}, "OIDCToken": {token},
		"RoleSessionName": {s.cfg.RoleSession}, "DurationSeconds": {"3600"},
	}
	query := url.Values{
		"Action": {"AssumeRoleWithOIDC"}, "Version": {"2015-04-01"}, "Format": {"JSON"},
		"Timestamp": {time.Now().UTC().Format("2006-01-02T15:04:05Z")},
	}
	target := url.URL{Scheme: "https", Host: s.endpoint, Path: "/", RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), strings.NewReader(form.Encode()))
	if err != nil {
		return keys{}, bad("alibabacloud-sts-endpoint", "%q is not a host", s.endpoint)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Accept", "application/json")
	return s.exchange(request)
}

func (s *stsClient) exchange(request *http.Request) (keys, error) {
	response, err := s.http.Do(request)
	if err != nil {
		return keys{}, classify(assumeRoleAction, err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxReply))
	if err != nil {
		return keys{}, classify(assumeRoleAction, err)
	}
	var reply stsReply
	err = json.Unmarshal(data, &reply)
	switch {
	case response.StatusCode != http.StatusOK:
		return keys{}, s.refused(response.StatusCode, reply)
	case err != nil || reply.Credentials.AccessKeyID == "":
		return keys{}, fmt.Errorf("%s: %w: the reply holds no keys", assumeRoleAction, provider.ErrUnavailable)
	}
	got := reply.Credentials
	return keys{id: got.AccessKeyID, secret: got.AccessKeySecret, token: got.SecurityToken, expire: got.Expiration}, nil
}

// refused returns what of the settings the cloud does not like.
func (s *stsClient) refused(status int, reply stsReply) error {
	err := &apiError{Action: assumeRoleAction, Code: reply.Code, Status: status, Message: reply.Message, RequestID: reply.RequestID}
	err.hint, err.class = ruleOf(err.Code, status)
	if status >= 400 && status < 500 && err.class != provider.ErrUnavailable && err.hint == "" {
		err.class = provider.ErrUnauthenticated
		err.hint = fmt.Sprintf("role %s (ALIBABA_CLOUD_ROLE_ARN) must trust %s (ALIBABA_CLOUD_OIDC_PROVIDER_ARN) with the audience, issuer and service account of the token in %s (ALIBABA_CLOUD_OIDC_TOKEN_FILE)",
			s.cfg.RoleARN, s.cfg.OIDCProviderARN, s.cfg.OIDCTokenFile)
	}
	return err
}

// token reads the file each time: kubelet replaces it.
func (s *stsClient) token() (string, error) {
	data, err := os.ReadFile(s.cfg.OIDCTokenFile)
	if err != nil {
		return "", fmt.Errorf("%w: -alibabacloud-oidc-token-file (ALIBABA_CLOUD_OIDC_TOKEN_FILE): %w; is the token mounted?", provider.ErrUnauthenticated, err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" {
		return "", fmt.Errorf("%w: -alibabacloud-oidc-token-file (ALIBABA_CLOUD_OIDC_TOKEN_FILE): %s is empty", provider.ErrUnauthenticated, s.cfg.OIDCTokenFile)
	}
	return token, nil
}
