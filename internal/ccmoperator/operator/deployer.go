// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/ccmoperator/apply"
	"github.com/outrigger/outrigger/internal/ccmoperator/rollout"
)

// Deployer brings the objects of a bundle out.
type Deployer struct {
	apply.Applier
}

// Outcome is how far that is.
type Outcome struct {
	apply.Result
	// Waits are workloads that are not yet brought out, and why.
	Waits []string
}

// Moved tells whether anything was written or removed just now.
func (o Outcome) Moved() bool { return len(o.Changed)+len(o.Pruned) > 0 }

// Deploy applies the objects, removes what an earlier bundle had, and tells what
// is still on its way. An error may be [rollout.ErrStalled].
func (d *Deployer) Deploy(ctx context.Context, objects []client.Object) (Outcome, error) {
	r, err := d.Sync(ctx, objects)
	if err != nil {
		return Outcome{Result: r}, fmt.Errorf("failed to sync operands: %w", err)
	}
	if len(r.Changed) > 0 {
		// What a cache knows of rollouts may be from before: above all that the
		// last one stalled.
		return Outcome{Result: r}, nil
	}
	waits, err := rollout.Waits(ctx, d.Client, d.Client.Scheme(), objects)
	return Outcome{r, waits}, err
}
