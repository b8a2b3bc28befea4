// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"time"

	"github.com/moby/moby/api/types/events"
	"github.com/moby/moby/client"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// Enqueuers returns those that are called when there is news of a DockerCluster or a DockerMachine.
func (b *Backend) Enqueuers() (clusters, machines *reconciler.Enqueuer) {
	return &b.clusters, &b.machines
}

// machineOwner is the object to reconcile again. Its zero value is none.
type machineOwner struct {
	enqueuer *reconciler.Enqueuer
	name     types.NamespacedName
}

func (w machineOwner) enqueue() {
	if w.enqueuer != nil {
		w.enqueuer.Enqueue(w.name)
	}
}

func (b *Backend) ownerOf(labels map[string]string) machineOwner {
	w := machineOwner{name: types.NamespacedName{Namespace: labels[labelNamespace], Name: labels[labelName]}}
	switch {
	case ofMachine(labels):
		w.enqueuer = &b.machines
	case labels[labelRole] == roleLoadBalancer:
		w.enqueuer = &b.clusters
	}
	return w
}

// Actions of containers that are news.
var actions = []events.Action{events.ActionStart, events.ActionDie, events.ActionStop, events.ActionDestroy, events.ActionPause, events.ActionUnPause}

// reconnect is the pause before reconnecting to an unreachable engine's events.
var reconnect = poll.Pace{First: time.Second, Max: 30 * time.Second}

// Watch enqueues the objects of a namespace, or of all, whose containers have
// events, until ctx ends.
func (b *Backend) Watch(ctx context.Context, namespace string) error {
	for ctx.Err() == nil {
		_ = reconnect.Until(ctx, func() (bool, error) { return b.follow(ctx, namespace), nil })
	}
	return nil
}

// follow handles events until the stream ends, and reports whether that lasted for
// a while. It first enqueues all objects with a container, as it may have missed
// events; those without one poll.
func (b *Backend) follow(ctx context.Context, namespace string) bool {
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wanted := client.Filters{}.Add("type", string(events.ContainerEventType)).Add("label", labelKey)
	for _, action := range actions {
		wanted = wanted.Add("event", string(action))
	}
	stream := b.engine.Events(ctx, client.EventsListOptions{Filters: wanted})
	there, err := b.engine.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", labelKey)})
	if err != nil {
		return false
	}
	for _, c := range there.Items {
		b.wakeFor(namespace, c.Labels)
	}
	for {
		select {
		case m := <-stream.Messages:
			b.pass(namespace, m)
		case <-stream.Err:
			return time.Since(began) > reconnect.Max
		}
	}
}

// pass handles an event. The engine restarts a load balancer that has died:
// whether it did can only be seen later.
func (b *Backend) pass(namespace string, m events.Message) {
	if m.Action == events.ActionDie && m.Actor.Attributes[labelRole] == roleLoadBalancer {
		time.AfterFunc(healing, func() { b.wakeFor(namespace, m.Actor.Attributes) })
		return
	}
	b.wakeFor(namespace, m.Actor.Attributes)
}

// wakeFor enqueues an object, unless it is in another manager's namespace.
func (b *Backend) wakeFor(namespace string, labels map[string]string) {
	if w := b.ownerOf(labels); namespace == "" || w.name.Namespace == namespace {
		w.enqueue()
	}
}
