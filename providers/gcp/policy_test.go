// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"maps"
	"slices"
	"sync"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// seen are the calls of all tests, used the permissions that they needed.
var (
	seen cloudsim.Actions
	used permissionSet
)

type permissionSet struct {
	mu    sync.Mutex
	names map[string]bool
}

func (s *permissionSet) add(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names == nil {
		s.names = map[string]bool{}
	}
	for _, name := range names {
		s.names[name] = true
	}
}

func (s *permissionSet) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.names))
}
