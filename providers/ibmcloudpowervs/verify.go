// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

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
	account, err := p.api.tokens.get(ctx)
	if err != nil {
		return fmt.Errorf("verify the configuration: %w", classify(err))
	}
	errs := []error{
		p.checkExists(ctx, "/images/"+p.cfg.Image, "image", "image-id", "POWERVS_IMAGE_ID", p.cfg.Image),
		p.checkExists(ctx, "/networks/"+p.cfg.Network, "network", "network-id", "POWERVS_NETWORK_ID", p.cfg.Network),
		p.verifySystem(ctx),
		p.verifyList(ctx),
	}
	if p.cfg.SSHKey != "" {
		errs = append(errs, p.verifyKey(ctx, account.account))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("verify the configuration: %w", err)
	}
	return nil
}

// checkExists looks for what a setting names.
func (p *Provider) checkExists(ctx context.Context, path, what, flagName, env, value string) error {
	err := p.api.send(ctx, http.MethodGet, path, nil, nil)
	return missing(err, what, flagName, env, value)
}

func missing(err error, what, flagName, env, value string) error {
	switch {
	case err == nil:
		return nil
	case isStatus(err, http.StatusNotFound):
		return fmt.Errorf("%w: -%s (%s): the workspace has no %s %s", provider.ErrNotFound, flagName, env, what, value)
	}
	return fmt.Errorf("-%s (%s): %w", flagName, env, err)
}

func (p *Provider) verifyKey(ctx context.Context, account string) error {
	path := "/pcloud/v1/tenants/" + url.PathEscape(account) + "/sshkeys/" + url.PathEscape(p.cfg.SSHKey)
	err := p.api.sendTo(ctx, http.MethodGet, path, nil, nil)
	return missing(err, "SSH key", "ssh-key", "POWERVS_SSH_KEY_NAME", p.cfg.SSHKey)
}

// verifySystem looks whether the workspace has machines of the type.
func (p *Provider) verifySystem(ctx context.Context) error {
	var pools map[string]struct {
		Type string `json:"type"`
	}
	if err := p.api.send(ctx, http.MethodGet, "/system-pools", nil, &pools); err != nil {
		return fmt.Errorf("-sys-type (POWERVS_SYSTEM_TYPE): %w", err)
	}
	types := map[string]bool{}
	for _, pool := range pools {
		types[pool.Type] = true
	}
	names := slices.Sorted(maps.Keys(types))
	if !allowed(names, p.cfg.SystemType) {
		return fmt.Errorf("%w: -sys-type (POWERVS_SYSTEM_TYPE): the workspace has no %s, but %s", provider.ErrNotFound, p.cfg.SystemType, strings.Join(names, ", "))
	}
	return nil
}

// verifyList proves the right to see instances.
func (p *Provider) verifyList(ctx context.Context) error {
	return p.api.send(ctx, http.MethodGet, "/pvm-instances", nil, nil)
}
