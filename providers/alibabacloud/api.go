// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	openapi "github.com/alibabacloud-go/darabonba-openapi/v2/models"
	ecs "github.com/alibabacloud-go/ecs-20140526/v7/client"
	"github.com/alibabacloud-go/tea/dara"
	vpc "github.com/alibabacloud-go/vpc-20160428/v6/client"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
	"github.com/outrigger/outrigger/provider/kit/poll"
	"github.com/outrigger/outrigger/provider/kit/rest"
)

// dialer opens connections; tests have one that stays on loopback.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// api is the cloud.
type api struct {
	cfg    Config
	signer *signer
	http   *http.Client
	pace   pace
}

// ecs and vpc return a client for one caller: the SDK's clients write to
// themselves in each call (GetRpcHeaders of darabonba-openapi v2.1.13), so that
// no two goroutines can share one. They are in no structure of ours either: the
// linker would take them for reachable by reflection and keep their thousands
// of methods, 45 MB of them.
func (a *api) ecs() *ecs.Client {
	client := new(ecs.Client)
	must(client.Init(a.settings(a.cfg.ECSEndpoint, "ecs")))
	return client
}

func (a *api) vpc() *vpc.Client {
	client := new(vpc.Client)
	must(client.Init(a.settings(a.cfg.VPCEndpoint, "vpc")))
	return client
}

// must panics on errors that newAPI has ruled out.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// host returns the host of an API in the region.
func (c Config) host(product string) string {
	if c.PrivateEndpoints {
		product += "-vpc"
	}
	return product + "." + c.Region + ".aliyuncs.com"
}

func (a *api) settings(endpoint, product string) *openapi.Config {
	if endpoint == "" && a.cfg.PrivateEndpoints { // else the SDK knows it
		endpoint = a.cfg.host(product)
	}
	s := &openapi.Config{Credential: a.signer, RegionId: new(a.cfg.Region), Protocol: new("HTTPS"), HttpClient: caller{a.http}, UserAgent: new("outrigger")}
	if endpoint != "" {
		s.Endpoint = new(endpoint)
	}
	return s
}

func newAPI(c Config, at pace, dial dialer) (*api, error) {
	client, err := newHTTP(c, at, dial)
	if err != nil {
		return nil, err
	}
	signer, err := newCredentials(c, newSTS(c, client))
	if err != nil {
		return nil, err
	}
	a := &api{cfg: c, signer: signer, http: client, pace: at}
	if err := errors.Join(new(ecs.Client).Init(a.settings(c.ECSEndpoint, "ecs")), new(vpc.Client).Init(a.settings(c.VPCEndpoint, "vpc"))); err != nil {
		return nil, fmt.Errorf("%w: API client: %w", provider.ErrInvalidArgument, err)
	}
	return a, nil
}

func newHTTP(c Config, at pace, dial dialer) (*http.Client, error) {
	transport, err := rest.Transport("")
	if err != nil {
		return nil, err
	}
	transport.DialContext = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	if dial != nil {
		transport.DialContext = dial
	}
	transport.MaxIdleConnsPerHost, transport.IdleConnTimeout = 32, time.Minute
	if c.CAFile != "" {
		pool, err := rest.RootsOf(c.CAFile)
		if err != nil {
			return nil, bad("alibabacloud-ca-file", "%v", err)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{Transport: rest.Direct{RoundTripper: transport}, Timeout: at.request}, nil
}

// caller is the SDK's way to have its requests sent by a client of ours, whose
// connections can be closed.
type caller struct{ client *http.Client }

// Call implements dara.HttpClient.
func (c caller) Call(request *http.Request, _ *http.Transport) (*http.Response, error) {
	return c.client.Do(request)
}

// attempts is how often a call is made when the cloud is too busy or a reply is
// lost. All calls can be repeated: they are reads, carry a client token, or say
// what shall be and not what to change.
const attempts = 4

// method is a call of the SDK.
type method[Q, R any] func(context.Context, Q, *dara.RuntimeOptions) (R, error)

// call makes a call until it succeeds or there is no point in another try.
// action is as RAM names it.
func call[Q, R any](ctx context.Context, a *api, action string, do method[Q, R], request Q) (R, error) {
	renewed := false
	for n := 1; ; n++ {
		response, err := once(ctx, a, action, do, request)
		if err == nil {
			return response, nil
		}
		if failure.HasCode(err, codeTokenGone) && !renewed && a.signer.forget() {
			renewed = true
			continue
		}
		if n == attempts || !worthAnotherTry(ctx, err) {
			return response, err
		}
		if poll.Sleep(ctx, backoff(a.pace.retry, n)) != nil {
			return response, err
		}
	}
}

func once[Q, R any](ctx context.Context, a *api, action string, do method[Q, R], request Q) (R, error) {
	var none R
	if err := context.Cause(ctx); err != nil {
		return none, classify(action, err)
	}
	if err := a.signer.ensure(ctx); err != nil {
		return none, classify(action, err)
	}
	response, err := do(ctx, request, &dara.RuntimeOptions{})
	return response, classify(action, err)
}

// worthAnotherTry reports whether an error will soon vanish by itself. If a resource
// is busy with another change, the caller waits for it.
func worthAnotherTry(ctx context.Context, err error) bool {
	var dns *net.DNSError
	if ctx.Err() != nil || busy(err) || failure.Untrusted(err) || errors.As(err, &dns) && dns.IsNotFound {
		return false
	}
	return errors.Is(err, provider.ErrUnavailable) || failure.HasCode(err, codeNonceUsed)
}

// backoff doubles with each attempt, and differs between callers.
func backoff(first time.Duration, attempt int) time.Duration {
	d := first << (attempt - 1)
	return d/2 + rand.N(d)
}

// look asks until what it looks for is seen, or should have been by then.
func (p *Provider) look(ctx context.Context, then time.Time, ask func() (seen bool, err error)) (seen bool, err error) {
	return p.pace.ticker().Look(ctx, then, ask)
}

// settled repeats a change while the cloud refuses it because of an earlier one.
func (p *Provider) settled(ctx context.Context, change func() error) error {
	for t := p.pace.ticker(); ; {
		err := change()
		if err == nil || !busy(err) {
			return err
		}
		if waitErr := t.Wait(ctx); waitErr != nil {
			return errors.Join(failure.Classify(waitErr), err)
		}
	}
}
