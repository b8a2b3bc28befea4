// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/outrigger/outrigger/provider/kit/poll"
)

// DeleteInstance implements provider.Provider. It returns when Azure has
// accepted to remove the VM, with which everything goes that the VM's model
// names. Of a VM that is gone it removes what has stayed.
func (p *Provider) DeleteInstance(ctx context.Context, instanceID string) error {
	r, ok := p.parseID(instanceID)
	if !ok {
		return p.elsewhere(instanceID)
	}
	p.creations.end(r.name)
	unlock, err := p.locks.Take(ctx, r.name)
	if err != nil {
		return classify(fmt.Errorf("delete instance %s: %w", r.name, err))
	}
	defer unlock()
	gone, err := p.remove(ctx, r)
	if err == nil && gone {
		err = p.sweep(ctx, r)
	}
	if err != nil {
		return classify(fmt.Errorf("delete instance %s: %w", r.name, err))
	}
	return nil
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
	for _, nic := range left.nics {
		if owner(nic.name) == r.name {
			poller, err := p.cloud.nics.BeginDelete(ctx, r.group, nic.name, nil)
			if err := finish(ctx, p.tempo.ask, poller, err); err != nil {
				return fmt.Errorf("network interface %s: %w", nic.name, err)
			}
		}
	}
	for _, ip := range left.ips {
		if owner(ip.name) == r.name {
			poller, err := p.cloud.ips.BeginDelete(ctx, r.group, ip.name, nil)
			if err := finish(ctx, p.tempo.ask, poller, err); err != nil {
				return fmt.Errorf("public address %s: %w", ip.name, err)
			}
		}
	}
	for _, disk := range left.disks {
		if owner(disk.name) == r.name {
			poller, err := p.cloud.disks.BeginDelete(ctx, r.group, disk.name, nil)
			if err := finish(ctx, p.tempo.ask, poller, err); err != nil {
				return fmt.Errorf("disk %s: %w", disk.name, err)
			}
		}
	}
	return nil
}

// finish waits for the end of an operation. That there is no such thing is not
// an error.
func finish[T any](ctx context.Context, pace poll.Pace, poller *runtime.Poller[T], err error) error {
	if err != nil {
		return unlessAbsent(err)
	}
	for wait := pace.First; !poller.Done(); wait = min(2*wait, pace.Max) {
		response, err := poller.Poll(ctx)
		if err != nil {
			return unlessAbsent(err)
		}
		if poller.Done() {
			break
		}
		if err := poll.Sleep(ctx, max(wait, retryAfter(response))); err != nil {
			return err
		}
	}
	_, err = poller.Result(ctx)
	return unlessAbsent(err)
}

func unlessAbsent(err error) error {
	if absent(err) {
		return nil
	}
	return err
}

// retryAfter returns when Azure wants to be asked again.
func retryAfter(r *http.Response) time.Duration {
	seconds, err := strconv.Atoi(r.Header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, time.Minute)
}
