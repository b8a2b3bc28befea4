// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/outrigger/outrigger/provider"
)

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
	var failed *url.Error
	if errors.As(err, &failed) {
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
