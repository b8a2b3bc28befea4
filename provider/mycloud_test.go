// SPDX-License-Identifier: Apache-2.0

package provider_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"sync"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/conformance"
)

// client is the API of the imaginary cloud of the example: a server in memory.
type client struct{ cloud *mycloud }

type mycloud struct {
	mu      sync.Mutex
	serial  int
	servers map[string]server
}

type server struct {
	ID, Token, Name, Type, Image, UserData string
	Tags                                   map[string]string
	Address                                netip.Addr
}

// statusError is the HTTP status of a refusal.
type statusError int

func (s statusError) Error() string { return http.StatusText(int(s)) }

func (s server) instance() *provider.Instance {
	return &provider.Instance{ID: s.ID, Name: s.Name, IPs: []netip.Addr{s.Address}, Key: s.Token, Tags: maps.Clone(s.Tags), State: provider.StateRunning}
}

func newClient(_, _ string) client { return client{&mycloud{servers: map[string]server{}}} }

func (c client) types(ctx context.Context) ([]provider.InstanceType, error) {
	return []provider.InstanceType{{Name: "small", VCPUs: 1, Memory: 1024, Arch: "amd64"}}, ctx.Err()
}

func (c client) create(ctx context.Context, s server) (server, error) {
	if s.Image != "podvm" {
		return server{}, statusError(http.StatusBadRequest)
	}
	c.cloud.mu.Lock()
	defer c.cloud.mu.Unlock()
	for _, other := range c.cloud.servers {
		if other.Token == s.Token {
			return other, ctx.Err()
		}
	}
	c.cloud.serial++
	s.ID = fmt.Sprintf("srv-%d", c.cloud.serial)
	s.Address = netip.AddrFrom4([4]byte{192, 0, 2, byte(c.cloud.serial)})
	c.cloud.servers[s.ID] = s
	return s, ctx.Err()
}

func (c client) delete(ctx context.Context, id string) error {
	c.cloud.mu.Lock()
	defer c.cloud.mu.Unlock()
	if _, ok := c.cloud.servers[id]; !ok {
		return statusError(http.StatusNotFound)
	}
	delete(c.cloud.servers, id)
	return ctx.Err()
}

func (c client) list(ctx context.Context, match map[string]string) ([]server, error) {
	c.cloud.mu.Lock()
	defer c.cloud.mu.Unlock()
	var list []server
	for _, s := range c.cloud.servers {
		both := maps.Clone(s.Tags)
		maps.Copy(both, match)
		if maps.Equal(both, s.Tags) {
			list = append(list, s)
		}
	}
	return list, ctx.Err()
}

// TestExampleKeepsTheContract: what authors copy passes the suite.
func TestExampleKeepsTheContract(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Subject {
		t.Setenv("MYCLOUD_TOKEN", "t")
		manager := &Manager{}
		manager.LoadEnv()
		p, err := manager.NewProvider()
		if err != nil {
			t.Fatal(err)
		}
		return conformance.Subject{
			Provider: p,
			Reopen:   func() provider.Provider { return &Cloud{api: p.(*Cloud).api} },
			Leaks: func() (left []string, err error) {
				cloud := p.(*Cloud).api.cloud
				cloud.mu.Lock()
				defer cloud.mu.Unlock()
				for id := range cloud.servers {
					left = append(left, id)
				}
				return left, nil
			},
		}
	})
}

func TestExampleErrors(t *testing.T) {
	t.Setenv("MYCLOUD_TOKEN", "")
	if _, err := (&Manager{}).NewProvider(); !errors.Is(err, provider.ErrInvalidArgument) {
		t.Errorf("no token: %v", err)
	}
	for err, want := range map[error]error{
		nil:                              nil,
		errors.New("connection reset"):   provider.ErrUnavailable,
		statusError(http.StatusTeapot):   provider.ErrUnknown,
		statusError(http.StatusNotFound): provider.ErrNotFound,
	} {
		if got := provider.Class(classify("x", err)); got != want {
			t.Errorf("%v: class %v, want %v", err, got, want)
		}
	}
}
