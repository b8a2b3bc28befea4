// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/aliyun/credentials-go/credentials"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/cached"
)

// keys are what requests are signed with.
type keys struct {
	id, secret, token string
	// expire is zero for keys that do not.
	expire time.Time
}

// renewBefore is how long before their end keys are renewed.
const renewBefore = 5 * time.Minute

// signer hands keys to the SDK, whose interface it implements. The SDK's own
// providers of keys take no context, read the token file with its line end, and
// leave a connection behind each time: the exchange is stsClient's.
type signer struct {
	// renew returns new keys; nil for keys that stay.
	renew func(context.Context) (keys, error)

	known cached.Values[keys]
	mu    sync.Mutex
	keys  keys
}

var _ credentials.Credential = (*signer)(nil)

// newCredentials chooses between an access key and a role. Nothing is looked
// for elsewhere: not in files of the user's, not at the metadata service.
func newCredentials(c Config, sts *stsClient) (*signer, error) {
	s, err := c.static()
	switch {
	case err != nil:
		return nil, err
	case s.id != "":
		return &signer{keys: keys{id: s.id, secret: s.secret, token: s.token}}, nil
	case c.RoleARN != "" || c.OIDCProviderARN != "":
		if err := c.validateRole(); err != nil {
			return nil, err
		}
		return &signer{renew: sts.assumeRole}, nil
	}
	return nil, errNoCredentials()
}

// ensure makes the keys last for a call.
func (s *signer) ensure(ctx context.Context) error {
	if s.renew == nil {
		return nil
	}
	k, err := s.known.Get(ctx, "", func() (keys, time.Time, error) {
		renewed, err := s.renew(ctx)
		if old := s.current(); err != nil && time.Now().Before(old.expire) {
			logger().Warn("the keys of the role could not be renewed; they are still good for a while", "error", err)
			return old, time.Now(), nil // for who waits now
		}
		return renewed, renewed.expire.Add(-renewBefore), err
	})
	if err == nil {
		s.set(k)
	}
	return err
}

func (s *signer) current() keys {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys
}

func (s *signer) set(k keys) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = k
}

// forget drops keys that the cloud has refused as expired, and reports whether
// there may be others.
func (s *signer) forget() bool {
	if s.renew == nil {
		return false
	}
	s.mu.Lock()
	s.keys.expire = time.Time{} // not good for a while if they cannot be renewed
	s.mu.Unlock()
	s.known.Forget("", func(keys) bool { return true })
	return true
}

// GetCredential implements credentials.Credential.
func (s *signer) GetCredential() (*credentials.CredentialModel, error) {
	k := s.current()
	if k.id == "" {
		return nil, fmt.Errorf("%w: no keys", provider.ErrUnauthenticated)
	}
	return &credentials.CredentialModel{AccessKeyId: new(k.id), AccessKeySecret: new(k.secret), SecurityToken: new(k.token), Type: new(k.kind())}, nil
}

func (k keys) kind() string {
	if k.token != "" {
		return "sts"
	}
	return "access_key"
}

// GetAccessKeyId implements credentials.Credential.
func (s *signer) GetAccessKeyId() (*string, error) { return new(s.current().id), nil }

// GetAccessKeySecret implements credentials.Credential.
func (s *signer) GetAccessKeySecret() (*string, error) { return new(s.current().secret), nil }

// GetSecurityToken implements credentials.Credential.
func (s *signer) GetSecurityToken() (*string, error) { return new(s.current().token), nil }

// GetBearerToken implements credentials.Credential.
func (s *signer) GetBearerToken() *string { return new("") }

// GetType implements credentials.Credential.
func (s *signer) GetType() *string { return new(s.current().kind()) }

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
	return &stsClient{http: client, endpoint: cmp.Or(c.STSEndpoint, c.host("sts")), cfg: c}
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
	hint, class := ruleOf(reply.Code, status)
	if status >= 400 && status < 500 && class != provider.ErrUnavailable && hint == "" {
		class = provider.ErrUnauthenticated
		hint = fmt.Sprintf("role %s (ALIBABA_CLOUD_ROLE_ARN) must trust %s (ALIBABA_CLOUD_OIDC_PROVIDER_ARN) with the audience, issuer and service account of the token in %s (ALIBABA_CLOUD_OIDC_TOKEN_FILE)",
			s.cfg.RoleARN, s.cfg.OIDCProviderARN, s.cfg.OIDCTokenFile)
	}
	return refusal(assumeRoleAction, status, reply.Code, reply.Message, reply.RequestID, hint, class)
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
