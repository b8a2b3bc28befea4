// SPDX-License-Identifier: Apache-2.0

package vsphere

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/outrigger/outrigger/provider/kit/keylock"
)

// connection is a session with vCenter, opened when it is first needed and
// again when vCenter has ended it.
type connection struct {
	cfg Config
	url *url.URL
	// turn is held while somebody logs in.
	turn   keylock.Locks
	client *vim25.Client
	key    string // of the session
	count  int    // of log-ins
}

func newConnection(cfg Config, u *url.URL) *connection {
	return &connection{cfg: cfg, url: u}
}

// open returns a client that is logged in.
func (c *connection) open(ctx context.Context) (*vim25.Client, error) {
	unlock, err := c.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if c.client != nil {
		return c.client, nil
	}
	client, err := c.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", c.url.Host, err)
	}
	inner := client.RoundTripper
	if err := c.login(ctx, client); err != nil {
		return nil, err
	}
	client.RoundTripper = &renewing{c, inner, client}
	c.client = client
	return client, nil
}

func (c *connection) lock(ctx context.Context) (func(), error) { return c.turn.Take(ctx, "") }

func (c *connection) connect(ctx context.Context) (*vim25.Client, error) {
	sc := soap.NewClient(c.url, false)
	transport := sc.DefaultTransport()
	transport.MaxIdleConnsPerHost = 16
	transport.DialTLSContext = nil // the library's own ignores the context
	if c.cfg.CAFile != "" {
		if err := sc.SetRootCAs(c.cfg.CAFile); err != nil {
			return nil, bad("vsphere-ca-file", "%v", err)
		}
	}
	if c.cfg.Thumbprint != "" {
		transport.TLSClientConfig.InsecureSkipVerify = true // pinned in its place
		transport.TLSClientConfig.VerifyConnection = pin(c.cfg.Thumbprint)
	}
	return vim25.NewClient(ctx, sc)
}

// pin accepts one certificate and no other.
func pin(thumbprint string) func(tls.ConnectionState) error {
	want, _ := hex.DecodeString(strings.ReplaceAll(thumbprint, ":", "")) // validate has refused what does not parse
	return func(state tls.ConnectionState) error {
		cert := state.PeerCertificates[0].Raw
		sum1, sum256 := sha1.Sum(cert), sha256.Sum256(cert)
		if subtle.ConstantTimeCompare(want, sum1[:])|subtle.ConstantTimeCompare(want, sum256[:]) == 1 {
			return nil
		}
		return &pinError{hex.EncodeToString(sum256[:])}
	}
}

type pinError struct{ got string }

func (e *pinError) Error() string {
	return "-thumbprint (GOVC_THUMBPRINT) is another than that of the server's certificate, whose SHA-256 is " + e.got
}

func (c *connection) login(ctx context.Context, client *vim25.Client) error {
	m := session.NewManager(client)
	if err := m.Login(ctx, url.UserPassword(c.cfg.User, c.cfg.Password.Reveal())); err != nil {
		return fmt.Errorf("log in to %s as -user-name (GOVC_USERNAME) %s with GOVC_PASSWORD: %w", c.url.Host, c.cfg.User, err)
	}
	if s, err := m.UserSession(ctx); err == nil && s != nil {
		c.key = s.Key
	}
	c.count++
	return nil
}

// renewing logs in again when vCenter has forgotten the session, which it does
// after half an hour without a call, and repeats the call once.
type renewing struct {
	connection *connection
	soap.RoundTripper
	client *vim25.Client
}

// RoundTrip implements soap.RoundTripper.
func (r *renewing) RoundTrip(ctx context.Context, req, res soap.HasFault) error {
	before := r.connection.logins(ctx)
	err := r.RoundTripper.RoundTrip(ctx, req, res)
	if !is[*types.NotAuthenticated](err) {
		return err
	}
	if err := r.renew(ctx, before); err != nil {
		return err
	}
	reflect.ValueOf(res).Elem().SetZero() // it holds the fault
	return r.RoundTripper.RoundTrip(ctx, req, res)
}

func (c *connection) logins(ctx context.Context) int {
	unlock, err := c.lock(ctx)
	if err != nil {
		return -1
	}
	defer unlock()
	return c.count
}

// renew logs in, unless somebody else has since.
func (r *renewing) renew(ctx context.Context, before int) error {
	unlock, err := r.connection.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if r.connection.count != before {
		return nil
	}
	unwrapped := *r.client
	unwrapped.RoundTripper = r.RoundTripper
	// A session that is there after all would refuse the log-in.
	_, _ = methods.Logout(ctx, r.RoundTripper, &types.Logout{This: *unwrapped.ServiceContent.SessionManager})
	return r.connection.login(ctx, &unwrapped)
}

// closeWait is how long ending the session may take; vCenter ends it itself
// sooner or later.
const closeWait = 5 * time.Second

func (c *connection) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, closeWait)
	defer cancel()
	unlock, err := c.lock(ctx)
	if err != nil {
		return
	}
	defer unlock()
	if c.client == nil {
		return
	}
	inner := c.client.RoundTripper.(*renewing).RoundTripper
	if _, err := methods.Logout(ctx, inner, &types.Logout{This: *c.client.ServiceContent.SessionManager}); err != nil {
		logger().Debug("the session could not be ended; vCenter will", "error", err)
	}
	c.client.CloseIdleConnections()
	c.client = nil
}
