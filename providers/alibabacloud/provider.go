// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"errors"

	"github.com/outrigger/outrigger/provider/kit/cached"
	"github.com/outrigger/outrigger/provider/kit/keylock"
)

// Provider makes ECS instances in the vSwitches of one VPC. Several processes
// may have one with the same configuration.
type Provider struct {
	cfg          Config
	api          *api
	pace         pace
	memory       memory
	vswitchCache cached.Values[[]vswitch]
	types        cached.Values[*catalogue]
	prices       cached.Values[float64] // by type; 0 is one that the cloud has not told
	// balancing is held by who changes the load balancer of a key.
	balancing keylock.Locks
}

// New checks cfg. It asks the cloud nothing: ConfigVerifier does.
func New(cfg Config) (*Provider, error) { return open(cfg, standardPace(), nil) }

func open(cfg Config, at pace, dial dialer) (*Provider, error) {
	configErr := cfg.validate()
	a, err := newAPI(cfg, at, dial)
	if err := errors.Join(configErr, err); err != nil {
		return nil, err
	}
	return &Provider{cfg: cfg, api: a, pace: at}, nil
}

// Teardown closes the connections; VMs run on.
func (p *Provider) Teardown() error {
	p.api.http.CloseIdleConnections()
	return nil
}
