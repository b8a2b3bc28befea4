// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/cached"
	"github.com/outrigger/outrigger/provider/kit/lifetime"
)

// Scopes: all that Compute Engine does, and to ask which permissions there are.
const (
	computeScope  = "https://www.googleapis.com/auth/compute"
	platformScope = "https://www.googleapis.com/auth/cloud-platform"
)

const (
	// fetchLimit bounds the wait for a token.
	fetchLimit = 30 * time.Second
	// renewBefore is how long before its expiry a token is renewed: Google's
	// metadata server hands out another from five minutes on.
	renewBefore = 3 * time.Minute
	// clockLimit is how far off Google takes a signed time.
	clockLimit = 5 * time.Minute
)

// keyFile is what the JSON of credentials has that is checked here.
type keyFile struct {
	Type       string `json:"type"`
	Email      string `json:"client_email"`
	PrivateKey string `json:"private_key"`
	Audience   string `json:"audience"`
	TokenURL   string `json:"token_url"`
	Source     struct {
		File string `json:"file"`
		URL  string `json:"url"`
	} `json:"credential_source"`

	ClientID     string          `json:"client_id"`
	ClientSecret string          `json:"client_secret"`
	RefreshToken string          `json:"refresh_token"`
	Impersonated string          `json:"service_account_impersonation_url"`
	By           json.RawMessage `json:"source_credentials"`
}

// credentials returns the configured JSON, or nothing where the VM's own
// identity is to be used, and the flag that it comes from.
func (c Config) credentials() (data []byte, flagName string, err error) {
	given := strings.TrimSpace(c.Credentials.Reveal())
	switch {
	case strings.HasPrefix(given, "{"):
		return []byte(given), "gcp-credentials", nil
	case given != "":
		flagName = "gcp-credentials"
	case c.CredentialsFile != "":
		given, flagName = c.CredentialsFile, "gcp-credentials-file"
	default:
		return nil, "", nil
	}
	if data, err = os.ReadFile(given); err != nil {
		if flagName == "gcp-credentials" {
			// The text may be a secret that somebody has mistyped.
			err = errors.New("it is neither JSON nor a file that can be read")
		}
		return nil, flagName, bad(flagName, "%v", err)
	}
	return data, flagName, nil
}

// checkCredentials finds out what is wrong without asking anybody.
func checkCredentials(data []byte, flagName string) (google.CredentialsType, error) {
	var key keyFile
	if err := json.Unmarshal(data, &key); err != nil {
		return "", bad(flagName, "it is not JSON of credentials") // err may show a secret
	}
	switch google.CredentialsType(key.Type) {
	case google.ServiceAccount:
		return google.ServiceAccount, key.checkServiceAccount(flagName)
	case google.ExternalAccount:
		if key.Audience == "" || key.TokenURL == "" || (key.Source.File == "") == (key.Source.URL == "") {
			return "", bad(flagName, "an external_account needs audience, token_url and one of credential_source.file and credential_source.url; programs are not run")
		}
		return google.ExternalAccount, nil
	case google.AuthorizedUser:
		if key.ClientID == "" || key.ClientSecret == "" || key.RefreshToken == "" {
			return "", bad(flagName, "an authorized_user needs client_id, client_secret and refresh_token")
		}
		return google.AuthorizedUser, nil
	case google.ImpersonatedServiceAccount:
		if key.Impersonated == "" || len(key.By) == 0 {
			return "", bad(flagName, "an impersonated_service_account needs service_account_impersonation_url and source_credentials")
		}
		_, err := checkCredentials(key.By, flagName)
		return google.ImpersonatedServiceAccount, err
	}
	return "", bad(flagName, "its type is %q; it must be service_account, external_account, authorized_user or impersonated_service_account", key.Type)
}

func (k keyFile) checkServiceAccount(flagName string) error {
	block, _ := pem.Decode([]byte(k.PrivateKey))
	if k.Email == "" || block == nil {
		return bad(flagName, "a service_account needs client_email and private_key, in PEM")
	}
	if _, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
		return nil
	}
	if _, err := x509.ParsePKCS1PrivateKey(block.Bytes); err != nil {
		return bad(flagName, "its private_key does not parse")
	}
	return nil
}

// tokenSource returns where the next token comes from. Files are read again,
// so that somebody may replace them.
func (c Config) tokenSource(ctx context.Context) (oauth2.TokenSource, error) {
	data, flagName, err := c.credentials()
	if err != nil {
		return nil, err
	}
	if data == nil {
		return google.ComputeTokenSource("", platformScope), nil
	}
	kind, err := checkCredentials(data, flagName)
	if err != nil {
		return nil, err
	}
	credentials, err := google.CredentialsFromJSONWithType(ctx, data, kind, computeScope, platformScope)
	if err != nil {
		return nil, bad(flagName, "%v", err)
	}
	return credentials.TokenSource, nil
}

// tokens has the token of the moment, fetched once for all callers.
type tokens struct {
	source    func(context.Context) (oauth2.TokenSource, error)
	transport http.RoundTripper
	life      lifetime.Lifetime
	current   cached.Values[*oauth2.Token]
}

// get returns a token that lasts for a while.
func (t *tokens) get(ctx context.Context) (string, error) {
	token, err := t.current.Get(ctx, "", func() (*oauth2.Token, time.Time, error) {
		ctx, done := t.life.Begin(ctx)
		defer done()
		token, err := lifetime.Outlive(ctx, func() (*oauth2.Token, error) { return t.fetch(ctx) })
		if err != nil || token.Expiry.IsZero() {
			return token, time.Time{}, err
		}
		return token, token.Expiry.Add(-renewBefore), nil
	})
	if err != nil {
		return "", fmt.Errorf("get a token: %w", err)
	}
	return token.AccessToken, nil
}

// forget drops a token that the cloud has refused.
func (t *tokens) forget(token string) {
	t.current.Forget("", func(current *oauth2.Token) bool { return current.AccessToken == token })
}

func (t *tokens) fetch(ctx context.Context) (*oauth2.Token, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	last := &lastReply{ctx: ctx, next: t.transport}
	source, err := t.source(context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: last}))
	if err != nil {
		return nil, last.classify(err)
	}
	token, err := source.Token()
	return token, last.classify(err)
}

// lastReply records the last reply during a fetch, for its status: the library's errors
// are only text. It bounds the fetch, which the library does not.
type lastReply struct {
	ctx  context.Context
	next http.RoundTripper
	sent bool
	last *http.Response
}

func (w *lastReply) RoundTrip(r *http.Request) (*http.Response, error) {
	reply, err := w.next.RoundTrip(r.WithContext(w.ctx))
	w.sent, w.last = true, reply
	return reply, err
}

// classify gives the error of a fetch its class. Any reply is a refusal of the
// credentials, unless its status says that the endpoint does not work.
func (w *lastReply) classify(err error) error {
	switch {
	case err == nil:
		return nil
	case provider.Class(err) != provider.ErrUnknown:
		return err
	case !w.sent:
		return fmt.Errorf("%w: %w", provider.ErrUnauthenticated, err)
	case w.last == nil, w.last.StatusCode >= 500, w.last.StatusCode == http.StatusTooManyRequests:
		return fmt.Errorf("%w: %w", provider.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w%s", provider.ErrUnauthenticated, err, clockHint(w.last))
}

// clockHint returns a hint if this machine's clock differs too much from that of the
// reply, else nothing.
func clockHint(r *http.Response) string {
	theirs, err := http.ParseTime(r.Header.Get("Date"))
	if err != nil {
		return ""
	}
	if off := time.Since(theirs).Round(time.Second); off.Abs() > clockLimit {
		return fmt.Sprintf(" (this machine's clock is off by %v, and signed times must be right: set it)", off)
	}
	return ""
}
