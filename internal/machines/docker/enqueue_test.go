// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"

	"github.com/outrigger/outrigger/internal/machines/reconciler"
)

// queues have those that a backend wakes.
func queues(t *testing.T, b *Backend) (clusters, machines requests) {
	t.Helper()
	start := func(w *reconciler.Enqueuer) requests {
		q := newQueue(t)
		if err := w.Source().Start(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		return q
	}
	c, m := b.Enqueuers()
	return start(c), start(m)
}

// TestWatch wakes those whose containers are there when it begins, and those of
// which the engine tells something, of the manager's namespace.
func TestWatch(t *testing.T) {
	labels := func(namespace, name, role string) string {
		return fmt.Sprintf(`"infrastructure.outrigger.dev/namespace": %q, "infrastructure.outrigger.dev/name": %q, "infrastructure.outrigger.dev/role": %q`, namespace, name, role)
	}
	message := func(action, namespace, name, role string) string {
		return fmt.Sprintf(`{"Type": "container", "Action": %q, "Actor": {"Attributes": {%s}}}`, action, labels(namespace, name, role)) + "\n"
	}
	b, s := scripted(t, func(_, path string) (int, string) {
		switch path {
		case "/containers/json":
			return 200, `[{"Id": "a", "Labels": {` + labels("ns", "there", roleWorker) + `}}, {"Id": "b", "Labels": {` + labels("other", "there-too", roleWorker) + `}}]`
		case "/events":
			return 200, message("die", "ns", "died", roleControlPlane) + message("die", "other", "foreign", roleWorker) + message("start", "ns", "nobody", "") +
				message("die", "ns", "restarts", roleLoadBalancer) + message("destroy", "ns", "destroyed", roleLoadBalancer)
		}
		return 404, `{}`
	})
	clusters, machines := queues(t, b)
	ctx, cancel := context.WithCancel(t.Context())
	ended, began := make(chan error), time.Now()
	go func() { ended <- b.Watch(ctx, "ns") }()
	for got := ""; got != "destroyed"; { // the last of the messages
		got = woken(clusters, 1)
		if got != "destroyed" && time.Since(began) < healing {
			t.Errorf("cluster %s is woken", got)
		}
	}
	if got := woken(machines, 2); got != "died there" {
		t.Errorf("machines %s", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// What lasts no while is not asked for again at once.
	if n := strings.Count(strings.Join(s.calls, " "), "GET /events"); n > 3+int(time.Since(began)/time.Second) {
		t.Errorf("events were asked for %d times in %s", n, time.Since(began))
	}
	if machines.Len() > 2 { // the same ones again
		t.Errorf("%d machines more", machines.Len())
	}
}

// TestPulledForAll: all who wait for an image are woken when it is there.
func TestPulledForAll(t *testing.T) {
	b, _ := scripted(t, func(_, path string) (int, string) {
		if strings.HasSuffix(path, "/json") {
			return 404, `{"message": "No such image: i"}`
		}
		return 200, "" // the pull
	})
	b.cfg.Pull = true
	clusters, machines := queues(t, b)
	for range taskSlots { // none is free until all have asked
		b.tasks.slots <- struct{}{}
	}
	for _, labels := range []map[string]string{
		{labelName: "m1", labelRole: roleWorker}, {labelName: "m2", labelRole: roleControlPlane}, {labelName: "c", labelRole: roleLoadBalancer},
	} {
		if done, err := b.ensureImage(t.Context(), "i", b.ownerOf(labels)); done || err != nil {
			t.Fatal(done, err)
		}
	}
	<-b.tasks.slots
	if got := woken(machines, 2) + " " + woken(clusters, 1); got != "m1 m2 c" {
		t.Errorf("woken: %s", got)
	}
}

// TestPulledAgain: an image that was pulled and removed since is not taken to be
// there.
func TestPulledAgain(t *testing.T) {
	there := false // by the lock of the engine
	b, s := scripted(t, func(method, path string) (int, string) {
		switch {
		case method == "POST":
			there = true
			return 200, ""
		case there:
			return 200, `{}`
		}
		return 404, `{"message": "No such image: i"}`
	})
	b.cfg.Pull = true
	_, machines := queues(t, b)
	who := b.ownerOf(map[string]string{labelName: "m", labelRole: roleWorker})
	for range 2 {
		if done, err := b.ensureImage(t.Context(), "i", who); done || err != nil {
			t.Fatalf("before the pull: %v, %v", done, err)
		}
		if got := woken(machines, 1); got != "m" {
			t.Errorf("woken: %s", got)
		}
		if done, err := b.ensureImage(t.Context(), "i", who); !done || err != nil {
			t.Fatalf("after the pull: %v, %v", done, err)
		}
		s.mu.Lock()
		there = false
		s.mu.Unlock()
	}
}

// TestPace: what takes long is looked at less often.
func TestPace(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for ago, want := range map[time.Duration]time.Duration{0: soon, 20 * time.Second: 2 * time.Second, time.Hour: healing, -time.Hour: soon} {
		c := &container.InspectResponse{Created: now.Add(-ago).Format(time.RFC3339Nano)}
		if got := (machine{}).pace(c, now); got != want {
			t.Errorf("after %s: %s, want %s", ago, got, want)
		}
	}
}
