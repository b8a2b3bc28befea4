// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
	"github.com/outrigger/outrigger/internal/nodes/operator/apply"
	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
	"github.com/outrigger/outrigger/internal/nodes/operator/failure"
	"github.com/outrigger/outrigger/internal/nodes/operator/rollout"
)

// attempt is what is deployed in a pass.
type attempt struct {
	deployer *Deployer
	wanted   ccmv1alpha1.Rollout
	// objects are those that are wanted or, if given is an error, those that were
	// rolled out last: what is wanted has stalled.
	objects  []client.Object
	warnings []string
	given    error
}

// deploy rolls out what is wanted. A rollout that has stalled is not retried, but
// rolled back to the last good one. Each step is in the status before the next one,
// so that another process can continue.
func (r *ccmReconciler) deploy(ctx context.Context, c *ccmv1alpha1.CloudControllerManager, b *bundle.Bundle, wanted ccmv1alpha1.Rollout) (pass, error) {
	a := &attempt{deployer: r.memory(c.Name).deployer, wanted: wanted}
	a.deployer.Reads = b.Secrets
	if err := r.prepare(ctx, c, b, a); err != nil {
		return pass{}, r.noteMissing(c, err)
	}
	out, err := a.deployer.Deploy(ctx, a.objects)
	c.Status.RelatedObjects = nil
	for _, o := range out.Objects {
		c.Status.RelatedObjects = append(c.Status.RelatedObjects, ccmv1alpha1.ObjectReference{Group: o.Group, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name})
	}
	r.notes.absent.Store(c.Name, out.Missing)
	if errors.Is(err, rollout.ErrStalled) && a.given == nil && c.Status.LastGood != nil && differs(*c.Status.LastGood, a.wanted) {
		c.Status.Stalled = &a.wanted
		return pass{again: failure.Again, stalled: err}, nil
	}
	if err != nil {
		return pass{}, err
	}
	return r.progress(ctx, c, a, out)
}

// prepare returns what is to be deployed.
func (r *ccmReconciler) prepare(ctx context.Context, c *ccmv1alpha1.CloudControllerManager, b *bundle.Bundle, a *attempt) (err error) {
	if a.objects, a.warnings, err = r.objects(ctx, c, b, a.wanted); err != nil {
		return err
	}
	if a.wanted.Sum, err = a.deployer.Sum(ctx, a.objects); err != nil {
		return err
	}
	s, good := c.Status.Stalled, c.Status.LastGood
	if s == nil || good == nil || !equality.Semantic.DeepEqual(*s, a.wanted) {
		c.Status.Stalled = nil
		return nil
	}
	a.given = fmt.Errorf("%w: %s; back to %s until something of it changes, or the version of Kubernetes", rollout.ErrStalled, describe(a.wanted), describe(*good))
	a.objects, a.warnings, err = r.former(ctx, c, b)
	return err
}

// progress returns how far the rollout is. A finished rollout, unless it is a rollback,
// is what the next one that stalls goes back to.
func (r *ccmReconciler) progress(ctx context.Context, c *ccmv1alpha1.CloudControllerManager, a *attempt, out Outcome) (pass, error) {
	p := pass{
		settled: out.Settled(), stalled: a.given, again: out.Again,
		warning: strings.Join(append(a.warnings, out.Warnings()...), "; "), waits: strings.Join(out.Waits, "; "),
	}
	switch {
	case !p.settled:
		p.again = r.o.Requeue
	case a.given != nil:
		c.Status.Version = c.Status.LastGood.Version
	default:
		if err := r.keep(ctx, a.deployer, c.Name, a.wanted.Sum, a.objects); err != nil {
			return pass{}, err
		}
		c.Status.LastGood, c.Status.Version = &a.wanted, a.wanted.Version
	}
	return p, nil
}

// differs reports whether a rollback would change anything.
func differs(good, wanted ccmv1alpha1.Rollout) bool {
	if good.Sum == "" {
		return !maps.Equal(good.Images, wanted.Images)
	}
	return good.Sum != wanted.Sum
}

func describe(r ccmv1alpha1.Rollout) string {
	what := fmt.Sprintf("images %v", r.Images)
	if r.Version != "" {
		what = "version " + r.Version
	}
	return fmt.Sprintf("generation %d, %s", r.Generation, what)
}

// keptPrefix begins the name of the ConfigMap that has what was rolled out last for
// a CloudControllerManager, before its name.
const keptPrefix = "ccm-operator-last-good-of-"

// Keys of it: the objects, and the sum of the rollout that they are of.
const (
	keptObjects = "objects.json.gz"
	keptSum     = "sum"
)

// keep records what was rolled out, unless it is recorded already.
func (r *ccmReconciler) keep(ctx context.Context, d *Deployer, name, sum string, objects []client.Object) error {
	kept := r.kept(name)
	_, err := controllerutil.CreateOrUpdate(ctx, r.client, kept, func() error {
		if kept.Data[keptSum] == sum {
			return nil
		}
		text, err := d.Encode(objects)
		if err != nil {
			return err
		}
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, err = z.Write(text)
		if err := errors.Join(err, z.Close()); err != nil {
			return err
		}
		kept.Data, kept.BinaryData = map[string]string{keptSum: sum}, map[string][]byte{keptObjects: packed.Bytes()}
		return nil
	})
	if err != nil {
		return fmt.Errorf("keep what was rolled out, for when a rollout stalls: ConfigMap %s: %w", client.ObjectKeyFromObject(kept), err)
	}
	return nil
}

// kept returns the ConfigMap, without its content.
func (r *ccmReconciler) kept(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.o.Namespace, Name: keptPrefix + name}}
}

// former returns the objects that were rolled out last. If they were not kept, it
// renders them again with the images that they had.
func (r *ccmReconciler) former(ctx context.Context, c *ccmv1alpha1.CloudControllerManager, b *bundle.Bundle) ([]client.Object, []string, error) {
	kept := r.kept(c.Name)
	if err := r.client.Get(ctx, client.ObjectKeyFromObject(kept), kept); client.IgnoreNotFound(err) != nil {
		return nil, nil, err
	}
	good := c.Status.LastGood
	if good.Sum == "" || kept.Data[keptSum] != good.Sum {
		return r.objects(ctx, c, b, ccmv1alpha1.Rollout{Images: good.Images})
	}
	objects, err := unpack(kept.BinaryData[keptObjects])
	if err != nil {
		return nil, nil, fmt.Errorf("what was rolled out last cannot be read, ConfigMap %s, key %s: %w: delete the ConfigMap, and its images alone go back", client.ObjectKeyFromObject(kept), keptObjects, err)
	}
	return objects, nil, nil
}

func unpack(packed []byte) ([]client.Object, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return nil, err
	}
	return apply.Decode(text)
}

func (r *ccmReconciler) forgetKept(ctx context.Context, name string) error {
	return client.IgnoreNotFound(r.client.Delete(ctx, r.kept(name)))
}
