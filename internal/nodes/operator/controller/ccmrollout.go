// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
	"github.com/outrigger/outrigger/internal/nodes/operator/daemon"
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
	c.Status.RelatedObjects = references(out.Objects)
	r.notes.absent.Store(c.Name, out.Missing)
	if errors.Is(err, rollout.ErrStalled) && a.given == nil && c.Status.LastGood != nil && differs(*c.Status.LastGood, a.wanted) {
		c.Status.Stalled = &a.wanted
		return pass{again: daemon.Again, stalled: err}, nil
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
