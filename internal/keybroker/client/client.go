// SPDX-License-Identifier: Apache-2.0

// Package client gets resources of a key broker, to which it proves what this VM is: request, challenge, attestation,
// response. It is linked into guests, and is small for that.
package client

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/keybroker"
)

// Config says which broker, for which VM.
type Config struct {
	// URL of the broker, without /kbs/v0.
	URL string
	// Certificate is whom to trust for it, PEM; empty trusts whom everybody trusts.
	Certificate string
	Attester    attest.Attester
	// InitData is the VM's, as TOML; the broker compares its digest with the evidence.
	InitData string
	// DialContext replaces the dialler of net/http.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
	Log         *slog.Logger

	// pause replaces firstPause in tests.
	pause time.Duration
}

// Client has a session with a broker. Its methods may be called at the same time.
type Client struct {
	cfg  Config
	base string
	http *http.Client

	// turn is sent to by who looks at current, or attests.
	turn    chan struct{}
	current *session
}

// session is what the broker knows of this VM.
type session struct {
	key    *ecdsa.PrivateKey
	cookie string
	token  string
	until  time.Time // of the token; zero if it does not say
}

const (
	// requestTime bounds one request: a broker that verifies may ask others for it.
	requestTime = time.Minute
	// tryTime bounds all tries of a broker that is not there, or has trouble of its own. Pauses double up to lastPause.
	tryTime    = 2 * time.Minute
	firstPause = 250 * time.Millisecond
	lastPause  = 10 * time.Second
	// early is how long before its end a token is not used any more.
	early = 30 * time.Second
)

// New checks a configuration. The broker is not asked yet.
func New(cfg Config) (*Client, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, fmt.Errorf("%.256q: want https://HOST or https://HOST:PORT", cfg.URL)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil // what the VM's environment says is not measured
	if cfg.DialContext != nil {
		transport.DialContext = cfg.DialContext
	}
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if strings.TrimSpace(cfg.Certificate) != "" {
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if u.Scheme != "https" || !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM([]byte(cfg.Certificate)) {
			return nil, fmt.Errorf("%.256q: its certificate is not PEM, or the URL is not https", cfg.URL)
		}
	}
	if u.Scheme == "http" {
		cfg.Log.Warn("the key broker is not authenticated: whoever is in its place can give the pod keys of their own. Use https", "url", cfg.URL)
	}
	return &Client{cfg: cfg, turn: make(chan struct{}, 1), base: strings.TrimSuffix(cfg.URL, "/") + keybroker.Prefix, http: &http.Client{
		Transport: transport, Timeout: requestTime,
		// A redirect would take evidence elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Resource returns what is at a URI such as kbs:///default/key/1. Errors are [keybroker.ErrNotFound], [keybroker.ErrRefused],
// or say why the broker was not reached.
func (c *Client) Resource(ctx context.Context, uri string) ([]byte, error) {
	path, err := keybroker.ResourcePath(uri)
	if err != nil {
		return nil, err
	}
	s, fresh, err := c.session(ctx, nil)
	if err != nil {
		return nil, err
	}
	body, err := c.call(ctx, s, path)
	if expired := (*unauthorized)(nil); errors.As(err, &expired) && !fresh {
		if s, _, err = c.session(ctx, s); err == nil {
			body, err = c.call(ctx, s, path)
		}
	}
	if err != nil {
		return nil, err
	}
	return decrypt(body, s.key)
}

// decrypt opens an answer.
func decrypt(body []byte, key *ecdsa.PrivateKey) ([]byte, error) {
	sealed, err := jose.ParseEncryptedJSON(string(body), []jose.KeyAlgorithm{jose.ECDH_ES_A256KW}, []jose.ContentEncryption{jose.A256GCM})
	if err != nil {
		return nil, errors.New("the broker's answer is not a JWE of " + keybroker.KeyAlgorithm + " and " + keybroker.ContentAlgorithm)
	}
	plain, err := sealed.Decrypt(key)
	if err != nil {
		return nil, errors.New("the broker's answer is for another key than this VM's, or was changed")
	}
	return plain, nil
}

// Token returns an attestation token and the key that it vouches for, PEM of PKCS #8.
func (c *Client) Token(ctx context.Context) (token string, key []byte, err error) {
	s, _, err := c.session(ctx, nil)
	if err != nil {
		return "", nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(s.key)
	if err != nil {
		return "", nil, err
	}
	return s.token, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// session returns the session, or a fresh one if there is none but one that the broker has forgotten.
func (c *Client) session(ctx context.Context, forgotten *session) (s *session, fresh bool, err error) {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	defer func() { <-c.turn }()
	if s := c.current; s != nil && s != forgotten && (s.until.IsZero() || time.Until(s.until) > early) {
		return s, false, nil
	}
	s = &session{}
	if s.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, false, err
	}
	if err := c.retry(ctx, func(ctx context.Context) error { return c.attest(ctx, s) }); err != nil {
		return nil, false, fmt.Errorf("attest to the key broker: %w", err)
	}
	s.until = expiry(s.token)
	c.current = s
	return s, true, nil
}

// expiry returns the time until which a JWT says that it is valid, or zero.
func expiry(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	var claims struct {
		Expires int64 `json:"exp"`
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &claims) != nil || claims.Expires == 0 {
		return time.Time{}
	}
	return time.Unix(claims.Expires, 0)
}

// params are those of a request and of a challenge that this package knows.
type params struct {
	Hashes []string `json:"supported-hash-algorithms,omitempty"`
	Hash   string   `json:"selected-hash-algorithm,omitempty"`
	// TPM and Credential are ours: a Trustee ignores the one and does not send the other.
	TPM        *attest.TPMIdentity   `json:"tpm,omitempty"`
	Credential *attest.TPMCredential `json:"tpm-credential,omitempty"`
}

// attest shows the broker evidence that is bound to the session's key. A nonce is for one answer: where the broker's reply to that is
// lost, all of it is done again.
func (c *Client) attest(ctx context.Context, s *session) error {
	s.cookie = ""
	hash, nonce, err := c.challenge(ctx, s)
	if err != nil {
		return err
	}
	a := &keybroker.Attestation{Evidence: keybroker.Evidence{Additional: "{}"}, RuntimeData: keybroker.RuntimeData{Nonce: nonce, PubKey: keybroker.PublicJWK(&s.key.PublicKey)}}
	if c.cfg.InitData != "" {
		a.InitData = &keybroker.InitData{Format: "toml", Body: c.cfg.InitData}
	}
	data, err := a.ReportData(hash)
	if err != nil {
		return fmt.Errorf("the broker's challenge: %w", err)
	}
	if a.Evidence.Primary, err = c.cfg.Attester.Evidence(ctx, data); err != nil {
		return fmt.Errorf("evidence: %w", err)
	}
	var answer keybroker.Token
	if err := c.post(ctx, s, "attest", a, &answer); err != nil {
		return err
	}
	if answer.Token == "" {
		return errors.New("the broker's answer to evidence has no token")
	}
	s.token = answer.Token
	return nil
}

// challenge begins a session.
func (c *Client) challenge(ctx context.Context, s *session) (hash, nonce string, err error) {
	ask := params{Hashes: []string{"sha256", "sha384", "sha512"}}
	identity, is := c.cfg.Attester.(attest.Identity)
	if is {
		if ask.TPM, err = identity.Identity(ctx); err != nil {
			return "", "", fmt.Errorf("the TPM's identity: %w", err)
		}
	}
	extra, err := json.Marshal(ask)
	if err != nil {
		return "", "", err
	}
	var challenge keybroker.Challenge
	if err := c.post(ctx, s, "auth", keybroker.Request{Version: keybroker.Version, TEE: string(c.cfg.Attester.TEE()), ExtraParams: extra}, &challenge); err != nil {
		return "", "", err
	}
	var told params // a Trustee sends an empty string if there are none
	if text := bytes.TrimSpace(challenge.ExtraParams); bytes.HasPrefix(text, []byte("{")) {
		if err := json.Unmarshal(text, &told); err != nil {
			return "", "", errors.New("the extra-params of the broker's challenge are not what is expected there")
		}
	}
	if is && told.Credential != nil {
		if err := identity.Activate(ctx, *told.Credential); err != nil {
			return "", "", fmt.Errorf("the broker's credential for the TPM: %w", err)
		}
	}
	if told.Hash == "" {
		told.Hash = keybroker.DefaultHash
	}
	return strings.ToLower(told.Hash), challenge.Nonce, nil
}

func (c *Client) post(ctx context.Context, s *session, path string, message, answer any) error {
	body, err := json.Marshal(message)
	if err != nil {
		return err
	}
	text, err := c.once(ctx, s, http.MethodPost, path, body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("the broker's answer to %s is not the JSON that is expected there", path)
	}
	return nil
}

// unauthorized is an answer of 401 that may be about the session.
type unauthorized struct{ error }

// again is an error after which the same request may succeed.
type again struct{ error }

// call makes a request, several times if the broker is not there.
func (c *Client) call(ctx context.Context, s *session, path string) (text []byte, err error) {
	err = c.retry(ctx, func(ctx context.Context) error {
		text, err = c.once(ctx, s, http.MethodGet, path, nil)
		return err
	})
	return text, err
}

// retry calls f until it succeeds or has an error that trying again does not help.
func (c *Client) retry(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, tryTime, fmt.Errorf("not reached within %s", tryTime))
	defer cancel()
	pause := firstPause
	if c.cfg.pause > 0 {
		pause = c.cfg.pause
	}
	for ; ; pause = min(2*pause, lastPause) {
		err := f(ctx)
		if retry := (again{}); !errors.As(err, &retry) {
			return err
		}
		c.cfg.Log.Warn("key broker", "err", err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w (%v)", err, context.Cause(ctx))
		}
	}
}

func (c *Client) once(ctx context.Context, s *session, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if s.cookie != "" {
		req.AddCookie(&http.Cookie{Name: keybroker.Cookie, Value: s.cookie})
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if certificate := (*tls.CertificateVerificationError)(nil); errors.As(err, &certificate) {
			return nil, fmt.Errorf("the key broker has another certificate than the one that is expected: %w", err)
		}
		return nil, again{err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, keybroker.MaxMessage+1))
	switch {
	case err != nil:
		return nil, again{fmt.Errorf("the key broker's answer: %w", err)}
	case len(text) > keybroker.MaxMessage:
		return nil, fmt.Errorf("the key broker's answer has more than %d bytes", keybroker.MaxMessage)
	case resp.StatusCode == http.StatusOK:
		for _, cookie := range resp.Cookies() {
			if cookie.Name == keybroker.Cookie && method == http.MethodPost { // a session that others use, too, stays as it is
				s.cookie = cookie.Value
			}
		}
		return text, nil
	}
	return nil, s.problem(resp, text)
}

// problem returns what an answer other than 200 says, without the session's name.
func (s *session) problem(resp *http.Response, text []byte) error {
	var p keybroker.Problem
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if json.Unmarshal(text, &p) != nil {
		p.Detail = fmt.Sprintf("%d bytes of %.64q", len(text), kind)
	}
	name := strings.TrimPrefix(p.Type, keybroker.ProblemType)
	if s.cookie != "" {
		name, p.Detail = strings.ReplaceAll(name, s.cookie, "…"), strings.ReplaceAll(p.Detail, s.cookie, "…")
	}
	says := fmt.Sprintf("%d: %.64q: %.512q", resp.StatusCode, name, p.Detail)
	switch code := resp.StatusCode; {
	case code == http.StatusNotFound, code == http.StatusUnauthorized && name == "PluginInternalError": // Trustee's for a resource that it does not have
		return fmt.Errorf("%w: %s", keybroker.ErrNotFound, says)
	case code == http.StatusForbidden, name == "PolicyDeny":
		return fmt.Errorf("%w: %s", keybroker.ErrRefused, says)
	case code == http.StatusUnauthorized:
		return &unauthorized{fmt.Errorf("%w: %s", keybroker.ErrRefused, says)}
	case code == http.StatusTooManyRequests, code >= http.StatusInternalServerError:
		return again{fmt.Errorf("the key broker answers %s", says)}
	}
	return fmt.Errorf("the key broker answers %s", says)
}

func (u *unauthorized) Unwrap() error { return u.error }
func (a again) Unwrap() error         { return a.error }
