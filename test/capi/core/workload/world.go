// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"k8s.io/klog/v2"
)

// machine is an instance that has been seen.
type machine struct {
	boot *boot
	// refused is set when its user-data can never boot it.
	refused bool
	joined  bool
	ready   bool
	said    string
}

// world keeps clusters as the instances of the cloud are.
type world struct {
	folder
	clusters *clusters
	prefix   string
	machines map[string]*machine
	// unsettled is set while something waits for another machine.
	unsettled bool
	instances map[string]*instance
}

// follow takes in what has changed in the cloud since it was called last.
func (w *world) follow(ctx context.Context) error {
	instances, changed, err := w.read()
	if err != nil {
		return err
	}
	if changed {
		w.instances = instances
	}
	if !changed && !w.unsettled {
		return nil
	}
	w.unsettled = false
	for id, m := range w.machines {
		if w.instances[id] == nil {
			w.remove(ctx, id, m)
		}
	}
	for id, i := range w.instances {
		w.keep(ctx, id, i)
	}
	return nil
}

func (w *world) remove(ctx context.Context, id string, m *machine) {
	if m.joined {
		if err := w.clusters.leave(ctx, m.boot); err != nil {
			w.later(id, m, err)
			return
		}
		klog.InfoS("machine gone", "instance", id, "node", m.boot.node)
	}
	delete(w.machines, id)
}

func (w *world) keep(ctx context.Context, id string, i *instance) {
	m := w.machines[id]
	if m == nil {
		if !i.running() {
			return
		}
		m = &machine{}
		w.machines[id] = m
	}
	switch {
	case m.refused:
	case !m.joined && i.running():
		w.start(ctx, id, i, m)
	case m.joined && m.ready != i.running():
		if err := w.clusters.setReady(ctx, m.boot, i.running()); err != nil {
			w.later(id, m, err)
			return
		}
		m.ready = i.running()
		klog.InfoS("machine", "instance", id, "node", m.boot.node, "ready", m.ready)
	}
}

func (w *world) start(ctx context.Context, id string, i *instance, m *machine) {
	b, err := readUserData(i, w.prefix)
	if err != nil {
		m.refused = true
		klog.ErrorS(err, "machine does not boot", "instance", id, "name", i.Name)
		return
	}
	m.boot = b
	if err := w.clusters.join(ctx, b); err != nil {
		w.later(id, m, err)
		return
	}
	m.joined, m.ready = true, true
	klog.InfoS("machine joined", "instance", id, "node", b.node, "cluster", b.endpoint, "controlPlane", b.controlPlane)
}

// later says once what is tried again.
func (w *world) later(id string, m *machine, err error) {
	w.unsettled = true
	if m.said != err.Error() {
		m.said = err.Error()
		klog.InfoS("machine waits", "instance", id, "err", err)
	}
}
