// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"

	"github.com/outrigger/outrigger/provider"
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

const operationDone = "DONE"

// remembered is how long a lack of capacity stands for all who ask the same:
// longer than a slow process takes from one zone to the next.
const remembered = time.Minute

// stale reports whether an insert has answered with the outcome of an earlier
// attempt that says nothing about now.
func (o *operation) stale(life time.Duration) bool {
	failure := o.failure()
	if failure == nil {
		return false
	}
	ended, err := time.Parse(time.RFC3339Nano, o.EndTime)
	return !errors.Is(failure, provider.ErrCapacity) || err == nil && time.Since(ended) > life
}

// follow returns the request id to use after one whose operation is over. Every
// process computes the same one.
func follow(id uuid.UUID, op *operation) uuid.UUID { return uuid.NewSHA1(id, []byte(op.Name)) }

// operationFields are what an operation is asked for.
const operationFields = "name,status,progress,targetId,targetLink,endTime,httpErrorStatusCode,error"

// refresh reads an operation again. where is global or the path of a zone.
func (p *Provider) refresh(ctx context.Context, where string, op *operation) error {
	var now operation
	err := p.api.get(ctx, where+"/operations/"+op.Name, url.Values{"fields": {operationFields}}, &now)
	if err != nil {
		return fmt.Errorf("look at operation %s: %w", op.Name, err)
	}
	*op = now
	return nil
}

// finish waits until an operation is done and returns its failure.
func (p *Provider) finish(ctx context.Context, zone string, op *operation) error {
	err := p.wait.Until(ctx, func() (bool, error) {
		if op.Status == operationDone {
			return true, nil
		}
		err := p.refresh(ctx, "zones/"+zone, op)
		return op.Status == operationDone, err
	})
	return cmp.Or(err, op.failure())
}

// pending returns the inserts of an instance that are under way.
func (p *Provider) pending(ctx context.Context, at location) ([]operation, error) {
	query := url.Values{
		"filter": {fmt.Sprintf(`(operationType eq "insert") (status ne "DONE") (targetLink eq ".*/zones/%s/instances/%s")`, at.zone, at.name)},
		"fields": {"items(" + operationFields + "),nextPageToken"},
	}
	var page struct {
		Items []operation `json:"items"`
	}
	err := p.api.get(ctx, "zones/"+at.zone+"/operations", query, &page)
	return page.Items, p.ofProject(err)
}

// ofProject makes a 404 of a whole collection an error about the project. It is
// not ErrNotFound: nobody has looked for the instance.
func (p *Provider) ofProject(err error) error {
	if !failure.HasStatus(err, http.StatusNotFound) {
		return err
	}
	return fmt.Errorf("%w: the credentials see no -gcp-project-id (GCP_PROJECT_ID) %s: %v", provider.ErrInvalidArgument, p.cfg.Project, err) //nolint:errorlint // its class is not this one's
}

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
