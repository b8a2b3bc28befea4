// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	ecs "github.com/alibabacloud-go/ecs-20140526/v7/client"
	"github.com/alibabacloud-go/tea/dara"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
)

// DeleteInstance implements provider.Provider. It also removes what is left of
// an instance that is gone.
func (p *Provider) DeleteInstance(ctx context.Context, instanceID string) (err error) {
	defer explain(&err, "delete instance %s", instanceID)
	if !isID(instanceID) {
		return nil // the cloud never gave such an id
	}
	return p.remove(ctx, instanceID)
}

// remove asks the cloud whose the instance is, unless this process made it.
func (p *Provider) remove(ctx context.Context, id string) error {
	if note, here := p.memory.made.find(id); here {
		return p.removeMachine(ctx, id, note)
	}
	m, err := p.byID(ctx, id)
	switch {
	case err != nil:
		return err
	case m == nil:
		return p.releaseAll(ctx, id, time.Time{})
	case !m.ours():
		return fmt.Errorf("%w: the instance is somebody else's: it lacks the tag %s", provider.ErrPermissionDenied, provider.TagKey)
	}
	at := m.created.Add(time.Minute) // the cloud's time has no seconds
	if now := time.Now(); at.After(now) {
		at = now
	}
	return p.removeMachine(ctx, id, made{at: at, seen: true, hasAddress: m.tags[tagAddress] != ""})
}

func (p *Provider) removeMachine(ctx context.Context, id string, note made) error {
	if err := p.terminate(ctx, id, note); err != nil {
		return err
	}
	p.memory.deleted.put(id, true)
	if note.hasAddress {
		// It may have been made just now, and not be shown yet.
		if err := p.releaseAll(ctx, id, note.at.Add(p.pace.visible)); err != nil {
			return err
		}
	}
	p.memory.made.drop(id)
	return nil
}

// terminate repeats until the cloud agrees: it refuses while the instance is
// being made, and may not know one yet that it has not shown.
func (p *Provider) terminate(ctx context.Context, id string, note made) error {
	request := &ecs.DeleteInstanceRequest{InstanceId: new(id), Force: new(true), ForceStop: new(true)}
	for t := p.pace.ticker(); ; {
		_, err := call(ctx, p.api, "ecs:DeleteInstance", p.api.ecs().DeleteInstanceWithContext, request)
		switch {
		case err == nil:
			return nil
		case failure.HasCode(err, codeNoInstance):
			if note.seen || t.Over(note.at.Add(p.pace.visible)) || p.memory.deleted.get(id) {
				return nil
			}
		case !busy(err):
			return err
		}
		if waitErr := t.Wait(ctx); waitErr != nil {
			return errors.Join(waitErr, err)
		}
	}
}

// PowerOff implements provider.PowerController. The instance costs as much as
// before: a cheaper stop gives its public address away.
func (p *Provider) PowerOff(ctx context.Context, instanceID string) (err error) {
	defer explain(&err, "power off %s", instanceID)
	return p.power(ctx, instanceID, statusStopped, func() error {
		_, err := call(ctx, p.api, "ecs:StopInstance", p.api.ecs().StopInstanceWithContext,
			&ecs.StopInstanceRequest{InstanceId: new(instanceID), ForceStop: new(true), StoppedMode: new("KeepCharging")})
		return err
	})
}

// PowerOn implements provider.PowerController.
func (p *Provider) PowerOn(ctx context.Context, instanceID string) (err error) {
	defer explain(&err, "power on %s", instanceID)
	return p.power(ctx, instanceID, statusRunning, func() error {
		_, err := call(ctx, p.api, "ecs:StartInstance", p.api.ecs().StartInstanceWithContext, &ecs.StartInstanceRequest{InstanceId: new(instanceID)})
		return err
	})
}

// settling are the statuses that pass by themselves, and into what.
var settling = map[string]string{statusPending: statusRunning, statusStarting: statusRunning, statusStopping: statusStopped}

// power waits while the instance is between states, and returns when it is in
// the wanted one or on its way there.
func (p *Provider) power(ctx context.Context, id, wanted string, order func() error) error {
	for t := p.pace.ticker(); ; {
		m, err := p.owned(ctx, id)
		switch {
		case err != nil:
			return err
		case p.memory.deleted.get(id):
			return fmt.Errorf("%w: the instance is being deleted", provider.ErrNotFound)
		case m.status == wanted, settling[m.status] == wanted && m.status != statusPending:
			return nil
		}
		if settling[m.status] == "" {
			err = order()
			if err == nil || !busy(err) && !errors.Is(err, provider.ErrNotFound) {
				return err
			}
		}
		if waitErr := t.Wait(ctx); waitErr != nil {
			return errors.Join(failure.Classify(waitErr), err)
		}
	}
}

// Console implements provider.ConsoleReader. The cloud keeps the last 64 KB or
// so, and is some seconds late.
func (p *Provider) Console(ctx context.Context, instanceID string, tailBytes int64) (tail []byte, err error) {
	defer explain(&err, "console of %s", instanceID)
	if _, err := p.owned(ctx, instanceID); err != nil {
		return nil, err
	}
	response, err := call(ctx, p.api, "ecs:GetInstanceConsoleOutput", p.api.ecs().GetInstanceConsoleOutputWithContext,
		&ecs.GetInstanceConsoleOutputRequest{RegionId: new(p.cfg.Region), InstanceId: new(instanceID)})
	if err != nil || response.Body == nil {
		return nil, err
	}
	text, err := base64.StdEncoding.DecodeString(dara.StringValue(response.Body.ConsoleOutput))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", provider.ErrUnknown, err)
	}
	return text[max(0, int64(len(text))-tailBytes):], nil
}
