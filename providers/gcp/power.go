// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/outrigger/outrigger/provider"
)

// PowerOff stops the VM and waits until it is stopped.
func (p *Provider) PowerOff(ctx context.Context, instanceID string) (err error) {
	defer explain(&err, "power off %s", instanceID)
	return p.power(ctx, instanceID, "stop", provider.StateStopped)
}

// PowerOn starts the VM. It may be out of capacity then.
func (p *Provider) PowerOn(ctx context.Context, instanceID string) (err error) {
	defer explain(&err, "power on %s", instanceID)
	return p.power(ctx, instanceID, "start", provider.StateRunning)
}

// power asks until the state is the wanted one. A VM that is on its way from
// one state to the other refuses both.
func (p *Provider) power(ctx context.Context, id, verb string, wanted provider.InstanceState) error {
	return p.wait.Until(ctx, func() (bool, error) {
		existing, err := p.existing(ctx, id)
		if err != nil || states[existing.Status] == wanted {
			return true, err
		}
		var op operation
		err = p.api.send(ctx, http.MethodPost, instancePath(existing.location())+"/"+verb, requestID(), nil, &op)
		switch {
		case busy(err):
			return false, nil
		case err != nil:
			return false, err
		}
		return false, p.finish(ctx, existing.location().zone, &op)
	})
}

// Console implements provider.ConsoleReader: the serial port, of which the
// cloud keeps the last mebibyte.
func (p *Provider) Console(ctx context.Context, instanceID string, tailBytes int64) (tail []byte, err error) {
	defer explain(&err, "console of %s", instanceID)
	at, ok := parseID(instanceID)
	if !ok {
		return nil, fmt.Errorf("%w: no instance %q: ids are ZONE/NAME", provider.ErrNotFound, instanceID)
	}
	var output struct {
		Contents string `json:"contents"`
	}
	err = p.api.get(ctx, instancePath(at)+"/serialPort", url.Values{"port": {"1"}, "fields": {"contents"}}, &output)
	text := []byte(output.Contents)
	return text[max(0, int64(len(text))-tailBytes):], err
}
