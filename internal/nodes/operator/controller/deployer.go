// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/nodes/operator/apply"
	"github.com/outrigger/outrigger/internal/nodes/operator/rollout"
)

// Deployer brings the objects of a bundle out.
type Deployer struct {
	apply.Applier
	// Reads are the Secrets that the managers read through the API, for the next
	// [Deployer.Deploy].
	Reads []string
}

// Outcome is how far that is.
type Outcome struct {
	apply.Result
	// Waits are workloads that are not yet rolled out, and why.
	Waits []string
	// Unread are Secrets that managers read through the API and that are not there.
	Unread []string
}

// Settled reports whether nothing was written or removed just now, and nothing is on
// its way.
func (o Outcome) Settled() bool { return len(o.Changed)+len(o.Pruned)+len(o.Waits) == 0 }

// Warnings returns what somebody should correct, whether anything has failed or not.
func (o Outcome) Warnings() (all []string) {
	if len(o.Missing) > 0 {
		all = append(all, "pods cannot start: not there: "+strings.Join(o.Missing, "; "))
	}
	if len(o.Unread) > 0 {
		all = append(all, "the cloud controller manager reads what is not there: "+strings.Join(o.Unread, "; "))
	}
	return append(all, o.Contested...)
}

// also says with an error what may be the cause of it.
func (o Outcome) also(err error) error {
	if all := o.Warnings(); err != nil && len(all) > 0 {
		return fmt.Errorf("%w; %s", err, strings.Join(all, "; "))
	}
	return err
}

// Deploy applies the objects, removes what an earlier bundle had, and tells what
// is still on its way. An error may be [rollout.ErrStalled].
func (d *Deployer) Deploy(ctx context.Context, objects []client.Object) (Outcome, error) {
	r, err := d.Sync(ctx, objects)
	out := Outcome{Result: r}
	if err != nil {
		return out, out.also(fmt.Errorf("failed to sync operands: %w", err))
	}
	if out.Unread, err = d.unread(ctx, r.Missing); err != nil {
		return out, err
	}
	if len(r.Changed) > 0 {
		// The cache may still show the previous rollout, for instance that it stalled.
		return out, nil
	}
	out.Waits, err = rollout.Waits(ctx, d.Client, d.Client.Scheme(), objects)
	return out, out.also(err)
}

// unread returns the missing Secrets that pods do not lack as well.
func (d *Deployer) unread(ctx context.Context, missing []string) (all []string, err error) {
	for _, name := range d.Reads {
		key := client.ObjectKey{Namespace: d.Inventory.Namespace, Name: name}
		err := d.Client.Get(ctx, key, &corev1.Secret{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		named := func(m string) bool { return strings.HasPrefix(m, "Secret "+key.String()+",") }
		if err != nil && !slices.ContainsFunc(missing, named) {
			all = append(all, "Secret "+key.String())
		}
	}
	return all, nil
}

// Sum changes with the objects, and with all that is read by what they run.
func (d *Deployer) Sum(ctx context.Context, objects []client.Object) (string, error) {
	all, err := d.Applier.Sum(ctx, objects)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintln(h, all)
	for _, name := range d.Reads {
		var s corev1.Secret
		err := d.Client.Get(ctx, client.ObjectKey{Namespace: d.Inventory.Namespace, Name: name}, &s)
		if client.IgnoreNotFound(err) != nil {
			return "", err
		}
		for _, key := range slices.Sorted(maps.Keys(s.Data)) {
			fmt.Fprintf(h, "%q %q %q\n", name, key, s.Data[key])
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}
