// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/kit/failure"
)

// verifyLimit bounds ConfigVerifier.
const verifyLimit = time.Minute

// ConfigVerifier implements provider.Provider: it looks at everything that the
// settings name and reports all that is wrong.
func (p *Provider) ConfigVerifier() error { return p.VerifyConfig(context.Background()) }

// VerifyConfig implements provider.ContextVerifier.
func (p *Provider) VerifyConfig(ctx context.Context) (err error) {
	defer explain(&err, "verify the configuration")
	ctx, cancel := context.WithTimeout(ctx, verifyLimit)
	defer cancel()
	account, err := p.api.tokens.get(ctx)
	if err != nil {
		return err
	}
	errs := []error{
		p.checkExists(ctx, "image-id", "image "+p.cfg.Image, p.api.path("/images/"+p.cfg.Image)),
		p.checkExists(ctx, "network-id", "network "+p.cfg.Network, p.api.path("/networks/"+p.cfg.Network)),
		p.verifySystem(ctx),
		p.api.send(ctx, http.MethodGet, "/pvm-instances", nil, nil), // proves the right to see instances
	}
	if p.cfg.SSHKey != "" {
		path := "/pcloud/v1/tenants/" + url.PathEscape(account.account) + "/sshkeys/" + url.PathEscape(p.cfg.SSHKey)
		errs = append(errs, p.checkExists(ctx, "ssh-key", "SSH key "+p.cfg.SSHKey, path))
	}
	return errors.Join(errs...)
}

// checkExists looks for what a setting names.
func (p *Provider) checkExists(ctx context.Context, flagName, what, path string) error {
	err := p.api.sendTo(ctx, http.MethodGet, path, nil, nil)
	if failure.HasStatus(err, http.StatusNotFound) {
		err = fmt.Errorf("%w: the workspace has no %s", provider.ErrNotFound, what)
	}
	return config.About[Config](flagName, err)
}

// verifySystem looks whether the workspace has machines of the type.
func (p *Provider) verifySystem(ctx context.Context) error {
	var pools map[string]struct {
		Type string `json:"type"`
	}
	if err := p.api.send(ctx, http.MethodGet, "/system-pools", nil, &pools); err != nil {
		return config.About[Config]("sys-type", err)
	}
	var names []string
	for _, pool := range pools {
		names = append(names, pool.Type)
	}
	if len(names) == 0 || slices.Contains(names, p.cfg.SystemType) {
		return nil
	}
	slices.Sort(names)
	return config.About[Config]("sys-type", fmt.Errorf("%w: the workspace has no %s, but %s", provider.ErrNotFound, p.cfg.SystemType, strings.Join(slices.Compact(names), ", ")))
}
