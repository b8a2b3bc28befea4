// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/outrigger/outrigger/provider"
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
			if owner(piece.Name) != r.name {
				continue
			}
			if err := kind.remove(piece.Name); err != nil {
				return fmt.Errorf("%s %s: %w", kind.what, piece.Name, err)
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

// PowerOff gives the VM's machine back, so that only its disk and addresses
// cost money. It returns when the VM is off.
func (p *Provider) PowerOff(ctx context.Context, instanceID string) (err error) {
	defer explain(&err, "power off %s", last(instanceID))
	return p.switchPower(ctx, instanceID, func(r ref) error {
		poller, err := p.cloud.vms.BeginDeallocate(ctx, r.group, r.name, nil)
		_, err = wait(ctx, p.tempo.ask, nil, poller, err)
		return err
	})
}

// PowerOn starts the VM and returns when Azure has found a machine for it.
func (p *Provider) PowerOn(ctx context.Context, instanceID string) (err error) {
	defer explain(&err, "power on %s", last(instanceID))
	return p.switchPower(ctx, instanceID, func(r ref) error {
		poller, err := p.cloud.vms.BeginStart(ctx, r.group, r.name, nil)
		_, err = wait(ctx, p.tempo.ask, nil, poller, err)
		return err
	})
}

// switchPower tries again while another operation has the VM.
func (p *Provider) switchPower(ctx context.Context, id string, do func(ref) error) error {
	r, ok := p.parseID(id)
	if !ok {
		return errNoInstance(id)
	}
	return p.tempo.ask.Until(ctx, func() (bool, error) {
		err := do(r)
		if isStatus(err, http.StatusConflict) && !noRoom(classify(err)) {
			return false, p.stays(ctx, r)
		}
		return true, err
	})
}

// stays returns an error for a VM that is not there or on its way out.
func (p *Provider) stays(ctx context.Context, r ref) error {
	vm, err := p.getVM(ctx, r)
	if err == nil && (vm == nil || provisioning(vm) == provisioningDeleting) {
		err = fmt.Errorf("%w: the VM is deleted", provider.ErrNotFound)
	}
	return err
}

// Console implements provider.ConsoleReader: Azure keeps what a VM writes to
// its serial port in a blob, and gives a URL with a signature for it.
func (p *Provider) Console(ctx context.Context, instanceID string, tailBytes int64) (tail []byte, err error) {
	defer explain(&err, "console of %s", last(instanceID))
	r, ok := p.parseID(instanceID)
	if !ok {
		return nil, errNoInstance(instanceID)
	}
	data, err := p.cloud.vms.RetrieveBootDiagnosticsData(ctx, r.group, r.name,
		&armcompute.VirtualMachinesClientRetrieveBootDiagnosticsDataOptions{SasURIExpirationTimeInMinutes: to.Ptr[int32](5)})
	if err != nil || data.SerialConsoleLogBlobURI == nil {
		return nil, err // a VM that was never on has no console
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, *data.SerialConsoleLogBlobURI, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: Azure gives no URL for the console", provider.ErrUnknown) // the text of err has the signature
	}
	response, err := p.cloud.http.Do(request)
	if err != nil {
		return nil, withoutURL(err)
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
		return lastBytes(response.Body, tailBytes)
	case http.StatusNotFound:
		return nil, nil // nothing was written yet
	}
	return nil, answered(response.StatusCode, response.Header.Get("x-ms-error-code"), "the console's blob")
}

// withoutURL keeps the signature in a URL out of texts.
func withoutURL(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}

// maxConsole bounds what is kept in memory.
const maxConsole = 16 << 20

// lastBytes returns the end of a stream.
func lastBytes(r io.Reader, tail int64) ([]byte, error) {
	tail = min(tail, maxConsole)
	var kept []byte
	chunk := make([]byte, 64<<10)
	for {
		n, err := r.Read(chunk)
		kept = append(kept, chunk[:n]...)
		if extra := int64(len(kept)) - tail; extra > 0 && (extra > maxConsole || err != nil) {
			kept = append([]byte(nil), kept[extra:]...)
		}
		if err == io.EOF {
			return kept, nil
		}
		if err != nil {
			return nil, withoutURL(err)
		}
	}
}
