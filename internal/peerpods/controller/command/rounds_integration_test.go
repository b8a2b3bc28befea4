// SPDX-License-Identifier: Apache-2.0

//go:build integration

package command_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/test/tier"
)

// The points at which a node may die, or what else may befall a pod.
const (
	stays        = iota // nothing: it runs until the end
	clean               // stopped as it should be
	afterClaim          // the node dies before it asks the cloud
	afterCreate         // before it notes the instance
	afterRecord         // and nobody stops the pod
	whileDeleted        // the pod is deleted while its instance is made
	unclaimed           // no API server: an instance, no PeerPod
	fates
)

// TestNothingLeaks makes and deletes pods whose nodes die anywhere, while the
// controller and the API server are killed, and then counts in the cloud's
// ledger.
func TestNothingLeaks(t *testing.T) {
	rounds := tier.Rounds(t, 8, 50)
	w := newWorld(t)
	w.configure(w.keys(), "right")
	foreign, err := create(t.Context(), w.cloud, "c2", "theirs", "foreign")
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	chosen := make([]int, rounds)
	for n := range chosen {
		chosen[n] = n % fates
	}
	random.Shuffle(rounds, func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })

	stop, kills := w.killAtRandom(rand.New(rand.NewPCG(seed, 1)))
	var nodes sync.WaitGroup
	slots := make(chan struct{}, 3)
	for n, fate := range chosen {
		slots <- struct{}{}
		if n == rounds/2 {
			w.restart(t)
		}
		nodes.Go(func() { w.live(n, fate); <-slots })
	}
	nodes.Wait()
	controller := stop()
	w.checkRunning(chosen)
	w.deletePods()
	eventually(t, func() string {
		if left := w.peerPods(); len(left) > 0 {
			return fmt.Sprintf("PeerPods %v", left)
		}
		if left := w.leaks(); strings.Join(left, " ") != foreign.ID {
			return fmt.Sprintf("instances %v, want only %s", left, foreign.ID)
		}
		return ""
	})
	w.checkLedger(foreign.ID)
	t.Logf("%d rounds, %d kills of the controller, 1 of the API server: nothing leaked", rounds, kills())
	controller.kill()
}

// live is a node with one pod. What the API server does not take while it is
// unreachable is tried again, as an adaptor does.
func (w *world) live(n, fate int) {
	ctx, t := w.t.Context(), w.t
	name := fmt.Sprintf("pod%d", n)
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}, NodeSelector: map[string]string{"no": "node"}}}
	pod.Namespace, pod.Name = "default", name
	w.insist(func() error { return client.IgnoreAlreadyExists(w.client.Create(ctx, pod.DeepCopy())) })
	w.insist(func() error { return w.client.Get(ctx, client.ObjectKeyFromObject(pod), pod) })
	claim := claims.Claim{Provider: "fake", SandboxID: sandbox(n), Cluster: "c1", Namespace: "default", PodName: name, PodUID: pod.UID}
	var pp *v1alpha1.PeerPod
	if fate != unclaimed {
		w.insist(func() (err error) { pp, err = w.claims.Claim(ctx, claim); return err })
	}
	if fate == afterClaim {
		w.deletePod(pod)
		return
	}
	if fate == whileDeleted {
		w.deletePod(pod)
	}
	instance, err := create(ctx, w.cloud, "c1", name, sandbox(n))
	if err != nil {
		t.Error(err)
		return
	}
	if fate == stays || fate == clean || fate == afterRecord {
		created := claims.Created(v1alpha1.Instance{ID: instance.ID, Name: instance.Name})
		w.insist(func() error { _, err := w.claims.Update(ctx, pp, created, claims.Ready); return err })
	}
	switch fate {
	case clean:
		if err := w.cloud.DeleteInstance(ctx, instance.ID); err != nil {
			t.Error(err)
		}
		w.insist(func() error { return w.claims.Release(ctx, pp) })
		w.deletePod(pod)
	case afterRecord, afterCreate, unclaimed:
		w.deletePod(pod)
	}
}

func (w *world) insist(do func() error) {
	deadline := time.Now().Add(time.Minute)
	var err error
	for time.Now().Before(deadline) {
		if err = do(); err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.t.Error(err)
}

func (w *world) deletePod(pod *corev1.Pod) {
	w.insist(func() error {
		return client.IgnoreNotFound(w.client.Delete(w.t.Context(), pod.DeepCopy(), client.GracePeriodSeconds(0)))
	})
}

func (w *world) deletePods() {
	w.insist(func() error {
		return w.client.DeleteAllOf(w.t.Context(), &corev1.Pod{}, client.InNamespace("default"), client.GracePeriodSeconds(0))
	})
}

// killAtRandom keeps a controller running and kills it again and again. stop
// ends that and returns the last one, which runs on.
func (w *world) killAtRandom(random *rand.Rand) (stop func() *process, kills func() int) {
	ctx, cancel := context.WithCancel(w.t.Context())
	n, last := 0, make(chan *process)
	go func() {
		p := w.start(w.t)
		for {
			select {
			case <-ctx.Done():
				last <- p
				return
			case <-p.done: // the API server was unreachable when it started
			case <-time.After(200*time.Millisecond + time.Duration(random.Int64N(int64(1500*time.Millisecond)))):
				p.kill()
				n++
			}
			p = w.start(w.t)
		}
	}()
	return func() *process {
		cancel()
		p := <-last
		p.kill()
		return w.start(w.t)
	}, func() int { return n }
}

// checkRunning: pods that nobody stopped still have their instances.
func (w *world) checkRunning(chosen []int) {
	w.t.Helper()
	alive := map[string]bool{}
	lines, err := w.cloud.Leaks()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, line := range lines {
		alive[line.Key] = true
	}
	for n, fate := range chosen {
		if fate == stays && !alive[sandbox(n)] {
			w.t.Errorf("the instance of pod%d was deleted while it ran", n)
		}
	}
}

// checkLedger: no key had two instances, and nothing foreign was deleted.
func (w *world) checkLedger(foreign string) {
	w.t.Helper()
	lines, err := w.cloud.Ledger()
	if err != nil {
		w.t.Fatal(err)
	}
	of := map[string]string{}
	for _, line := range lines {
		if line.Kind != fake.KindInstance {
			continue
		}
		if first, twice := of[line.Key]; twice {
			w.t.Errorf("key %s had two instances: %s and %s", line.Key, first, line.ID)
		}
		of[line.Key] = line.ID
		if line.ID == foreign && !line.Deleted.IsZero() {
			w.t.Errorf("the foreign instance %s was deleted", foreign)
		}
	}
}

func (w *world) peerPods() []string {
	var list v1alpha1.PeerPodList
	if err := w.client.List(w.t.Context(), &list); err != nil {
		return []string{err.Error()}
	}
	var names []string
	for i := range list.Items {
		names = append(names, fmt.Sprintf("%s (deletion %v, %s)", list.Items[i].Name, list.Items[i].DeletionTimestamp, list.Items[i].Status.Phase))
	}
	return names
}

func (w *world) leaks() []string {
	lines, err := w.cloud.Leaks()
	if err != nil {
		return []string{err.Error()}
	}
	var ids []string
	for _, line := range lines {
		if line.Kind == fake.KindInstance {
			ids = append(ids, line.ID)
		}
	}
	return ids
}
