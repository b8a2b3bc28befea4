// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/internal/timeline"
	"github.com/outrigger/outrigger/provider/kit/keylock"
)

// syncWorkers write PeerPods at the same time.
const syncWorkers = 4

// tracker keeps the PeerPod of each sandbox of this node up to date. It is
// level-triggered: a change only says that a PeerPod may be out of date, and
// what is written depends on the sandbox's record alone.
type tracker struct {
	cluster  *Cluster
	api      *claims.REST
	peerPods claims.Claims
	queue    workqueue.TypedRateLimitingInterface[string]

	// writing is held, by sandbox id, for writing its PeerPod.
	writing keylock.Locks

	mu    sync.Mutex
	known map[string]*claim // by sandbox id
}

// claim is the state of one sandbox's PeerPod.
type claim struct {
	// The sandbox's lock in tracker.writing guards pp and lastError.

	// pp is the PeerPod as last seen; nil while there is none.
	pp *v1alpha1.PeerPod
	// lastError is the last error that was logged.
	lastError string

	// tracker.mu guards the fields from here to released.

	rec      adaptor.Record
	failed   *adaptor.Change // why the last step failed
	stuck    *adaptor.Change // why the removal does not go on
	guest    []timeline.Step // the steps of its start in the guest
	attested *adaptor.Change // what its key broker says of the VM
	outdated bool
	released bool
	// created is closed when the PeerPod exists.
	created     chan struct{}
	createdOnce sync.Once
}

func newClaims(c *Cluster, api *claims.REST) *tracker {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](c.opts.MinRetry, c.opts.MaxRetry)
	return &tracker{
		cluster: c, api: api, peerPods: claims.Claims{API: api},
		queue: workqueue.NewTypedRateLimitingQueue(limiter),
		known: map[string]*claim{},
	}
}

// observe notes a change and enqueues the write of the PeerPod.
func (c *tracker) observe(change adaptor.Change) {
	id := change.Sandbox.ID
	switch change.Kind {
	case adaptor.ChangeKept:
		if change.Sandbox.State == adaptor.StateReady {
			c.track(change.Sandbox)
		}
	case adaptor.ChangeDone:
		if c.update(id, func(cl *claim) { cl.rec = change.Sandbox }) && worthWriting[change.Step] {
			c.queue.Add(id)
		}
	case adaptor.ChangeFailed:
		if !interrupted(change.Err) && c.update(id, func(cl *claim) { cl.rec, cl.failed = change.Sandbox, &change }) {
			c.queue.Add(id)
		}
	case adaptor.ChangeTimeline:
		if c.cluster.opts.GuestSteps && c.update(id, func(cl *claim) { cl.guest = change.Timeline.Summary() }) {
			c.queue.Add(id)
		}
	case adaptor.ChangeAttested:
		if c.update(id, func(cl *claim) { cl.attested = &change }) {
			c.queue.Add(id)
		}
	case adaptor.ChangeStuck:
		if !errors.Is(change.Err, errRelease) && c.update(id, func(cl *claim) { cl.rec, cl.stuck = change.Sandbox, &change }) {
			c.queue.Add(id)
		}
	}
}

// worthWriting holds the steps after which a PeerPod is written at once. The other
// steps are short and are written together with the next of these, which limits
// the writes per pod.
var worthWriting = map[string]bool{"create-instance": true, "ready": true}

func interrupted(err error) bool {
	var step *adaptor.StepError
	return errors.As(err, &step) && step.Interrupted()
}

// track enqueues the creation of a sandbox's PeerPod.
func (c *tracker) track(rec adaptor.Record) *claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.known[rec.ID]
	if cl == nil {
		cl = &claim{created: make(chan struct{})}
		c.known[rec.ID] = cl
	}
	cl.rec, cl.outdated = rec, true
	c.queue.Add(rec.ID)
	return cl
}

// update changes the claim of a sandbox. It returns false if there is no claim,
// or if it has been released.
func (c *tracker) update(id string, change func(*claim)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.known[id]
	if cl == nil || cl.released {
		return false
	}
	change(cl)
	cl.outdated = true
	return true
}

func (c *tracker) backlog() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, cl := range c.known {
		if cl.outdated {
			n++
		}
	}
	return n
}

// run writes PeerPods until ctx ends.
func (c *tracker) run(ctx context.Context) {
	var workers sync.WaitGroup
	for range syncWorkers {
		workers.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	c.queue.ShutDown()
	workers.Wait()
}

func (c *tracker) next(ctx context.Context) bool {
	id, over := c.queue.Get()
	if over {
		return false
	}
	defer c.queue.Done(id)
	if err := c.sync(ctx, id); err != nil && ctx.Err() == nil {
		c.queue.AddRateLimited(id)
		return true
	}
	c.queue.Forget(id)
	return true
}

// sync brings one PeerPod up to date.
func (c *tracker) sync(ctx context.Context, id string) error {
	c.mu.Lock()
	cl := c.known[id]
	c.mu.Unlock()
	if cl == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	unlock, err := c.writing.Take(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	err = c.cluster.noteReachable(c.write(ctx, cl))
	c.logOnce(cl, err)
	return err
}

func (c *tracker) write(ctx context.Context, cl *claim) error {
	c.mu.Lock()
	rec, failed, stuck, guest, attested, released := cl.rec, cl.failed, cl.stuck, cl.guest, cl.attested, cl.released
	cl.outdated = !released
	c.mu.Unlock()
	if released {
		return nil
	}
	if cl.pp == nil {
		if err := c.create(ctx, cl, rec); err != nil {
			return err
		}
	}
	list := changes(&rec, failed, stuck, guest)
	if attested != nil {
		list = append(list, claims.Attested(attested.Attestation, attested.Err))
	}
	pp, err := c.peerPods.Update(ctx, cl.pp, list...)
	if apierrors.IsNotFound(err) {
		cl.pp = nil // somebody deleted it; it is created again
	}
	if err != nil {
		return err
	}
	cl.pp = pp
	c.mu.Lock()
	defer c.mu.Unlock()
	cl.outdated = cl.rec.Step != rec.Step || cl.failed != failed || cl.stuck != stuck || cl.attested != attested || len(cl.guest) != len(guest) // it may have changed since
	return nil
}

func (c *tracker) create(ctx context.Context, cl *claim, rec adaptor.Record) error {
	uid, err := c.cluster.podUID(ctx, &rec)
	if err != nil {
		return err
	}
	o := &c.cluster.opts
	of := claimOf(&rec, o)
	of.PodUID, of.InitdataDigest = types.UID(uid), rec.InitdataDigest
	cl.pp, err = c.peerPods.Claim(ctx, of)
	if err != nil {
		cl.pp = nil
		return err
	}
	cl.createdOnce.Do(func() { close(cl.created) })
	return nil
}

func claimOf(rec *adaptor.Record, o *Options) claims.Claim {
	return claims.Claim{
		Provider: o.Provider, Cluster: o.ClusterID, Node: o.NodeName,
		SandboxID: rec.ID, Namespace: rec.PodNamespace, PodName: rec.PodName,
	}
}

// logOnce logs a repeated error only once: otherwise it would be logged every few
// seconds while the API server is unreachable or keeps refusing.
func (c *tracker) logOnce(cl *claim, err error) {
	if err == nil {
		cl.lastError = ""
		return
	}
	if unreachable(err) || cl.lastError == err.Error() {
		return
	}
	cl.lastError = err.Error()
	c.mu.Lock()
	rec := cl.rec
	c.mu.Unlock()
	c.cluster.opts.Log.Warn("the sandbox's PeerPod cannot be written; retrying", append(logAttrs(&rec), "error", err)...)
	c.cluster.events.warn(&rec, reasonClaimFailed, "the instance could not be noted in a PeerPod: "+err.Error()+"; see whether the CRD peerpods.confidentialcontainers.org is installed and the adaptor's ClusterRole bound")
}

// podUID returns the UID of a sandbox's pod; empty when the cluster has no
// such pod, as when it was made by hand through the runtime.
func (c *Cluster) podUID(ctx context.Context, rec *adaptor.Record) (string, error) {
	if rec.PodUID != "" {
		return rec.PodUID, nil
	}
	p, err := c.lookup(ctx, rec.PodNamespace, rec.PodName)
	if noSuchPod(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look up pod %s/%s: %w", rec.PodNamespace, rec.PodName, err)
	}
	return string(p.Metadata.UID), nil
}

// changes returns what a sandbox's PeerPod should hold. It always includes the
// finalizer: the object may have been replaced since it was last read.
func changes(rec *adaptor.Record, failed, stuck *adaptor.Change, guest []timeline.Step) []claims.Change {
	list := []claims.Change{claims.Guarded, claims.TookFrom(rec.PoolVM)}
	switch {
	case rec.InstanceID != "":
		list = append(list, claims.Created(instanceOf(rec)))
	case failed == nil && stuck == nil:
		return list // so far the PeerPod only has to exist
	default:
		list = append(list, claims.Claimed)
	}
	for _, step := range slices.Concat(rec.Steps(), guest) {
		list = append(list, claims.Step(step))
	}
	if rec.State == adaptor.StateReady {
		list = append(list, claims.Ready)
	}
	if failed != nil {
		list = append(list, claims.Failed(failed.Step, failed.Err, failed.At))
	}
	if stuck != nil {
		list = append(list, claims.DeletionFailed(stuck.Err, stuck.At))
	}
	return list
}

func instanceOf(rec *adaptor.Record) v1alpha1.Instance {
	instance := v1alpha1.Instance{ID: rec.InstanceID, Name: rec.InstanceName, Type: cmp.Or(rec.InstanceType, rec.Spec.InstanceType), Zone: rec.Zone}
	for _, addr := range rec.Addresses {
		instance.Addresses = append(instance.Addresses, addr.String())
	}
	return instance
}

// Claim implements [adaptor.Cluster].
func (c *Cluster) Claim(ctx context.Context, rec adaptor.Record) {
	cl := c.claims.track(rec)
	ctx, cancel := c.withClaimTimeout(ctx)
	defer cancel()
	select {
	case <-cl.created:
	case <-ctx.Done():
		c.opts.Log.Warn("the sandbox's instance is created before its PeerPod, which follows as soon as the API server accepts it", logAttrs(&rec)...)
	}
}

func logAttrs(rec *adaptor.Record) []any {
	return []any{slog.String("sandbox", rec.ID), slog.String("pod", rec.PodName), slog.String("namespace", rec.PodNamespace)}
}

// errRelease marks errors that the pod's owner can do nothing about.
var errRelease = errors.New("release of the PeerPod")

// Release implements [adaptor.Cluster].
func (c *Cluster) Release(ctx context.Context, rec adaptor.Record) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := c.noteReachable(c.claims.release(ctx, &rec)); err != nil {
		return fmt.Errorf("%w: %w", errRelease, err)
	}
	return nil
}

func (c *tracker) release(ctx context.Context, rec *adaptor.Record) error {
	c.mu.Lock()
	cl := c.known[rec.ID]
	if cl == nil { // of an earlier process
		cl = &claim{created: make(chan struct{}), rec: *rec}
		c.known[rec.ID] = cl
	}
	cl.released = true // from here on nobody creates the PeerPod again
	c.mu.Unlock()
	unlock, err := c.writing.Take(ctx, rec.ID)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.dropVM(ctx, rec); err != nil {
		return err
	}
	pp, err := c.find(ctx, cl, rec)
	if err != nil {
		return err
	}
	if pp != nil {
		if err := c.peerPods.Release(ctx, pp); err != nil {
			return err
		}
	}
	c.mu.Lock()
	delete(c.known, rec.ID)
	c.mu.Unlock()
	return nil
}

// find returns the sandbox's PeerPod; nil when there is none.
func (c *tracker) find(ctx context.Context, cl *claim, rec *adaptor.Record) (*v1alpha1.PeerPod, error) {
	if cl.pp != nil {
		return cl.pp, nil
	}
	pp, err := c.api.Get(ctx, rec.PodNamespace, claims.Name(rec.PodName, rec.ID))
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case pp.Spec.SandboxID != rec.ID:
		return nil, nil // it belongs to another sandbox
	}
	return pp, nil
}
