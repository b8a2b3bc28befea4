// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

// object is one of our kinds that has a status with conditions.
type object interface {
	client.Object
	ContractStatus() *infrav1.Status
}

// patcher holds an object and its changes. Only differences are written. A
// write fails with a conflict if somebody else wrote since the object was read.
type patcher[T object] struct {
	client  client.Client
	stored  T // as it is in the API server
	desired T // with our changes
}

// saveIdentity writes metadata and spec.
func (d *patcher[T]) saveIdentity(ctx context.Context) error {
	main, _, err := difference(d.stored, d.desired)
	if err != nil || len(main) == 0 {
		return err
	}
	written := d.desired.DeepCopyObject().(T)
	if err := d.client.Patch(ctx, written, guarded(main, d.stored.GetResourceVersion())); err != nil {
		return fmt.Errorf("write %T: %w", d.desired, err)
	}
	d.desired.SetResourceVersion(written.GetResourceVersion())
	d.desired.SetGeneration(written.GetGeneration())
	status := reflect.ValueOf(d.stored).Elem().FieldByName("Status") // which was not written
	d.stored = d.desired.DeepCopyObject().(T)
	reflect.ValueOf(d.stored).Elem().FieldByName("Status").Set(status)
	return nil
}

// save writes metadata and spec, then the status with the generation that the first
// write made.
func (d *patcher[T]) save(ctx context.Context) error {
	if err := d.saveIdentity(ctx); err != nil {
		return err
	}
	status, generation := d.desired.ContractStatus(), d.desired.GetGeneration()
	status.ObservedGeneration = generation
	for i := range status.Conditions {
		status.Conditions[i].ObservedGeneration = generation
	}
	return d.saveStatus(ctx)
}

func (d *patcher[T]) saveStatus(ctx context.Context) error {
	_, status, err := difference(d.stored, d.desired)
	if err != nil || status == nil {
		return err
	}
	written := d.desired.DeepCopyObject().(T)
	patch := guarded(map[string]any{"status": status}, d.stored.GetResourceVersion())
	if err := d.client.Status().Patch(ctx, written, patch); err != nil {
		return fmt.Errorf("write the status of %T: %w", d.desired, err)
	}
	d.desired.SetResourceVersion(written.GetResourceVersion())
	d.stored = d.desired.DeepCopyObject().(T)
	return nil
}

// difference returns the merge patch from stored to now in two parts. status
// is nil when there is nothing to write.
func difference(stored, desired client.Object) (main map[string]any, status any, err error) {
	data, err := client.MergeFrom(stored).Data(desired)
	if err != nil {
		return nil, nil, fmt.Errorf("compare %T: %w", desired, err)
	}
	if err := json.Unmarshal(data, &main); err != nil {
		return nil, nil, fmt.Errorf("compare %T: %w", desired, err)
	}
	status = main["status"]
	delete(main, "status")
	return main, status, nil
}

func guarded(patch map[string]any, version string) client.Patch {
	metadata, _ := patch["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		patch["metadata"] = metadata
	}
	metadata["resourceVersion"] = version
	data, err := json.Marshal(patch)
	if err != nil {
		panic(err) // it came from JSON
	}
	return client.RawPatch(types.MergePatchType, data)
}

// pause records that the object is paused, and changes nothing else.
func (d *patcher[T]) pause(ctx context.Context) error {
	setCondition(d.desired, metav1.Condition{
		Type: clusterv1.PausedCondition, Status: metav1.ConditionTrue, Reason: clusterv1.PausedReason,
		ObservedGeneration: d.desired.GetGeneration(),
	})
	return d.saveStatus(ctx)
}
