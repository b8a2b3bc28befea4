// SPDX-License-Identifier: Apache-2.0

package vsphere

import (
	"context"
	"fmt"
	"time"

	"github.com/vmware/govmomi/task"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/outrigger/outrigger/provider"
)

// watcher waits for properties to change with a property collector of its own,
// which vCenter answers as soon as something changes: one call for a wait of
// minutes. The collector is made at the first wait.
type watcher struct {
	client    *vim25.Client
	collector *types.ManagedObjectReference
}

// destroyWait is how long putting the collector away may take. It goes away
// with the session too.
const destroyWait = 2 * time.Second

func (w *watcher) close(ctx context.Context) {
	if w.collector == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), destroyWait)
	defer cancel()
	if _, err := methods.DestroyPropertyCollector(ctx, w.client, &types.DestroyPropertyCollector{This: *w.collector}); err != nil {
		logger().Debug("a property collector could not be put away; it goes with the session", "error", err)
	}
	w.collector = nil
}

func (w *watcher) open(ctx context.Context) error {
	if w.collector != nil {
		return nil
	}
	res, err := methods.CreatePropertyCollector(ctx, w.client, &types.CreatePropertyCollector{This: w.client.ServiceContent.PropertyCollector})
	if err != nil {
		return err
	}
	w.collector = &res.Returnval
	return nil
}

// properties are what is known of an object, by path.
type properties map[string]types.AnyType

// watch calls seen with the properties, first as they are and then whenever
// they change, until it returns true. It begins again when the collector has
// gone with a session that vCenter has ended.
func (w *watcher) watch(ctx context.Context, object types.ManagedObjectReference, paths []string, seen func(properties) (bool, error)) error {
	for {
		err := w.watchOnce(ctx, object, paths, seen)
		if w.collector == nil || !isGone(err, *w.collector) {
			return err
		}
		w.collector = nil
	}
}

func (w *watcher) watchOnce(ctx context.Context, object types.ManagedObjectReference, paths []string, seen func(properties) (bool, error)) error {
	if err := w.open(ctx); err != nil {
		return err
	}
	_, err := methods.CreateFilter(ctx, w.client, &types.CreateFilter{This: *w.collector, Spec: types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: object}},
		PropSet:   []types.PropertySpec{{Type: object.Type, PathSet: paths}},
	}})
	if err != nil {
		return err
	}
	known := properties{}
	for version := ""; ; {
		set, err := w.updates(ctx, version)
		if err != nil {
			return err
		}
		if set == nil {
			continue // nothing for MaxWaitSeconds
		}
		version = set.Version
		if known.apply(set, object) {
			return fmt.Errorf("%w: %s %s went away", provider.ErrUnavailable, object.Type, object.Value)
		}
		if done, err := seen(known); done || err != nil {
			return err
		}
	}
}

// updateWait is how long vCenter holds one call back; proxies cut longer ones.
const updateWait = 30

func (w *watcher) updates(ctx context.Context, version string) (*types.UpdateSet, error) {
	res, err := methods.WaitForUpdatesEx(ctx, w.client, &types.WaitForUpdatesEx{
		This: *w.collector, Version: version, Options: &types.WaitOptions{MaxWaitSeconds: types.NewInt32(updateWait)},
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	return res.Returnval, nil
}

// apply takes over what changed in the object, and reports whether it left.
func (p properties) apply(set *types.UpdateSet, object types.ManagedObjectReference) (left bool) {
	for _, filter := range set.FilterSet {
		for _, update := range filter.ObjectSet {
			if update.Obj != object {
				continue // of an earlier watch
			}
			left = update.Kind == types.ObjectUpdateKindLeave
			for _, change := range update.ChangeSet {
				p[change.Name] = change.Val
			}
		}
	}
	return left
}

// await waits for the end of a task and returns its result.
func (w *watcher) await(ctx context.Context, ref types.ManagedObjectReference) (types.AnyType, error) {
	var result types.AnyType
	err := w.watch(ctx, ref, []string{"info.state", "info.error", "info.result"}, func(p properties) (bool, error) {
		switch p["info.state"] {
		case types.TaskInfoStateSuccess:
			result = p["info.result"]
			return true, nil
		case types.TaskInfoStateError:
			return true, taskError(p["info.error"])
		}
		return false, nil
	})
	return result, err
}

func taskError(fault types.AnyType) error {
	switch f := fault.(type) {
	case types.LocalizedMethodFault:
		return task.Error{LocalizedMethodFault: &f}
	case *types.LocalizedMethodFault:
		return task.Error{LocalizedMethodFault: f}
	}
	return fmt.Errorf("%w: the task failed without saying why", provider.ErrUnknown)
}
