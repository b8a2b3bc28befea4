// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/internal/peerpods/controller/cloud"
	"github.com/outrigger/outrigger/provider"
)

// Sweeper compares what clouds list with what PeerPods claim.
type Sweeper struct {
	*Reconciler
	// suspects are instances that should not exist, with the time of the first of
	// the consecutive sweeps that found them. Sweeps are not concurrent.
	suspects map[suspect]time.Time
}

type suspect struct{ provider, id string }

// Start implements manager.Runnable.
func (s *Sweeper) Start(ctx context.Context) error {
	select {
	case <-s.clouds.Ready():
	case <-ctx.Done():
		return nil
	}
	ticker := time.NewTicker(s.options.Period)
	defer ticker.Stop()
	for {
		if err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("the sweep is incomplete; the next one retries", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Sweep checks every provider in use. It reads the PeerPods once and lists the
// instances of each provider once.
func (s *Sweeper) Sweep(ctx context.Context) error {
	var all v1alpha1.PeerPodList
	if err := s.cached.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list PeerPods: %w", err)
	}
	s.metrics.count(all.Items)
	s.enqueueNodeless(ctx, all.Items)
	var failed error
	for _, name := range s.providers(all.Items) {
		c, err := s.clouds.Get(name)
		if err != nil || !c.CanList() {
			continue // reported where settings are read, and on the PeerPods
		}
		if err := s.sweep(ctx, c, all.Items); err != nil {
			failed = fmt.Errorf("provider %s: %w", name, err) // one is enough: each failed call is counted
		}
	}
	return failed
}

// providers returns the names of the providers that PeerPods name, those that have
// been used before, and the default.
func (s *Sweeper) providers(all []v1alpha1.PeerPod) []string {
	names := s.clouds.Names()
	if def := s.clouds.Default(); def != "" {
		names = append(names, def)
	}
	last := ""
	for i := range all {
		if name := all[i].Spec.CloudProvider; name != "" && name != last {
			names, last = append(names, name), name
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// enqueueNodeless enqueues the PeerPods whose node is gone: no other event may
// report that.
func (s *Sweeper) enqueueNodeless(ctx context.Context, all []v1alpha1.PeerPod) {
	gone := map[string]bool{}
	for i := range all {
		name := all[i].Spec.NodeName
		if _, known := gone[name]; !known {
			gone[name] = name != "" && errors.IsNotFound(s.cached.Get(ctx, types.NamespacedName{Name: name}, nodeMetadata()))
		}
		if gone[name] {
			s.waiters.enqueue(client.ObjectKeyFromObject(&all[i]))
		}
	}
}

// sweep checks the instances of one provider.
func (s *Sweeper) sweep(ctx context.Context, c *cloud.Cloud, all []v1alpha1.PeerPod) error {
	snapshot, err := c.Fresh(ctx, s.now())
	if err != nil {
		s.clearSuspects(c.Name)
		return err
	}
	claimants := claimantsOf(all)
	excess, deleting := compare(snapshot, claimants)
	s.metrics.sweptAt(c.Name, snapshot.Began, len(snapshot.Instances)-len(excess), len(excess))
	s.followUp(ctx, c, snapshot, all)
	excess = append(excess, deleting...)
	if len(excess) == 0 {
		s.clearSuspects(c.Name)
		return nil
	}
	// Nodes cannot claim their instances while the API server is unreachable, so the time
	// does not count against the suspects.
	if err := s.live.List(ctx, &v1alpha1.PeerPodList{}, client.Limit(1)); err != nil {
		s.clearSuspects(c.Name)
		return fmt.Errorf("%d unclaimed instances are left alone while the API server does not answer: %w", len(excess), err)
	}
	return s.deleteUnclaimed(ctx, c, snapshot, s.overdue(c.Name, excess))
}

// claimants holds the PeerPods of all providers by key: two provider names may mean
// the same cloud. Several PeerPods with one key mean that somebody tries to claim
// another pod's instance.
type claimants map[string][]*v1alpha1.PeerPod

func claimantsOf(all []v1alpha1.PeerPod) claimants {
	list := make(claimants, len(all))
	for i := range all {
		if id := all[i].Spec.SandboxID; id != "" {
			key := provider.TagValue(id)
			list[key] = append(list[key], &all[i])
		}
	}
	return list
}

// of returns the PeerPod that claims an instance; nil if there is none.
func (c claimants) of(i *provider.Instance) *v1alpha1.PeerPod {
	for _, pp := range c[i.Key] {
		if madeFor(pp, i) {
			return pp
		}
	}
	return nil
}

// compare returns the instances that should not exist. excess are those without a
// PeerPod, and further instances of a PeerPod that keeps another one. deleting are
// those in deletion without a PeerPod: normally they vanish, but the remains of a
// failed deletion look the same, and only another deletion removes them.
func compare(snapshot *cloud.Snapshot, claimants claimants) (excess, deleting []*provider.Instance) {
	for i := range snapshot.Instances {
		instance := &snapshot.Instances[i]
		pp := claimants.of(instance)
		switch {
		case instance.State == provider.StateDeleting && pp == nil:
			deleting = append(deleting, instance)
		case instance.State == provider.StateDeleting: // the PeerPod's own removal handles it
		case pp == nil || instance.ID != kept(pp, snapshot.OfKey(instance.Key)):
			excess = append(excess, instance)
		}
	}
	return excess, deleting
}

// kept returns the id of the instance that a PeerPod keeps among those of its key:
// the one that it names if that exists, else the oldest.
func kept(pp *v1alpha1.PeerPod, instances []*provider.Instance) string {
	for _, instance := range instances {
		if instance.ID == pp.Spec.InstanceID && instance.State != provider.StateDeleting {
			return instance.ID
		}
	}
	if first := eldest(instances); first != nil {
		return first.ID
	}
	return ""
}

// overdue updates the suspects and returns those whose grace period is over, both
// by their age and by how long this process has suspected them.
func (s *Sweeper) overdue(providerName string, candidates []*provider.Instance) []*provider.Instance {
	now := s.now()
	seen := make(map[suspect]time.Time, len(candidates))
	var expired []*provider.Instance
	for _, instance := range candidates {
		key := suspect{providerName, instance.ID}
		since, known := s.suspects[key]
		if !known {
			since = now
		}
		seen[key] = since
		if now.Sub(since) >= s.options.Grace && !young(instance, now, s.options.Grace) {
			expired = append(expired, instance)
		}
	}
	s.clearSuspects(providerName)
	maps.Copy(s.suspects, seen)
	return expired
}

// clearSuspects forgets the suspects of a provider. It is called when a sweep has
// failed: they may have been claimed meanwhile.
func (s *Sweeper) clearSuspects(providerName string) {
	if s.suspects == nil {
		s.suspects = map[suspect]time.Time{}
	}
	maps.DeleteFunc(s.suspects, func(key suspect, _ time.Time) bool { return key.provider == providerName })
}

// young reports whether an instance is younger than the grace period, by the cloud's
// clock or by its tag. Either may be wrong: an instance with a time in the future
// does not count as young, and the time for which this process has suspected it
// decides.
func young(i *provider.Instance, now time.Time, grace time.Duration) bool {
	created := i.Created
	if created.IsZero() {
		created, _ = time.Parse(time.RFC3339, i.Tags[provider.TagCreated])
	}
	age := now.Sub(created)
	return age >= 0 && age < grace
}

// deleteUnclaimed deletes suspects after checking with the API server, without the
// cache, that no PeerPod claims them.
func (s *Sweeper) deleteUnclaimed(ctx context.Context, c *cloud.Cloud, snapshot *cloud.Snapshot, expired []*provider.Instance) error {
	if len(expired) == 0 {
		return nil
	}
	all, err := s.allLive(ctx)
	if err != nil {
		return err
	}
	claimants := claimantsOf(all)
	work := make(chan *provider.Instance)
	var failed error
	var first sync.Once
	var workers sync.WaitGroup
	for range min(s.options.Sweepers, len(expired)) {
		workers.Go(func() {
			for instance := range work {
				if err := s.dispose(ctx, c, instance, claimants.of(instance), snapshot); err != nil {
					first.Do(func() { failed = err })
				}
			}
		})
	}
	for _, instance := range expired {
		work <- instance
	}
	close(work)
	workers.Wait()
	return failed
}

// livePage is how many PeerPods one request to the API server returns.
const livePage = 500

func (s *Sweeper) allLive(ctx context.Context) ([]v1alpha1.PeerPod, error) {
	var all []v1alpha1.PeerPod
	for next := ""; ; {
		var page v1alpha1.PeerPodList
		if err := s.live.List(ctx, &page, client.Limit(livePage), client.Continue(next)); err != nil {
			return nil, fmt.Errorf("no instances are removed while PeerPods cannot be listed: %w", err)
		}
		all = append(all, page.Items...)
		if next = page.Continue; next == "" {
			return all, nil
		}
	}
}

// dispose deletes one instance unless pp, which may be nil, keeps it.
func (s *Sweeper) dispose(ctx context.Context, c *cloud.Cloud, instance *provider.Instance, pp *v1alpha1.PeerPod, snapshot *cloud.Snapshot) error {
	cause, log := causeUnclaimed, s.log.With("sandbox", instance.Key, "instance", instance.ID, "provider", c.Name,
		"pod", instance.Tags[provider.TagPod], "namespace", instance.Tags[provider.TagNamespace])
	if pp != nil {
		if instance.ID == kept(pp, snapshot.OfKey(instance.Key)) || instance.ID == pp.Spec.InstanceID {
			return nil
		}
		cause = causeDouble
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := c.Delete(ctx, instance.ID); err != nil {
		return err
	}
	s.metrics.deleted.WithLabelValues(c.Name, cause).Inc()
	log.Warn("deleted an instance that no PeerPod keeps", "cause", cause, "name", instance.Name, "created", instance.Created)
	if pp != nil {
		s.events.warn(pp, claims.ReasonDouble, "Delete", fmt.Sprintf("instance %s was a second instance of this sandbox beside %s; removing it", instance.ID, kept(pp, snapshot.OfKey(instance.Key))))
	}
	return nil
}

// followUp enqueues PeerPods whose instance was found, and records which instances
// are missing from the list.
func (s *Sweeper) followUp(ctx context.Context, c *cloud.Cloud, snapshot *cloud.Snapshot, all []v1alpha1.PeerPod) {
	for i := range all {
		pp := &all[i]
		if pp.DeletionTimestamp != nil || pp.Spec.SandboxID == "" || pp.Spec.CloudProvider != c.Name {
			continue
		}
		exists := eldest(s.claimed(snapshot, pp)) != nil || pp.Spec.PoolVM != "" && snapshot.OfID(pp.Spec.InstanceID) != nil
		switch {
		case pp.Spec.InstanceID == "" && exists:
			s.waiters.enqueue(client.ObjectKeyFromObject(pp)) // to be adopted
		case pp.Spec.InstanceID != "":
			s.recordLoss(ctx, pp, exists)
		}
	}
}

// recordLoss marks a PeerPod that was ready as lost when its instance is missing
// from the list, and clears the mark when the instance reappears.
func (s *Sweeper) recordLoss(ctx context.Context, pp *v1alpha1.PeerPod, exists bool) {
	ready := meta.FindStatusCondition(pp.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || s.now().Sub(ready.LastTransitionTime.Time) < s.options.Grace {
		return
	}
	lost := ready.Reason == claims.ReasonInstanceLost
	var change claims.Change
	switch {
	case exists && lost:
		change = claims.Ready
	case !exists && ready.Status == "True":
		change = claims.Lost
	default:
		return
	}
	now, err := s.claims.Update(ctx, pp.DeepCopy(), change)
	if client.IgnoreNotFound(err) != nil {
		s.log.Warn("the loss of an instance cannot be recorded", "namespace", pp.Namespace, "pod", claims.PodName(pp), "error", err)
	} else if err == nil && !exists {
		s.events.warn(now, claims.ReasonInstanceLost, "Observe", "the cloud does not show instance "+pp.Spec.InstanceID+" any more; delete the pod")
	}
}
