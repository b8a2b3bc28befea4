// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"sync"
	"time"
)

// cache remembers what was looked up, for a while. Errors are not remembered.
type cache[V any] struct {
	mu   sync.Mutex
	held map[string]entry[V]
}

type entry[V any] struct {
	value V
	until time.Time
}

// get returns the value of a name, asking for it if need be. Two that ask at
// the same time both look it up, which does no harm.
func (c *cache[V]) get(ctx context.Context, name string, fresh time.Duration, ask func(context.Context, string) (V, error)) (V, error) {
	c.mu.Lock()
	e, ok := c.held[name]
	c.mu.Unlock()
	if ok && time.Now().Before(e.until) {
		return e.value, nil
	}
	value, err := ask(ctx, name)
	if err != nil {
		return value, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		c.held = map[string]entry[V]{}
	}
	c.held[name] = entry[V]{value, time.Now().Add(fresh)}
	return value, nil
}

// memory is the subnet, by key, where a call of unknown outcome was made.
type memory struct {
	mu      sync.Mutex
	subnets map[string]string
}

func (m *memory) of(key string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.subnets[key]
}

// note remembers the subnet, or forgets the key if it is empty.
func (m *memory) note(key, subnet string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if subnet == "" {
		delete(m.subnets, key)
		return
	}
	m.subnets[key] = subnet
}
