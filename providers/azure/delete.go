// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/outrigger/outrigger/provider/kit/poll"
	"github.com/outrigger/outrigger/provider/kit/rest"
)

// DeleteInstance implements provider.Provider. It returns when Azure has
// accepted to remove the VM, with which everything goes that the VM's model
// names. Of a VM that is gone it removes what has stayed.
func (p *Provider) DeleteInstance(ctx context.Context, instanceID string) (err error) {
	defer explain(&err, "delete instance %s", last(instanceID))
	r, ok := p.parseID(instanceID)
	if !ok {
		return p.elsewhere(instanceID)
	}
	p.creations.end(r.name)
	unlock, err := p.locks.Take(ctx, r.name)
	if err != nil {
		return err
	}
	defer unlock()
	gone, err := p.remove(ctx, r)
	if err == nil && gone {
		err = p.sweep(ctx, r)
	}
	return err
}

// remove deletes a VM. It returns whether there was none; otherwise Azure has
// accepted to remove it. While another operation has the VM it tries again.
func (p *Provider) remove(ctx context.Context, r ref) (gone bool, err error) {
	err = p.tempo.ask.Until(ctx, func() (bool, error) {
		_, gone, err = p.startRemoval(ctx, r)
		if isStatus(err, http.StatusConflict) {
			return false, nil
		}
		return true, err
	})
	return gone, err
}

func (p *Provider) startRemoval(ctx context.Context, r ref) (*runtime.Poller[armcompute.VirtualMachinesClientDeleteResponse], bool, error) {
	var response *http.Response
	// Nobody needs the guest to shut down in order.
	poller, err := p.cloud.vms.BeginDelete(policy.WithCaptureResponse(ctx, &response), r.group, r.name,
		&armcompute.VirtualMachinesClientBeginDeleteOptions{ForceDeletion: to.Ptr(true)})
	if absent(err) {
		return nil, true, nil
	}
	return poller, response != nil && response.StatusCode == http.StatusNoContent, err
}

// sweep removes what has stayed of a VM that is gone: an interface first, since
// it holds its address.
func (p *Provider) sweep(ctx context.Context, r ref) error {
	left, err := p.parts(ctx, r.group)
	if absent(err) {
		return nil // not even the resource group is there
	}
	if err != nil {
		return err
	}
	for _, kind := range []struct {
		what   string
		pieces []piece
		remove func(name string) error
	}{
		{"network interface", left.nics, func(name string) error {
			poller, err := p.cloud.nics.BeginDelete(ctx, r.group, name, nil)
			return finish(ctx, p.tempo.ask, poller, err)
		}},
		{"public address", left.ips, func(name string) error {
			poller, err := p.cloud.ips.BeginDelete(ctx, r.group, name, nil)
			return finish(ctx, p.tempo.ask, poller, err)
		}},
		{"disk", left.disks, func(name string) error {
			poller, err := p.cloud.disks.BeginDelete(ctx, r.group, name, nil)
			return finish(ctx, p.tempo.ask, poller, err)
		}},
	} {
		for _, piece := range kind.pieces {
			if owner(piece.name) != r.name {
				continue
			}
			if err := kind.remove(piece.name); err != nil {
				return fmt.Errorf("%s %s: %w", kind.what, piece.name, err)
			}
		}
	}
	return nil
}

// finish waits for the end of an operation. That there is no such thing is not
// an error.
func finish[T any](ctx context.Context, pace poll.Pace, poller *runtime.Poller[T], err error) error {
	_, err = wait(ctx, pace, nil, poller, err)
	if absent(err) {
		return nil
	}
	return err
}

// wait returns the result of an operation when it has ended. err is that of its beginning; each, unless it is nil,
// is called before each look.
func wait[T any](ctx context.Context, pace poll.Pace, each func(), poller *runtime.Poller[T], err error) (result T, _ error) {
	if err != nil {
		return result, err
	}
	for pause := pace.First; !poller.Done(); pause = min(2*pause, pace.Max) {
		if each != nil {
			each()
		}
		response, err := poller.Poll(ctx)
		if err != nil {
			return result, err
		}
		if poller.Done() {
			break
		}
		if err := poll.Sleep(ctx, max(pause, rest.RetryAfter(response, time.Minute))); err != nil {
			return result, err
		}
	}
	return poller.Result(ctx)
}
