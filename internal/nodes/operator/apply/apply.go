// SPDX-License-Identifier: Apache-2.0

// Package apply makes the objects of a cluster equal to those of a bundle, and
// removes what left the bundle.
//
// An object's content, which is everything but its metadata and status, is
// replaced as a whole: what others put into it goes. Its labels and annotations
// are merged: those of others stay. An object that is as it should be is not
// written. To know that without asking the API server to try, each object
// carries two sums, in annotations: of what the bundle wanted, and of what the
// API server made of that, defaults included.
package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/controllers"
)

// Annotations of applied objects. The first two are those of OpenShift's library, which
// its tools know.
const (
	ConfigHashAnnotation = "operator.openshift.io/config-hash"
	SpecHashAnnotation   = "operator.openshift.io/spec-hash"
	// GenerationAnnotation is the generation that the last write of a workload made, in
	// hexadecimal digits.
	GenerationAnnotation = "operator.openshift.io/generation"
	// MadeHashAnnotation is a hash of the object as the API server stores it.
	MadeHashAnnotation = "ccm.outrigger.dev/made-hash"
	// OwnerAnnotation names the inventory in which the object is listed. Nothing
	// without it is ever removed.
	OwnerAnnotation = "ccm.outrigger.dev/owner"
	// AdoptAnnotation with the value Allow marks an object of others that may be taken
	// over.
	AdoptAnnotation = "ccm.outrigger.dev/adopt"
	Allow           = "allow"
)

// Reasons of the Events about applied objects.
const (
	ReasonCreated         = "ResourceCreateSuccess"
	ReasonCreateFailed    = "ResourceCreateFailed"
	ReasonUpdated         = "ResourceUpdateSuccess"
	ReasonUpdateFailed    = "ResourceUpdateFailed"
	ReasonApplyFailed     = "ResourceCreateOrUpdateFailed"
	ReasonRecreating      = "ResourceRecreating"
	ReasonRecreated       = "ResourceRecreateSuccess"
	ReasonDeleteFailed    = "ResourceDeleteFailed"
	ReasonConfigMissing   = "ConfigurationCheckFailed"
	ReasonForeign         = "ResourceOfOthers"
	ReasonPruned          = "ResourcePruned"
	actionApply, actPrune = "Apply", "Prune"
)

// Applier applies the objects of one bundle at a time. It is not for use by
// several goroutines at once.
type Applier struct {
	// Client may read from a cache. If it returns an old object the write fails with a
	// conflict, and the next pass repeats it.
	Client client.Client
	Events *controllers.Recorder
	// Inventory is the ConfigMap that lists the applied objects.
	Inventory client.ObjectKey
	// Manager is the name of the field manager of our writes.
	Manager string
	// Adopts reports whether an object of others may be taken over without
	// AdoptAnnotation; nil means none.
	Adopts func(existing client.Object) bool
	// Generations makes Sync write GenerationAnnotation. OpenShift's own operator compares it
	// with the workload's generation and overwrites the workload for ever if they differ.
	Generations bool
	// Now is the time; nil is time.Now.
	Now func() time.Time

	// own holds the data of the ConfigMaps of this pass, which a cache may not have yet.
	own map[client.ObjectKey]map[string]string
	// conflicts holds the history of writes of each object.
	conflicts map[Ref]*conflict
}

// Result is the outcome of a pass.
type Result struct {
	// Objects are the objects of the bundle, in its order.
	Objects []Ref
	// Changed are the objects that were written, Pruned those that were removed.
	Changed, Pruned []Ref
	// Missing are ConfigMaps and Secrets that pods need and that do not exist,
	// such as "Secret openshift-x/credentials, wanted by Deployment y".
	Missing []string
	// Contested says which objects another manager keeps changing back, with the field
	// and the manager, if known. They are written with growing backoff.
	Contested []string
	// Again is the time until the next of them is written again; 0 if there is none.
	Again time.Duration
}

// Sync makes the cluster's objects equal to objects and removes those of an earlier
// bundle. It tries all of them and joins the errors; if there is any it removes
// nothing. It does not make Namespaces. It does not change objects of others, which is
// an error unless they are accounts: see [Applier.Adopts].
func (a *Applier) Sync(ctx context.Context, objects []client.Object) (Result, error) {
	desired, err := a.prepare(objects)
	if err != nil {
		return Result{}, err
	}
	r := Result{Objects: refs(desired)}
	listed, err := a.inventory(ctx)
	if err != nil {
		return r, err
	}
	before := listed.list
	own, failed := a.admit(ctx, before, desired)
	if err := a.record(ctx, listed, refs(own)); err != nil {
		return r, err
	}
	for _, d := range own {
		err := a.applyOne(ctx, d, &r)
		if err == nil {
			continue
		}
		ref := refOf(d.object)
		failed = append(failed, fmt.Errorf("%s: %w", ref, err))
		if apierrors.IsAlreadyExists(err) && !slices.ContainsFunc(before, ref.same) {
			// Somebody else made it just before us: listed, it would be taken for ours.
			err := a.note(ctx, listed, slices.DeleteFunc(slices.Clone(listed.list), ref.same))
			if !apierrors.IsConflict(err) { // else whoever wrote the list tries again
				failed = append(failed, err)
			}
		}
	}
	r.Contested, r.Again = a.contested(own)
	if err := errors.Join(failed...); err != nil {
		return r, err
	}
	r.Pruned, err = a.prune(ctx, listed, refs(own))
	return r, err
}

type item struct {
	object *unstructured.Unstructured
	kind   kind
}

func (a *Applier) prepare(objects []client.Object) ([]item, error) {
	var failed []error
	desired := make([]item, 0, len(objects))
	a.own = map[client.ObjectKey]map[string]string{}
	for _, o := range objects {
		u, k, err := toUnstructured(o, a.Client.Scheme())
		if err != nil {
			failed = append(failed, err)
			continue
		}
		if u.GetKind() == "ConfigMap" {
			a.own[client.ObjectKeyFromObject(u)], _, _ = unstructured.NestedStringMap(u.Object, "data")
		}
		annotate(u, OwnerAnnotation, a.Inventory.String())
		desired = append(desired, item{u, k})
	}
	return desired, errors.Join(failed...)
}

// applyOne applies one object. ConfigMaps and Secrets that its pods need and that do not
// exist are in the result, and in a warning.
func (a *Applier) applyOne(ctx context.Context, d item, r *Result) error {
	if d.kind.pods {
		missing, err := a.addConfigHash(ctx, d.object)
		if err == nil && len(missing) > 0 {
			err = a.keepConfigHash(ctx, d.object)
		}
		if err != nil {
			return err
		}
		if len(missing) == 0 {
			a.Events.Clear(d.object, ReasonConfigMissing)
		} else {
			a.warn(d.object, ReasonConfigMissing, "not there: "+strings.Join(missing, ", "))
		}
		for _, m := range missing {
			r.Missing = append(r.Missing, fmt.Sprintf("%s, wanted by %s %s", m, d.object.GetKind(), d.object.GetName()))
		}
	}
	annotate(d.object, SpecHashAnnotation, wantedHash(d.object))
	changed := false
	// Controllers write status at any time, and a cache may be behind.
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() (err error) {
		changed, err = a.reconcile(ctx, d)
		return err
	})
	if changed {
		r.Changed = append(r.Changed, refOf(d.object))
	}
	if err == nil {
		a.Events.Clear(d.object, ReasonApplyFailed, ReasonCreateFailed, ReasonUpdateFailed, ReasonDeleteFailed)
	}
	return err
}

func (a *Applier) reconcile(ctx context.Context, d item) (changed bool, err error) {
	existing, err := a.existing(ctx, d.object)
	switch {
	case err != nil:
		a.warn(d.object, ReasonApplyFailed, err.Error())
		return false, err
	case existing == nil:
		return a.create(ctx, d)
	case existing.GetDeletionTimestamp() != nil:
		return false, errFinalizers(existing)
	case d.same(existing):
		return false, nil
	case a.backsOff(ctx, d, existing):
		return false, nil
	case d.kind.replaced(existing, d.object):
		return a.recreate(ctx, d, existing)
	default:
		return a.update(ctx, d, existing)
	}
}

// existing returns the cluster's object of that kind and name, or nil.
func (a *Applier) existing(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	is := &unstructured.Unstructured{}
	is.SetGroupVersionKind(o.GroupVersionKind())
	err := a.Client.Get(ctx, client.ObjectKeyFromObject(o), is)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return is, err
}

func (d item) same(existing *unstructured.Unstructured) bool {
	if !within(d.object.GetLabels(), existing.GetLabels()) || !within(d.object.GetAnnotations(), existing.GetAnnotations()) {
		return false
	}
	return d.kind.createOnly || existing.GetAnnotations()[MadeHashAnnotation] == d.kind.made(existing, d.object)
}

func within(part, whole map[string]string) bool {
	for key, value := range part {
		if had, has := whole[key]; !has || had != value {
			return false
		}
	}
	return true
}

// dryRun returns what has to be written, given the existing object, which may be nil, and
// what the API server would make of that.
func (a *Applier) dryRun(ctx context.Context, d item, existing *unstructured.Unstructured) (next, trial *unstructured.Unstructured, err error) {
	switch {
	case existing == nil:
		next, trial = d.object.DeepCopy(), d.object.DeepCopy()
		err = a.Client.Create(ctx, trial, client.DryRunAll, client.FieldOwner(a.Manager))
	case d.kind.replaced(existing, d.object):
		next, trial = d.object.DeepCopy(), d.object.DeepCopy()
		// The API server takes another of this name only once the first is gone. Names have
		// at most 253 characters.
		const suffix = "-dry-run"
		trial.SetName(d.object.GetName()[:min(len(d.object.GetName()), 253-len(suffix))] + suffix)
		err = a.Client.Create(ctx, trial, client.DryRunAll, client.FieldOwner(a.Manager))
		trial.SetName(d.object.GetName())
	default:
		next = d.merge(existing)
		trial = next.DeepCopy()
		err = a.Client.Update(ctx, trial, client.DryRunAll, client.FieldOwner(a.Manager))
	}
	return next, trial, err
}

func (a *Applier) create(ctx context.Context, d item) (bool, error) {
	next, trial, err := a.dryRun(ctx, d, nil)
	if err == nil {
		a.stamp(next, trial, d)
		err = a.Client.Create(ctx, next, client.FieldOwner(a.Manager))
	}
	if err != nil {
		a.warn(d.object, ReasonCreateFailed, err.Error())
		return false, err
	}
	a.emit(next, ReasonCreated, "created")
	return true, nil
}

func (a *Applier) update(ctx context.Context, d item, existing *unstructured.Unstructured) (bool, error) {
	next, trial := d.rolled(existing)
	var err error
	if trial == nil {
		next, trial, err = a.dryRun(ctx, d, existing)
	}
	if err == nil {
		a.stamp(next, trial, d)
		err = a.Client.Update(ctx, next, client.FieldOwner(a.Manager))
	}
	if err != nil {
		if !apierrors.IsConflict(err) {
			a.warn(d.object, ReasonUpdateFailed, err.Error())
		}
		return false, err
	}
	a.recordWrite(d, trial, next)
	a.emit(next, ReasonUpdated, "made equal to the bundle")
	return next.GetResourceVersion() != existing.GetResourceVersion(), nil
}

// rolled returns what dryRun returns, without a request, where only the sum of what pods read has changed since the
// last write, and nobody has changed the object: the API server makes nothing else of another sum. Otherwise trial
// is nil; so it is in the next pass too, if an admission webhook did make something else of it.
func (d item) rolled(existing *unstructured.Unstructured) (next, trial *unstructured.Unstructured) {
	was, has, _ := unstructured.NestedString(existing.Object, hashPath...)
	wanted, wants, _ := unstructured.NestedString(d.object.Object, hashPath...)
	marks, before := existing.GetAnnotations(), d.object.DeepCopy()
	if !d.kind.pods || !has || !wants || was == wanted || marks[MadeHashAnnotation] != d.kind.made(existing, d.object) {
		return nil, nil
	}
	if unstructured.SetNestedField(before.Object, was, hashPath...) != nil || marks[SpecHashAnnotation] != wantedHash(before) {
		return nil, nil
	}
	trial = existing.DeepCopy()
	trial.SetGeneration(existing.GetGeneration() + 1)
	if unstructured.SetNestedField(trial.Object, wanted, hashPath...) != nil {
		return nil, nil
	}
	return d.merge(existing), trial
}

// stamp annotates an object with the hash of what a dry run returned.
func (a *Applier) stamp(next, trial *unstructured.Unstructured, d item) {
	annotate(next, MadeHashAnnotation, d.kind.made(trial, d.object))
	if a.Generations && d.kind.pods {
		annotate(next, GenerationAnnotation, strconv.FormatInt(trial.GetGeneration(), 16))
	}
}

func (d item) merge(existing *unstructured.Unstructured) *unstructured.Unstructured {
	next := existing.DeepCopy()
	next.SetLabels(labels.Merge(existing.GetLabels(), d.object.GetLabels()))
	next.SetAnnotations(labels.Merge(existing.GetAnnotations(), d.object.GetAnnotations()))
	if d.kind.createOnly {
		return next
	}
	for field := range content(existing) {
		delete(next.Object, field)
	}
	maps.Copy(next.Object, runtime.DeepCopyJSON(content(d.object)))
	for _, path := range d.kind.filled(d.object) {
		if value, has, _ := unstructured.NestedFieldCopy(existing.Object, path...); has {
			unstructured.SetNestedField(next.Object, value, path...)
		}
	}
	return next
}

func annotate(o client.Object, key, value string) {
	o.SetAnnotations(labels.Merge(o.GetAnnotations(), map[string]string{key: value}))
}

func (a *Applier) emit(o runtime.Object, reason, note string) {
	a.Events.Emit(o, nil, corev1.EventTypeNormal, reason, actionApply, note)
}

func (a *Applier) warn(o *unstructured.Unstructured, reason, note string) {
	a.Events.Warn(o, reason, actionApply, note)
}
