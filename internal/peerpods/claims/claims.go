// SPDX-License-Identifier: Apache-2.0

// Package claims is the one place for what nodes and controller must do alike
// to PeerPods: their names, finalizer, conditions, phases and patches.
//
// The node's adaptor uses [Claims]: Claim before it asks the cloud, Update as
// steps are done, Release when the instance is gone. The controller cleans up
// after nodes that never finish. This package does not link controller-runtime,
// so that the adaptor stays small.
package claims

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/provider"
)

// API is what [Claims] needs of a Kubernetes client. Errors are those of the
// API server, as package k8s.io/apimachinery/pkg/api/errors tells them apart.
type API interface {
	Get(ctx context.Context, namespace, name string) (*v1alpha1.PeerPod, error)
	Create(ctx context.Context, pp *v1alpha1.PeerPod) (*v1alpha1.PeerPod, error)
	// Patch sends a JSON merge patch; subresource is "" or "status".
	Patch(ctx context.Context, namespace, name, subresource string, patch []byte) (*v1alpha1.PeerPod, error)
	// Delete fails with a conflict when the object has another UID.
	Delete(ctx context.Context, namespace, name string, uid types.UID) error
}

// Claims is the node's side of PeerPods.
type Claims struct{ API API }

// Claim makes the PeerPod of a sandbox, or finds the one that an earlier try
// made. It must have succeeded before the cloud is asked for the instance
// (while the API server is unreachable the caller may go on and claim later:
// the controller's grace period covers that). If the pod is gone by now, the
// error is NotFound of the API.
func (c *Claims) Claim(ctx context.Context, claim Claim) (*v1alpha1.PeerPod, error) {
	pp, err := c.API.Create(ctx, New(claim))
	if errors.IsAlreadyExists(err) {
		pp, err = c.API.Get(ctx, claim.Namespace, Name(claim.PodName, claim.SandboxID))
	}
	if err != nil {
		return nil, fmt.Errorf("claim PeerPod %s/%s: %w", claim.Namespace, Name(claim.PodName, claim.SandboxID), err)
	}
	if pp.Spec.SandboxID != claim.SandboxID {
		return nil, fmt.Errorf("claim PeerPod %s/%s: %w: it is of sandbox %q; delete it", pp.Namespace, pp.Name, provider.ErrAlreadyExists, pp.Spec.SandboxID)
	}
	if pp.DeletionTimestamp != nil {
		return nil, fmt.Errorf("claim PeerPod %s/%s: %w: it is being deleted", pp.Namespace, pp.Name, provider.ErrUnavailable)
	}
	return pp, nil
}

// conflictTries bounds the races with the controller, which writes rarely.
const conflictTries = 5

// Update applies changes to pp and writes the result: at most once to the spec,
// once to the status, and nothing when nothing changed. It returns the updated
// object.
func (c *Claims) Update(ctx context.Context, pp *v1alpha1.PeerPod, changes ...Change) (*v1alpha1.PeerPod, error) {
	var err error
	for range conflictTries {
		var now *v1alpha1.PeerPod
		if now, err = c.update(ctx, pp.DeepCopy(), changes); err == nil {
			return now, nil
		}
		if !errors.IsConflict(err) {
			break
		}
		if pp, err = c.reread(ctx, pp); err != nil {
			break
		}
	}
	return nil, fmt.Errorf("update PeerPod %s/%s: %w", pp.Namespace, pp.Name, err)
}

// reread reads pp again; another object with its name counts as absent.
func (c *Claims) reread(ctx context.Context, pp *v1alpha1.PeerPod) (*v1alpha1.PeerPod, error) {
	now, err := c.API.Get(ctx, pp.Namespace, pp.Name)
	if err == nil && now.UID != pp.UID {
		return pp, errors.NewNotFound(v1alpha1.GroupVersion.WithResource(v1alpha1.Resource).GroupResource(), pp.Name)
	}
	if err != nil {
		return pp, err
	}
	return now, nil
}

func (c *Claims) update(ctx context.Context, pp *v1alpha1.PeerPod, changes []Change) (*v1alpha1.PeerPod, error) {
	patches, err := Diff(pp, changes...)
	if err != nil {
		return nil, err
	}
	if patches.Spec != nil {
		now, err := c.API.Patch(ctx, pp.Namespace, pp.Name, "", patches.Spec)
		if err != nil {
			return nil, err
		}
		// The first write made a new version of the object that the status was
		// decided from; nothing else has changed in it.
		status := withGeneration(pp.Status, pp.Generation, now.Generation)
		pp = now
		if patches, err = Diff(pp, func(pp *v1alpha1.PeerPod) { pp.Status = status }); err != nil {
			return nil, err
		}
	}
	if patches.Status == nil {
		return pp, nil
	}
	return c.API.Patch(ctx, pp.Namespace, pp.Name, "status", patches.Status)
}

// withGeneration returns the status as observed with another generation.
func withGeneration(status v1alpha1.PeerPodStatus, old, now int64) v1alpha1.PeerPodStatus {
	for i := range status.Conditions {
		if status.Conditions[i].ObservedGeneration == old {
			status.Conditions[i].ObservedGeneration = now
		}
	}
	return status
}

// Release deletes the PeerPod of an instance that is gone, or was never made:
// first the object, so that nobody puts the finalizer on again, then the
// finalizer. A missing object counts as released.
func (c *Claims) Release(ctx context.Context, pp *v1alpha1.PeerPod) error {
	err := c.release(ctx, pp)
	if err != nil && !errors.IsNotFound(err) {
		return fmt.Errorf("release PeerPod %s/%s: %w", pp.Namespace, pp.Name, err)
	}
	return nil
}

func (c *Claims) release(ctx context.Context, pp *v1alpha1.PeerPod) error {
	err := c.API.Delete(ctx, pp.Namespace, pp.Name, pp.UID)
	if errors.IsConflict(err) {
		return nil // another object has the name now
	}
	if err != nil {
		return err
	}
	for range conflictTries {
		now, err := c.reread(ctx, pp)
		if err != nil {
			return err
		}
		patch, err := WithoutFinalizer(now)
		if err != nil {
			return err
		}
		if _, err = c.API.Patch(ctx, pp.Namespace, pp.Name, "", patch); !errors.IsConflict(err) {
			return err
		}
	}
	return fmt.Errorf("too many conflicts with other writers: %w", provider.ErrUnavailable)
}

// Patches are the JSON merge patches (RFC 7386) that bring an object in the
// API up to date; nil where nothing changed. Spec, with the finalizers, and
// status are two writes since the API keeps them apart.
type Patches struct{ Spec, Status []byte }

// Diff applies changes to pp and returns what to write. The patches carry the
// resource version, so one that was decided from an old object is refused with
// a conflict.
func Diff(pp *v1alpha1.PeerPod, changes ...Change) (Patches, error) {
	old := pp.DeepCopy()
	for _, change := range changes {
		change(pp)
	}
	main := map[string]any{}
	meta := version(pp)
	if !slices.Equal(old.Finalizers, pp.Finalizers) {
		meta["finalizers"] = pp.Finalizers
		main["metadata"] = meta
	}
	if spec := specPatch(&old.Spec, &pp.Spec); len(spec) > 0 {
		main["metadata"], main["spec"] = meta, spec
	}
	var p Patches
	var err error
	if len(main) > 0 {
		p.Spec, err = json.Marshal(main)
	}
	if err == nil && !equality.Semantic.DeepEqual(old.Status, pp.Status) {
		p.Status, err = json.Marshal(map[string]any{"metadata": version(pp), "status": statusPatch(&pp.Status)})
	}
	return p, err
}

// specPatch has the fields of the spec that change in the life of a PeerPod.
func specPatch(old, now *v1alpha1.PeerPodSpec) map[string]any {
	patch := map[string]any{}
	if old.InstanceID != now.InstanceID {
		patch["instanceID"] = now.InstanceID
	}
	if old.PoolVM != now.PoolVM {
		patch["poolVM"] = now.PoolVM
	}
	if old.NodeName != now.NodeName {
		patch["nodeName"] = now.NodeName
	}
	if now.Pool != nil && !equality.Semantic.DeepEqual(old.Pool, now.Pool) {
		patch["pool"] = map[string]any{"claim": now.Pool.Claim}
	}
	return patch
}

// statusPatch sets removed fields to null: a merge patch keeps what it does not
// mention.
func statusPatch(s *v1alpha1.PeerPodStatus) map[string]any {
	return map[string]any{
		"phase": s.Phase, "conditions": s.Conditions, "instance": s.Instance,
		"steps": s.Steps, "lastError": s.LastError,
	}
}

func version(pp *v1alpha1.PeerPod) map[string]any {
	meta := map[string]any{"uid": pp.UID}
	if pp.ResourceVersion != "" {
		meta["resourceVersion"] = pp.ResourceVersion
	}
	return meta
}

// WithoutFinalizer returns the merge patch that removes our finalizer.
func WithoutFinalizer(pp *v1alpha1.PeerPod) ([]byte, error) {
	list := append([]string{}, pp.Finalizers...) // an empty one is [], not null
	list = slices.DeleteFunc(list, func(name string) bool { return name == Finalizer })
	meta := version(pp)
	meta["finalizers"] = list
	return json.Marshal(map[string]any{"metadata": meta})
}
