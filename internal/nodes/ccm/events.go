// SPDX-License-Identifier: Apache-2.0

package ccm

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// emittedEvent is the last Event of a Node.
type emittedEvent struct {
	reason string
	at     time.Time
}

// failed emits an Event about a Node that could not be initialized.
func (c *Cloud) failed(node *v1.Node, err error) {
	reason := reasonOf(err)
	c.options.Failed(reason)
	kind := v1.EventTypeWarning
	if reason == ReasonForeign {
		kind = v1.EventTypeNormal
	}
	c.emit(node, kind, reason, "the Node is not initialized: "+err.Error())
}

// refuseDeletion emits an Event about why a Node is not deleted, and returns
// err.
func (c *Cloud) refuseDeletion(node *v1.Node, reason string, err error) error {
	c.options.Held(reason)
	if reason != HeldSecondLook {
		c.emit(node, v1.EventTypeWarning, reason, "the Node is not deleted: "+err.Error())
	}
	return err
}

// emit sends an Event unless it is a recent repetition: controllers retry many
// times a minute.
func (c *Cloud) emit(node *v1.Node, kind, reason, text string) {
	now, key := c.options.Now(), string(node.UID)
	c.mu.Lock()
	for other, t := range c.emitted { // also those of Nodes that are gone
		if now.Sub(t.at) >= c.options.RepeatAfter {
			delete(c.emitted, other)
		}
	}
	last, known := c.emitted[key]
	again := !known || last.reason != reason
	if again {
		c.emitted[key] = emittedEvent{reason, now}
	}
	c.mu.Unlock()
	if again && c.events != nil {
		// The Node is named as Events of the node controllers do.
		c.events.Event(&v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}, kind, reason, text)
	}
}

// forget drops the last Event about a Node.
func (c *Cloud) forget(node *v1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.emitted, string(node.UID))
}
