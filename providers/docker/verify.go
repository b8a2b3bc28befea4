// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/outrigger/outrigger/provider"
)

// verifyLimit bounds ConfigVerifier.
const verifyLimit = time.Minute

// ConfigVerifier implements provider.Provider: it looks at everything that the
// settings name and reports all that is wrong.
func (p *Provider) ConfigVerifier() error { return p.VerifyConfig(context.Background()) }

// VerifyConfig implements provider.ContextVerifier.
func (p *Provider) VerifyConfig(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, verifyLimit)
	defer cancel()
	err := p.knock(ctx)
	if err == nil {
		_, err = p.engine.Ping(ctx, client.PingOptions{NegotiateAPIVersion: p.cfg.APIVersion == ""})
	}
	if err != nil {
		return fmt.Errorf("verify the configuration: -docker-host (DOCKER_HOST) %s: %w", p.cfg.Host, classify(err))
	}
	_, imageErr := p.engine.ImageInspect(ctx, p.cfg.Image)
	_, networkErr := p.engine.NetworkInspect(ctx, p.cfg.Network, client.NetworkInspectOptions{})
	err = errors.Join(
		missing(imageErr, "docker-podvm-image", "DOCKER_PODVM_IMAGE", "image", p.cfg.Image),
		missing(networkErr, "docker-network-name", "DOCKER_NETWORK_NAME", "network", p.cfg.Network),
		p.verifyLimits(ctx),
	)
	if err != nil {
		return fmt.Errorf("verify the configuration: %w", err)
	}
	return nil
}

// knock checks whether anything listens at the engine's address: Docker's client
// does not always report why it cannot connect.
func (p *Provider) knock(ctx context.Context) error {
	where, err := client.ParseHostURL(p.cfg.Host)
	if err != nil {
		return err
	}
	network := "tcp"
	if where.Scheme == "unix" {
		network = "unix"
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, where.Host)
	switch {
	case err == nil:
		return conn.Close()
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: there is no such socket: start the Docker engine, or name the socket of one that runs", provider.ErrUnavailable)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w: nobody listens there: start the Docker engine, or say where one runs", provider.ErrUnavailable)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: this user may not open the socket: run as root, or as a member of the socket's group", provider.ErrPermissionDenied)
	}
	return fmt.Errorf("%w: %w", provider.ErrUnavailable, err)
}

func missing(err error, flagName, env, what, name string) error {
	switch {
	case err == nil:
		return nil
	case errdefs.IsNotFound(err):
		return fmt.Errorf("%w: -%s (%s): the engine has no %s %q", provider.ErrNotFound, flagName, env, what, name)
	}
	return fmt.Errorf("-%s (%s): %w", flagName, env, classify(err))
}

func (p *Provider) verifyLimits(ctx context.Context) error {
	if _, err := p.limits(ctx, p.cfg.CPUs, p.cfg.Memory); err != nil {
		return fmt.Errorf("-docker-cpus (DOCKER_CPUS), -docker-memory (DOCKER_MEMORY): %w", err)
	}
	return nil
}
