// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/aliyun/credentials-go/credentials"

	"github.com/outrigger/outrigger/provider"
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
// leave a connection behind each time: the exchange is in sts.go.
type signer struct {
	// renew returns new keys; nil for keys that stay.
	renew func(context.Context) (keys, error)

	mu   sync.Mutex
	keys keys
	// busy is held by who renews; others wait for it or their context.
	busy chan struct{}
}

var _ credentials.Credential = (*signer)(nil)

func newSigner(k keys, renew func(context.Context) (keys, error)) *signer {
	return &signer{renew: renew, keys: k, busy: make(chan struct{}, 1)}
}

// newCredentials chooses between an access key and a role. Nothing is looked
// for elsewhere: not in files of the user's, not at the metadata service.
func newCredentials(c Config, sts *stsClient) (*signer, error) {
	s, err := c.static()
	switch {
	case err != nil:
		return nil, err
	case s.id != "":
		return newSigner(keys{id: s.id, secret: s.secret, token: s.token}, nil), nil
	case c.RoleARN != "" || c.OIDCProviderARN != "":
		if err := c.validateRole(); err != nil {
			return nil, err
		}
		return newSigner(keys{}, sts.assumeRole), nil
	}
	return nil, errNoCredentials()
}

// ensure makes the keys last for a call.
func (s *signer) ensure(ctx context.Context) error {
	if s.fresh() {
		return nil
	}
	select {
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if s.fresh() {
		return nil
	}
	renewed, err := s.renew(ctx)
	if err != nil {
		if s.usable() {
			logger().Warn("the keys of the role could not be renewed; they are still good for a while", "error", err)
			return nil
		}
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = renewed
	return nil
}

func (s *signer) current() keys {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys
}

func (s *signer) fresh() bool {
	return s.renew == nil || time.Until(s.current().expire) > renewBefore
}

func (s *signer) usable() bool { return time.Now().Before(s.current().expire) }

// forget drops keys that the cloud has refused as expired, and reports whether
// there may be others.
func (s *signer) forget() bool {
	if s.renew == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = keys{}
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
