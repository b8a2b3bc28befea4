// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
)

// syncWorkers write PeerPods at the same time.
const syncWorkers = 4

// nodeLister lists the PeerPods of a node.
type nodeLister interface {
	OfNode(ctx context.Context, node string) ([]v1alpha1.PeerPod, error)
}

// tracker keeps the PeerPods of the node's sandboxes as the sandboxes are. It
// is level-triggered: a change says only that a PeerPod may be out of date, and
// what is written is decided from the sandbox's record.
type tracker struct {
	cluster  *Cluster
	peerPods *claims.Claims
	lister   nodeLister
	queue    workqueue.TypedRateLimitingInterface[string]

	mu    sync.Mutex
	known map[string]*claim // by sandbox id
}

// claim is one sandbox's. Fields below mu of tracker are guarded by that.
type claim struct {
	// working is held by whoever writes the PeerPod. Capacity 1.
	working chan struct{}
	// pp is the PeerPod as last seen; nil while there is none. It belongs to
	// the holder of working.
	pp *v1alpha1.PeerPod
	// complaint is the last error that was logged; same owner.
	complaint string

	rec      adaptor.Record
	failed   *adaptor.Change // why the last step failed
	stuck    *adaptor.Change // why the removal does not go on
	behind   bool
	released bool
	// made is closed when the PeerPod is there.
	made     chan struct{}
	madeOnce sync.Once
}

func newClaims(c *Cluster, peerPods *claims.Claims, lister nodeLister) *tracker {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](c.opts.MinRetry, c.opts.MaxRetry)
	return &tracker{
		cluster: c, peerPods: peerPods, lister: lister,
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
		if c.update(id, func(one *claim) { one.rec = change.Sandbox }) && worthWriting[change.Step] {
			c.queue.Add(id)
		}
	case adaptor.ChangeFailed:
		if !interrupted(change.Err) && c.update(id, func(one *claim) { one.rec, one.failed = change.Sandbox, &change }) {
			c.queue.Add(id)
		}
	case adaptor.ChangeStuck:
		if !errors.Is(change.Err, errRelease) && c.update(id, func(one *claim) { one.rec, one.stuck = change.Sandbox, &change }) {
			c.queue.Add(id)
		}
	}
}

// worthWriting are the steps after which a PeerPod is written at once. The
// others take no time and are written together with the next of these, which
// limits the writes per pod.
var worthWriting = map[string]bool{"create-instance": true, "ready": true}

func interrupted(err error) bool {
	var step *adaptor.StepError
	return errors.As(err, &step) && step.Interrupted()
}

// track enqueues the creation of a sandbox's PeerPod.
func (c *tracker) track(rec adaptor.Record) *claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.known[rec.ID]
	if one == nil {
		one = &claim{working: make(chan struct{}, 1), made: make(chan struct{})}
		c.known[rec.ID] = one
	}
	one.rec, one.behind = rec, true
	c.queue.Add(rec.ID)
	return one
}

// update changes what is known of a sandbox; false when nothing is.
func (c *tracker) update(id string, change func(*claim)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.known[id]
	if one == nil || one.released {
		return false
	}
	change(one)
	one.behind = true
	return true
}

func (c *tracker) backlog() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, one := range c.known {
		if one.behind {
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
	one := c.known[id]
	c.mu.Unlock()
	if one == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	done, err := one.work(ctx)
	if err != nil {
		return err
	}
	defer done()
	err = c.cluster.heard(c.write(ctx, one))
	c.complain(one, err)
	return err
}

// work acquires the right to write; done releases it.
func (one *claim) work(ctx context.Context) (done func(), err error) {
	select {
	case one.working <- struct{}{}:
		return func() { <-one.working }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *tracker) write(ctx context.Context, one *claim) error {
	c.mu.Lock()
	rec, failed, stuck, released := one.rec, one.failed, one.stuck, one.released
	one.behind = !released
	c.mu.Unlock()
	if released {
		return nil
	}
	if one.pp == nil {
		if err := c.make(ctx, one, rec); err != nil {
			return err
		}
	}
	pp, err := c.peerPods.Update(ctx, one.pp, changes(&rec, failed, stuck)...)
	if apierrors.IsNotFound(err) {
		one.pp = nil // somebody deleted it; it is created again
	}
	if err != nil {
		return err
	}
	one.pp = pp
	c.settled(one, &rec, failed, stuck)
	return nil
}

// settled records that this state has been written.
func (c *tracker) settled(one *claim, rec *adaptor.Record, failed, stuck *adaptor.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one.behind = one.rec.Step != rec.Step || one.failed != failed || one.stuck != stuck
}

func (c *tracker) make(ctx context.Context, one *claim, rec adaptor.Record) error {
	uid, err := c.cluster.podUID(ctx, &rec)
	if err != nil {
		return err
	}
	one.pp, err = c.peerPods.Claim(ctx, c.cluster.claimOf(&rec, uid))
	if err != nil {
		one.pp = nil
		return err
	}
	one.madeOnce.Do(func() { close(one.made) })
	return nil
}

// complain logs a repeated error once: otherwise it would be logged every few
// seconds while the API server is unreachable or keeps refusing.
func (c *tracker) complain(one *claim, err error) {
	if err == nil {
		one.complaint = ""
		return
	}
	if unreachable(err) || one.complaint == err.Error() {
		return
	}
	one.complaint = err.Error()
	rec := one.snapshot(&c.mu)
	c.cluster.opts.Log.Warn("the sandbox's PeerPod cannot be written; retrying", "sandbox", rec.ID, "pod", rec.PodName, "namespace", rec.PodNamespace, "error", err)
	c.cluster.events.warn(&rec, reasonClaimFailed, "the instance could not be noted in a PeerPod: "+err.Error()+"; see whether the CRD peerpods.confidentialcontainers.org is installed and the adaptor's ClusterRole bound")
}

func (one *claim) snapshot(mu *sync.Mutex) adaptor.Record {
	mu.Lock()
	defer mu.Unlock()
	return one.rec
}

// podUID returns the UID of a sandbox's pod; empty when the cluster has no
// such pod, as when it was made by hand through the runtime.
func (c *Cluster) podUID(ctx context.Context, rec *adaptor.Record) (string, error) {
	if rec.PodUID != "" {
		return rec.PodUID, nil
	}
	found, err := c.lookup(ctx, rec.PodNamespace, rec.PodName)
	if noSuchPod(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look up pod %s/%s: %w", rec.PodNamespace, rec.PodName, err)
	}
	return string(found.Metadata.UID), nil
}

func (c *Cluster) claimOf(rec *adaptor.Record, uid string) claims.Claim {
	return claims.Claim{
		Provider: c.opts.Provider, Cluster: c.opts.ClusterID, Node: c.opts.NodeName,
		SandboxID: rec.ID, Namespace: rec.PodNamespace, PodName: rec.PodName, PodUID: types.UID(uid),
		Created: rec.Created, InitdataDigest: rec.InitdataDigest,
	}
}

// changes returns what a sandbox's PeerPod should hold. The finalizer is among it
// each time: what is written may be a newer object than the one that was looked
// at.
func changes(rec *adaptor.Record, failed, stuck *adaptor.Change) []claims.Change {
	list := []claims.Change{claims.Guarded}
	switch {
	case rec.InstanceID != "":
		list = append(list, claims.Created(instanceOf(rec)))
	case failed == nil && stuck == nil:
		return list // its existence is the whole message
	default:
		list = append(list, claims.Claimed)
	}
	for _, done := range rec.Done {
		list = append(list, claims.Step(done.Step, done.At))
	}
	if rec.State == adaptor.StateReady {
		list = append(list, claims.Ready)
	}
	if failed != nil {
		list = append(list, claims.Failed(failed.Step, failed.Err, "", failed.At))
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
	one := c.claims.track(rec)
	ctx, cancel := c.patience(ctx)
	defer cancel()
	select {
	case <-one.made:
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
	if err := c.heard(c.claims.release(ctx, &rec)); err != nil {
		return fmt.Errorf("%w: %w", errRelease, err)
	}
	return nil
}

func (c *tracker) release(ctx context.Context, rec *adaptor.Record) error {
	c.mu.Lock()
	one := c.known[rec.ID]
	if one == nil { // of an earlier process
		one = &claim{working: make(chan struct{}, 1), made: make(chan struct{}), rec: *rec}
		c.known[rec.ID] = one
	}
	one.released = true // from here on nobody makes it again
	c.mu.Unlock()
	done, err := one.work(ctx)
	if err != nil {
		return err
	}
	defer done()
	pp, err := c.find(ctx, one, rec)
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
func (c *tracker) find(ctx context.Context, one *claim, rec *adaptor.Record) (*v1alpha1.PeerPod, error) {
	if one.pp != nil {
		return one.pp, nil
	}
	pp, err := c.peerPods.API.Get(ctx, rec.PodNamespace, claims.Name(rec.PodName, rec.ID))
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case pp.Spec.SandboxID != rec.ID:
		return nil, nil // another's
	}
	return pp, nil
}
