// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
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
	// suspects are instances that should not exist, with the time since when
	// every sweep has seen them so. Sweeps are not concurrent.
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

// Sweep checks every provider in use. Each is listed once, and the PeerPods are
// read once for all of them.
func (s *Sweeper) Sweep(ctx context.Context) error {
	var all v1alpha1.PeerPodList
	if err := s.cached.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list PeerPods: %w", err)
	}
	s.metrics.count(all.Items)
	s.revisit(ctx, all.Items)
	var wrong error
	for _, name := range s.providers(all.Items) {
		c, err := s.clouds.Get(name)
		if err != nil || !c.CanList() {
			continue // reported where settings are read, and on the PeerPods
		}
		if err := s.sweep(ctx, c, all.Items); err != nil {
			wrong = fmt.Errorf("provider %s: %w", name, err) // one is enough: each failed call is counted
		}
	}
	return wrong
}

// providers are those of PeerPods, those asked for before, and the default.
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

// revisit enqueues the PeerPods whose node is gone: there may be no other
// event.
func (s *Sweeper) revisit(ctx context.Context, all []v1alpha1.PeerPod) {
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

// sweep looks at one provider.
func (s *Sweeper) sweep(ctx context.Context, c *cloud.Cloud, all []v1alpha1.PeerPod) error {
	snapshot, err := c.Fresh(ctx, s.now())
	if err != nil {
		s.pardon(c.Name)
		return err
	}
	claimants := claimantsOf(all)
	found, leaving := compare(snapshot, claimants)
	s.metrics.sweptAt(c.Name, snapshot.Began, len(snapshot.Instances)-len(found), len(found))
	s.followUp(ctx, c, snapshot, all)
	found = append(found, leaving...)
	if err := s.reachable(ctx, found); err != nil {
		s.pardon(c.Name)
		return err
	}
	return s.clearAway(ctx, c, snapshot, s.ripe(c.Name, found))
}

// reachable checks the API server. While that is unreachable nodes cannot claim
// what they make, so the time does not count against the suspects.
func (s *Sweeper) reachable(ctx context.Context, suspects []*provider.Instance) error {
	if len(suspects) == 0 {
		return nil
	}
	if err := s.live.List(ctx, &v1alpha1.PeerPodList{}, client.Limit(1)); err != nil {
		return fmt.Errorf("%d unclaimed instances are left alone while the API server does not answer: %w", len(suspects), err)
	}
	return nil
}

// claimants are PeerPods by key, those of all providers: two names may be the
// same cloud. Several PeerPods with one key mean that somebody tries to claim
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

// compare returns the instances that should not exist: those without a claim,
// and those beside the one that the claim keeps. Instances in deletion without
// a claim are fine unless they stay: the remains of a failed deletion look the
// same, and only another deletion removes them.
func compare(snapshot *cloud.Snapshot, claimants claimants) (found, leaving []*provider.Instance) {
	for i := range snapshot.Instances {
		instance := &snapshot.Instances[i]
		pp := claimants.of(instance)
		switch {
		case instance.State == provider.StateDeleting && pp == nil:
			leaving = append(leaving, instance)
		case instance.State == provider.StateDeleting: // the PeerPod's own removal handles it
		case pp == nil || instance.ID != kept(pp, snapshot.OfKey(instance.Key)):
			found = append(found, instance)
		}
	}
	return found, leaving
}

// kept returns which instance of its key a PeerPod keeps: the one it names if
// that is there, else the oldest.
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

// ripe updates the suspects and returns those whose grace period is over, both
// by their age and by how long this process has suspected them.
func (s *Sweeper) ripe(providerName string, found []*provider.Instance) []*provider.Instance {
	now := s.now()
	seen := make(map[suspect]time.Time, len(found))
	var ripe []*provider.Instance
	for _, instance := range found {
		key := suspect{providerName, instance.ID}
		since, known := s.suspects[key]
		if !known {
			since = now
		}
		seen[key] = since
		if now.Sub(since) >= s.options.Grace && !young(instance, now, s.options.Grace) {
			ripe = append(ripe, instance)
		}
	}
	s.pardon(providerName)
	for key, since := range seen {
		s.suspects[key] = since
	}
	return ripe
}

// pardon clears the suspects of a provider: after a gap they may have been
// claimed meanwhile.
func (s *Sweeper) pardon(providerName string) {
	if s.suspects == nil {
		s.suspects = map[suspect]time.Time{}
	}
	for key := range s.suspects {
		if key.provider == providerName {
			delete(s.suspects, key)
		}
	}
}

// young judges by the cloud's clock or the tag, which may be wrong. An instance
// from the future has no age; then the time for which this process has
// suspected it decides.
func young(i *provider.Instance, now time.Time, grace time.Duration) bool {
	created := i.Created
	if created.IsZero() {
		created, _ = time.Parse(time.RFC3339, i.Tags[provider.TagCreated])
	}
	age := now.Sub(created)
	return age >= 0 && age < grace
}

// clearAway deletes suspects after checking with the API server, without the
// cache, that no PeerPod claims them.
func (s *Sweeper) clearAway(ctx context.Context, c *cloud.Cloud, snapshot *cloud.Snapshot, ripe []*provider.Instance) error {
	if len(ripe) == 0 {
		return nil
	}
	all, err := s.allLive(ctx)
	if err != nil {
		return err
	}
	claimants := claimantsOf(all)
	work := make(chan *provider.Instance)
	var wrong firstError
	var workers sync.WaitGroup
	for range min(s.options.Sweepers, len(ripe)) {
		workers.Go(func() {
			for instance := range work {
				wrong.note(s.dispose(ctx, c, instance, claimants.of(instance), snapshot))
			}
		})
	}
	for _, instance := range ripe {
		work <- instance
	}
	close(work)
	workers.Wait()
	return wrong.err
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

// dispose deletes one instance that is not kept by pp, which may be nil.
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

// followUp enqueues PeerPods for which the list has news.
func (s *Sweeper) followUp(ctx context.Context, c *cloud.Cloud, snapshot *cloud.Snapshot, all []v1alpha1.PeerPod) {
	for i := range all {
		pp := &all[i]
		if pp.DeletionTimestamp != nil || pp.Spec.SandboxID == "" || pp.Spec.CloudProvider != c.Name {
			continue
		}
		there := eldest(s.claimed(snapshot, pp)) != nil
		switch {
		case pp.Spec.InstanceID == "" && there:
			s.waiters.enqueue(client.ObjectKeyFromObject(pp)) // to be adopted
		case pp.Spec.InstanceID != "":
			s.tellLoss(ctx, pp, there)
		}
	}
}

// tellLoss records on a PeerPod that was ready when its instance is missing
// from the list, and clears that when it reappears.
func (s *Sweeper) tellLoss(ctx context.Context, pp *v1alpha1.PeerPod, there bool) {
	ready := meta.FindStatusCondition(pp.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || s.now().Sub(ready.LastTransitionTime.Time) < s.options.Grace {
		return
	}
	lost := ready.Reason == claims.ReasonInstanceLost
	var change claims.Change
	switch {
	case there && lost:
		change = claims.Ready
	case !there && ready.Status == "True":
		change = claims.Lost
	default:
		return
	}
	now, err := s.claims.Update(ctx, pp.DeepCopy(), change)
	if client.IgnoreNotFound(err) != nil {
		s.log.Warn("the loss of an instance cannot be recorded", "namespace", pp.Namespace, "pod", claims.PodName(pp), "error", err)
	} else if err == nil && !there {
		s.events.warn(now, claims.ReasonInstanceLost, "Observe", "the cloud does not show instance "+pp.Spec.InstanceID+" any more; delete the pod")
	}
}

// firstError keeps the first of many.
type firstError struct {
	mu  sync.Mutex
	err error
}

func (f *firstError) note(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}
