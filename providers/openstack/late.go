// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
)

const (
	// postLimit bounds a call that makes something, whose caller may have gone.
	postLimit = 5 * time.Minute
	// lateness is how long a service may go on with a call whose connection is
	// lost: nothing that it makes can appear later than that. A minute is
	// Neutron's and Nova's rpc_response_timeout, and the time-out of usual
	// proxies.
	lateness = time.Minute
)

// lates are the instances of which a call was lost that may still make
// something, and until when.
type lates struct {
	mu    sync.Mutex
	until map[string]time.Time
}

func (l *lates) lost(id string, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.until == nil {
		l.until = map[string]time.Time{}
	}
	for other, end := range l.until {
		if time.Now().After(end) {
			delete(l.until, other)
		}
	}
	l.until[id] = time.Now().Add(wait)
}

// pending reports whether something may still appear.
func (l *lates) pending(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Now().Before(l.until[id]) {
		return true
	}
	delete(l.until, id)
	return false
}

// post makes a call that makes something. It does not end with its caller's
// context: OpenStack's services go on when their client is gone, and what they
// make then nobody would know of. A call without an answer is remembered.
func (p *Provider) post(ctx context.Context, id string, call func(context.Context) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), postLimit)
	defer cancel()
	whole, done := p.life.Begin(whole)
	defer done()
	err := call(whole)
	if unanswered(err) {
		p.late.lost(id, p.lateness)
	}
	return err
}

// unanswered reports whether the service may go on with a call that has failed.
func unanswered(err error) bool {
	var response gophercloud.ErrUnexpectedResponseCode
	var dial *net.OpError
	switch {
	case err == nil:
		return false
	case errors.As(err, &response):
		return response.Actual == http.StatusBadGateway || response.Actual == http.StatusGatewayTimeout
	case errors.As(err, &dial) && dial.Op == "dial", failure.Untrusted(err):
		return false // it was never sent
	}
	return provider.Class(classify(err)) == provider.ErrUnavailable
}
