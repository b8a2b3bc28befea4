// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"
	"net/http"
	"net/url"

	"github.com/google/uuid"

	"github.com/outrigger/outrigger/provider/kit/failure"
)

// DeleteInstance implements provider.Provider. The cloud deletes disks,
// interfaces and addresses with the instance, which this does not wait for.
func (p *Provider) DeleteInstance(ctx context.Context, instanceID string) (err error) {
	defer explain(&err, "delete instance %s", instanceID)
	at, ok := parseID(instanceID)
	if !ok {
		return nil // nothing of ours has such an id
	}
	return p.discard(ctx, at)
}

// discard deletes an instance, also one whose insert is still under way, and
// what is left of one that is gone.
func (p *Provider) discard(ctx context.Context, at location) error {
	for {
		there, err := p.remove(ctx, at)
		if err != nil || there {
			return err
		}
		inserts, err := p.pending(ctx, at)
		if err != nil {
			return err
		}
		if len(inserts) == 0 {
			return p.removeDisk(ctx, at)
		}
		for i := range inserts {
			if err := p.finish(ctx, at.zone, &inserts[i]); err != nil && ctx.Err() != nil {
				return err
			}
		}
	}
}

// remove deletes an instance and reports whether there was one. It repeats the request
// while the instance is busy.
func (p *Provider) remove(ctx context.Context, at location) (there bool, err error) {
	err = p.wait.Until(ctx, func() (bool, error) {
		err := p.api.send(ctx, http.MethodDelete, instancePath(at), requestID(), nil, nil)
		switch {
		case failure.HasStatus(err, http.StatusNotFound):
			return true, nil
		case busy(err):
			return false, nil
		}
		there = err == nil
		return true, err
	})
	return there, err
}

// removeDisk deletes the root disk that is left of an instance, unless another
// instance has it.
func (p *Provider) removeDisk(ctx context.Context, at location) error {
	err := p.api.send(ctx, http.MethodDelete, "zones/"+at.zone+"/disks/"+at.name, requestID(), nil, nil)
	if failure.HasStatus(err, http.StatusNotFound) || failure.HasCode(err, "resourceInUseByAnotherResource") {
		return nil
	}
	return err
}

// requestID returns a new id for a request, which the client may send twice.
func requestID() url.Values { return url.Values{"requestId": {uuid.NewString()}} }

// busy reports whether the cloud is in the middle of another change of the resource.
func busy(err error) bool { return failure.HasCode(err, "resourceNotReady", "operationInProgress") }
