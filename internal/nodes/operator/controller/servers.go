// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"net"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/outrigger/outrigger/internal/nodes/operator/versions"
)

// servers tracks the version of the API servers. Behind one address there may
// be several, of which some are upgraded already.
type servers struct {
	// version asks one of them, any.
	version func(context.Context) (string, error)
	// settle is how long no older one must have answered.
	settle time.Duration
	now    func() time.Time

	// newer is since when only newer ones have answered than the known one.
	newer time.Time
}

// lowest returns the version that all API servers have reached, given the one
// that was known before, and when to ask again; 0 is not a need.
func (s *servers) lowest(ctx context.Context, known string) (string, time.Duration, error) {
	version, err := s.version(ctx)
	if err != nil {
		return "", 0, fmt.Errorf("ask the API server for its version: %w", err)
	}
	now, err := versions.ParseMinor(version)
	if err != nil {
		return "", 0, err
	}
	was, err := versions.ParseMinor(known)
	if err != nil || now <= was {
		s.newer = time.Time{}
		return version, 0, nil
	}
	if s.newer.IsZero() {
		s.newer = s.now()
	}
	if left := s.newer.Add(s.settle).Sub(s.now()); left > 0 {
		return known, min(left, max(s.settle/10, time.Second)), nil
	}
	s.newer = time.Time{}
	return version, 0, nil
}

// askOne asks on a connection of its own each time: one that is kept would
// always lead to the same API server.
func askOne(config *rest.Config) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		own := rest.CopyConfig(config)
		own.Dial = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
		own.Timeout = 10 * time.Second
		c, err := rest.HTTPClientFor(own)
		if err != nil {
			return "", err
		}
		defer utilnet.CloseIdleConnectionsFor(c.Transport)
		d, err := discovery.NewDiscoveryClientForConfigAndClient(own, c)
		if err != nil {
			return "", err
		}
		v, err := d.ServerVersion()
		if err != nil {
			return "", err
		}
		return v.GitVersion, nil
	}
}
