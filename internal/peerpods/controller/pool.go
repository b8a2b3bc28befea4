// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/internal/peerpods/controller/cloud"
	"github.com/outrigger/outrigger/internal/peerpods/podtls"
	"github.com/outrigger/outrigger/provider"
)

// poolFinalizer keeps a PodVMPool until none of its VMs waits any more.
const poolFinalizer = "confidentialcontainers.org/podvmpool"

const (
	// surplusAfter is how long after the last claim a pool goes back to minReady, and so how
	// long claims are remembered.
	surplusAfter = 10 * time.Minute
	// demandWindow is the least time whose claims say how many VMs are needed.
	demandWindow = time.Minute
	// restAfterClaim is the pause before a VM is made in place of one that a pod took, where VMs
	// share the processors of the node: the pod starts meanwhile, and has them for itself.
	restAfterClaim = 20 * time.Second
	// fullFor is how long a zone without room is the last to be asked.
	fullFor = 5 * time.Minute
	// poolPeriod is when a pool is looked at without any event: VMs grow old.
	poolPeriod = time.Minute
)

// Pools decides how many VMs a PodVMPool has: it makes the PeerPods of new ones and
// deletes those of VMs that are not to wait any more. PoolVMs does the rest. How many
// there are is counted each time, so that nothing depends on this process.
type Pools struct {
	*Reconciler
	vms *PoolVMs
}

// Reconcile implements reconcile.Reconciler for PodVMPools.
func (p *Pools) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	pool := &v1alpha1.PodVMPool{}
	if there, err := p.read(ctx, request, pool); !there {
		return reconcile.Result{}, err
	}
	if pool.DeletionTimestamp != nil {
		return ignoreStale(p.drain(ctx, pool))
	}
	if !controllerutil.ContainsFinalizer(pool, poolFinalizer) {
		before := pool.DeepCopy()
		controllerutil.AddFinalizer(pool, poolFinalizer)
		return ignoreStale(reconcile.Result{}, p.writer.Patch(ctx, pool, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
	}
	return ignoreStale(p.fill(ctx, pool))
}

// drain deletes the VMs that wait, and then lets the pool go.
func (p *Pools) drain(ctx context.Context, pool *v1alpha1.PodVMPool) (reconcile.Result, error) {
	members, err := p.members(ctx, p.live, pool)
	if err != nil {
		return reconcile.Result{}, err
	}
	waiting := slices.DeleteFunc(members, func(pp *v1alpha1.PeerPod) bool { return pp.Spec.Pool.Claim != nil })
	if len(waiting) > 0 {
		doomed := slices.DeleteFunc(waiting, func(pp *v1alpha1.PeerPod) bool { return pp.DeletionTimestamp != nil })
		return reconcile.Result{RequeueAfter: poolPeriod}, p.retire(ctx, doomed)
	}
	before := pool.DeepCopy()
	controllerutil.RemoveFinalizer(pool, poolFinalizer)
	p.vms.memories.Delete(pool.Name)
	p.metrics.pools.DeletePartialMatch(prometheus.Labels{"pool": pool.Name})
	return reconcile.Result{}, p.writer.Patch(ctx, pool, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// fill brings the number of VMs that wait to what it is to be.
func (p *Pools) fill(ctx context.Context, pool *v1alpha1.PodVMPool) (reconcile.Result, error) {
	c, err := p.cloudOf(pool)
	if err != nil {
		p.vms.failed(pool, "configure", err)
		members, err := p.members(ctx, p.cached, pool)
		if err != nil {
			return reconcile.Result{}, err
		}
		template := pool.Status.Template
		return reconcile.Result{RequeueAfter: poolPeriod}, p.writeStatus(ctx, pool, p.take(pool, members, template), template)
	}
	node, key, err := p.nodeCertificate(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	template := templateOf(pool, c, node, key)
	members, err := p.members(ctx, p.cached, pool)
	if err != nil {
		return reconcile.Result{}, err
	}
	count := p.take(pool, members, template)
	count.cost = p.costOf(ctx, pool, c, count)
	resting := 0
	if c.OnNode() {
		resting = p.vms.memory(pool.Name).recent(restAfterClaim, p.now())
	}
	if err := p.retire(ctx, count.retire); err != nil {
		return reconcile.Result{}, err
	}
	if err := p.writeStatus(ctx, pool, count, template); err != nil {
		return reconcile.Result{}, err
	}
	switch {
	case count.missing <= 0:
		return reconcile.Result{RequeueAfter: poolPeriod}, nil
	case count.missing <= resting:
		return reconcile.Result{RequeueAfter: time.Second}, nil
	}
	if wait := p.vms.memory(pool.Name).pause(p.now()); wait > 0 {
		return reconcile.Result{RequeueAfter: min(wait, poolPeriod)}, nil
	}
	return reconcile.Result{RequeueAfter: poolPeriod}, p.grow(ctx, pool, c, template, node, resting)
}

// cloudOf returns the provider of a pool, which can do what the pool needs.
func (p *Pools) cloudOf(pool *v1alpha1.PodVMPool) (*cloud.Cloud, error) {
	c, err := p.clouds.Get(pool.Spec.CloudProvider)
	if err != nil {
		return nil, missingProvider{err}
	}
	if pool.Spec.Standby == v1alpha1.StandbyStopped && !c.CanPower() {
		return nil, fmt.Errorf("%w: provider %s cannot stop and start VMs, which spec.standby: stopped needs", provider.ErrUnimplemented, c.Name)
	}
	return c, nil
}

// grow makes PeerPods of new VMs. It counts those that there are without the cache, which
// may not have the last ones yet. So many fewer are made as were taken a moment ago.
func (p *Pools) grow(ctx context.Context, pool *v1alpha1.PodVMPool, c *cloud.Cloud, template string, node []byte, resting int) error {
	members, err := p.members(ctx, p.live, pool)
	if err != nil {
		return err
	}
	count := p.take(pool, members, template)
	waiting := map[string]int{}
	for _, pp := range slices.Concat(count.ready, count.aged, count.starting) {
		waiting[pp.Spec.Pool.Zone]++
	}
	for range min(count.missing-resting, p.options.PoolStarting-len(count.starting)) {
		zone := p.zoneFor(pool, waiting)
		if err := p.vms.begin(ctx, pool, c.Name, template, zone, node); err != nil {
			return err
		}
		waiting[zone]++
	}
	return nil
}

// zoneFor returns where another VM is to be: in the zone in which the fewest wait, unless
// that was full a while ago and others were not.
func (p *Pools) zoneFor(pool *v1alpha1.PodVMPool, waiting map[string]int) string {
	if len(pool.Spec.Zones) == 0 {
		return ""
	}
	memory, now := p.vms.memory(pool.Name), p.now()
	return slices.MinFunc(pool.Spec.Zones, func(a, b string) int {
		return cmp.Or(memory.fullSince(a, now)-memory.fullSince(b, now), waiting[a]-waiting[b])
	})
}

// members returns the PeerPods of a pool, also those that are being deleted.
func (p *Pools) members(ctx context.Context, reader client.Reader, pool *v1alpha1.PodVMPool) ([]*v1alpha1.PeerPod, error) {
	var list v1alpha1.PeerPodList
	if err := reader.List(ctx, &list, client.InNamespace(p.options.Namespace), client.MatchingLabels{claims.LabelPool: pool.Name}); err != nil {
		return nil, fmt.Errorf("list the VMs of pool %s: %w", pool.Name, err)
	}
	var members []*v1alpha1.PeerPod
	for i := range list.Items {
		if pp := &list.Items[i]; pp.Spec.Pool != nil && pp.Spec.Pool.Name == pool.Name {
			members = append(members, pp)
		}
	}
	return members, nil
}

// census is what there is of a pool and what is to be done.
type census struct {
	ready, starting, retire []*v1alpha1.PeerPod
	// aged wait, too, until others do in their place.
	aged    []*v1alpha1.PeerPod
	claimed int
	// lastHit is the time of the last claim.
	lastHit *metav1.MicroTime
	// missing is how many VMs are to be made; negative when there are too many.
	missing int
	// cost is that of the pool's status.
	cost string
}

// take counts a pool's VMs.
func (p *Pools) take(pool *v1alpha1.PodVMPool, members []*v1alpha1.PeerPod, template string) *census {
	now, count, memory := p.now(), &census{lastHit: pool.Status.LastHit}, p.vms.memory(pool.Name)
	memory.noteClaims(members, pool.Status.LastHit, now)
	for _, pp := range members {
		old := pool.Spec.MaxAge != nil && now.Sub(pp.CreationTimestamp.Time) > pool.Spec.MaxAge.Duration
		if claim := pp.Spec.Pool.Claim; claim != nil && (count.lastHit == nil || claim.Time.After(count.lastHit.Time)) {
			count.lastHit = &claim.Time
		}
		switch {
		case pp.DeletionTimestamp != nil:
		case pp.Spec.Pool.Claim != nil:
			count.claimed++
		case pp.Spec.Pool.Template != template, claims.PhaseOf(pp) == v1alpha1.PhaseFailed:
			count.retire = append(count.retire, pp)
		case old && claims.Waits(pp):
			count.aged = append(count.aged, pp)
		case claims.Waits(pp):
			count.ready = append(count.ready, pp)
		default:
			count.starting = append(count.starting, pp)
		}
	}
	count.missing = p.demand(pool, count, now) - len(count.ready) - len(count.starting)
	quiet := memory.recent(surplusAfter, now) == 0 || len(count.ready) > int(pool.Spec.Most())
	if surplus := min(-count.missing, len(count.ready)); surplus > 0 && quiet {
		slices.SortFunc(count.ready, byAge)
		count.retire = append(count.retire, count.ready[:surplus]...)
		count.ready = count.ready[surplus:]
	}
	slices.SortFunc(count.aged, byAge)
	replaced := max(0, min(len(count.aged), len(count.aged)+len(count.ready)-int(pool.Spec.MinReady)))
	count.retire, count.aged = append(count.retire, count.aged[:replaced]...), count.aged[replaced:]
	return count
}

func byAge(a, b *v1alpha1.PeerPod) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// demand returns how many VMs are to wait: minReady, and as many more as pods have come in
// the time that a VM takes to be ready, so that the next as many find one.
func (p *Pools) demand(pool *v1alpha1.PodVMPool, count *census, now time.Time) int {
	window := demandWindow
	for _, pp := range count.ready {
		if ready := meta.FindStatusCondition(pp.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
			window = max(window, ready.LastTransitionTime.Sub(pp.CreationTimestamp.Time))
		}
	}
	return min(int(pool.Spec.MinReady)+p.vms.memory(pool.Name).recent(window, now), int(pool.Spec.Most()))
}

// retire deletes PeerPods of VMs that wait. One that a pod takes at the same time stays.
func (r *Reconciler) retire(ctx context.Context, list []*v1alpha1.PeerPod) error {
	var problems []error
	for _, pp := range list {
		err := r.writer.Delete(ctx, pp, client.Preconditions{UID: &pp.UID, ResourceVersion: &pp.ResourceVersion})
		if _, err := ignoreStale(reconcile.Result{}, err); err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// templateOf names all that a VM of the pool is made from. The provider's credentials are
// among it: without the key nobody can tell from the name, which many may read, whether a
// guess of a password is right.
func templateOf(pool *v1alpha1.PodVMPool, c *cloud.Cloud, node, key []byte) string {
	text, _ := json.Marshal([]any{c.Name, c.Fingerprint(), claims.VMSpec(&pool.Spec), string(node), pool.Spec.Standby, pool.Spec.Images, pool.Spec.Zones}) // cannot fail
	sum := hmac.New(sha256.New, key)
	sum.Write(text)
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// writeStatus writes what was counted, if it differs.
func (p *Pools) writeStatus(ctx context.Context, pool *v1alpha1.PodVMPool, count *census, template string) error {
	before := pool.DeepCopy()
	s := &pool.Status
	s.ObservedGeneration, s.Template = pool.Generation, template
	s.Ready, s.Starting, s.Claimed = int32(len(count.ready)+len(count.aged)), int32(len(count.starting)), int32(count.claimed)
	hits, counted := p.vms.memory(pool.Name).hits()
	s.Hits += hits
	s.LastHit, s.CostPerHour = count.lastHit, count.cost
	s.LastError = p.vms.memory(pool.Name).lastError()
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: claims.ReasonReady, ObservedGeneration: pool.Generation}
	if s.Ready < pool.Spec.MinReady {
		ready.Status, ready.Reason = metav1.ConditionFalse, claims.ReasonNotReady
		ready.Message = fmt.Sprintf("%d of %d VMs wait for a pod", s.Ready, pool.Spec.MinReady)
		if s.LastError != nil {
			ready.Message += ": " + s.LastError.Message
		}
	}
	meta.SetStatusCondition(&s.Conditions, ready)
	p.metrics.countPool(pool)
	if equality.Semantic.DeepEqual(before.Status, pool.Status) {
		return nil
	}
	err := p.writer.Status().Patch(ctx, pool, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err == nil {
		counted()
	}
	return err
}

const (
	// pricesAge is how long prices count.
	pricesAge = time.Hour
	// pricesTimeout bounds the call for them: VMs are not made meanwhile.
	pricesTimeout = 10 * time.Second
)

// costOf returns what an hour of the VMs costs that wait; empty unless the price of each is known.
func (p *Pools) costOf(ctx context.Context, pool *v1alpha1.PodVMPool, c *cloud.Cloud, count *census) string {
	waiting := slices.Concat(count.ready, count.aged)
	if pool.Spec.Standby == v1alpha1.StandbyStopped || len(waiting) == 0 {
		return ""
	}
	prices := p.vms.memory(pool.Name).pricesOf(p.now(), func() map[string]float64 {
		ctx, cancel := context.WithTimeout(ctx, pricesTimeout)
		defer cancel()
		return c.Prices(ctx)
	})
	sum := 0.0
	for _, pp := range waiting {
		if pp.Status.Instance == nil || prices[pp.Status.Instance.Type] <= 0 {
			return ""
		}
		sum += prices[pp.Status.Instance.Type]
	}
	return strconv.FormatFloat(sum, 'f', 4, 64)
}

// nodeCertificate returns the certificate with which the nodes of this cluster prove to
// waiting VMs who they are, and its key. It makes Secret [claims.PoolSecret] if there is none, or one
// that ends soon: VMs that know only the former one are replaced.
func (p *Pools) nodeCertificate(ctx context.Context) (certificate, private []byte, err error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: p.options.Namespace, Name: claims.PoolSecret}
	err = p.live.Get(ctx, key, secret)
	if client.IgnoreNotFound(err) != nil {
		return nil, nil, fmt.Errorf("read Secret %s: %w", key, err)
	}
	if err == nil && podtls.ValidFor(secret.Data[corev1.TLSCertKey], p.now(), podtls.RenewBefore) {
		return secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey], nil
	}
	bundle, bad := podtls.NewBundle("podvmpool", p.now())
	if bad != nil {
		return nil, nil, bad
	}
	secret.Namespace, secret.Name, secret.Type = key.Namespace, key.Name, corev1.SecretTypeTLS
	secret.Data = map[string][]byte{corev1.TLSCertKey: bundle.ClientCertPEM, corev1.TLSPrivateKeyKey: bundle.ClientKeyPEM}
	if err != nil {
		err = p.writer.Create(ctx, secret)
	} else {
		err = p.writer.Update(ctx, secret)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("write Secret %s: %w", key, err)
	}
	return bundle.ClientCertPEM, bundle.ClientKeyPEM, nil
}
