// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/internal/peerpods/handover"
)

// memory is what this process remembers of a pool: what else would be gone with a
// PeerPod. A new process does without.
type memory struct {
	mu sync.Mutex

	// failures are VMs that could not be made, last the newest.
	failures handover.Failures
	last     *v1alpha1.Error

	// full are the zones that had no room, by when one said so last.
	full map[string]time.Time

	// prices are those of an hour, by instance type.
	prices map[string]float64
	priced time.Time

	// claims are when this process saw VMs taken, by name of the PeerPod: the time that
	// stands in a claim is by the clock of a node.
	claims map[string]time.Time
	// begun says that claims of an earlier process are known by now.
	begun bool
	// uncounted is how many claims the status does not count yet.
	uncounted int64
}

// noteClaims notes when the VMs of a pool were taken. Of the claims that it sees first, those
// up to lastHit are counted already, by an earlier process.
func (m *memory) noteClaims(members []*v1alpha1.PeerPod, lastHit *metav1.MicroTime, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	there := map[string]bool{}
	for _, pp := range members {
		there[pp.Name] = true
		claim := pp.Spec.Pool.Claim
		if _, known := m.claims[pp.Name]; known || claim == nil {
			continue
		}
		m.claims[pp.Name] = now
		if !m.begun && lastHit != nil && !claim.Time.After(lastHit.Time) {
			m.claims[pp.Name] = claim.Time.Time
		} else {
			m.uncounted++
		}
	}
	m.begun = true
	maps.DeleteFunc(m.claims, func(name string, seen time.Time) bool { return !there[name] && now.Sub(seen) > surplusAfter })
}

// recent returns how many VMs were taken within that time.
func (m *memory) recent(within time.Duration, now time.Time) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, seen := range m.claims {
		if now.Sub(seen) < within {
			n++
		}
	}
	return n
}

// hits returns how many claims the status does not count yet, and what to call once it does.
func (m *memory) hits() (n int64, counted func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n = m.uncounted
	return n, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.uncounted -= n
	}
}

func (m *memory) pause(now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failures.Pause(now)
}

func (m *memory) lastError() *v1alpha1.Error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// note notes an error that may go by itself, at most once in a while: each is a write to
// the API server.
func (m *memory) note(step string, err error, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last != nil && now.Sub(m.last.Time.Time) < poolPeriod {
		return
	}
	m.last = claims.Error(step, err, now)
}

// fail notes an error.
func (m *memory) fail(step string, err error, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = claims.Error(step, err, now)
	m.failures.Add(err, now)
}

func (m *memory) succeed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failures, m.last = handover.Failures{}, nil
}

func (m *memory) fullIn(zone string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.full[zone] = now
}

// fullSince returns 1 if the zone had no room a while ago, and 0 otherwise.
func (m *memory) fullSince(zone string, now time.Time) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if since, full := m.full[zone]; full && now.Sub(since) < fullFor {
		return 1
	}
	return 0
}

// pricesOf returns the prices, which it asks for once in a while: the cloud, so that nobody waits for it here.
func (m *memory) pricesOf(now time.Time, ask func() map[string]float64) map[string]float64 {
	m.mu.Lock()
	prices, age := m.prices, now.Sub(m.priced)
	m.mu.Unlock()
	if age >= 0 && age < pricesAge {
		return prices
	}
	prices = ask()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.prices, m.priced = prices, now
	return prices
}
