// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/outrigger/outrigger/provider"
)

// Kind is what a resource is.
type Kind string

// Kinds of resources.
const (
	KindInstance Kind = "instance"
	KindNIC      Kind = "nic"
	KindDisk     Kind = "disk"
	KindAddress  Kind = "address"

	KindLoadBalancer Kind = "load-balancer"
	// KindDataDisk is what CreateDisk makes; KindDisk is that of an instance.
	KindDataDisk Kind = "data-disk"
	KindSnapshot Kind = "snapshot"
)

// Resource is a line of the ledger.
type Resource struct {
	ID   string
	Kind Kind
	// Instance is the id of the instance it belongs to or is; of load balancers, data
	// disks and snapshots their own.
	Instance string
	Key      string
	Tags     map[string]string
	Made     time.Time
	// Deleted is zero while the resource exists.
	Deleted time.Time
}

// state is the whole cloud.
type state struct {
	Serial    int                `json:"serial"`
	Instances map[string]*record `json:"instances"`
	Ledger    []Resource         `json:"ledger"`
	// Balancers are by key.
	Balancers map[string]*balancer `json:"balancers,omitempty"`
	// Disks and Snapshots are by id.
	Disks     map[string]*disk     `json:"disks,omitempty"`
	Snapshots map[string]*snapshot `json:"snapshots,omitempty"`
}

// record is an instance. Gone ones stay only while lists still show them.
type record struct {
	provider.Instance
	Image    string `json:"image"`
	UserData string `json:"userData"`
	Console  []byte `json:"console"`
	// Ready is set when the creation has ended well.
	Ready bool `json:"ready"`
	Gone  bool `json:"gone"`
	// Lists and Gets count down until those show it, or for a gone one until
	// lists do not.
	Lists int `json:"lists"`
	Gets  int `json:"gets"`
}

func newState() *state { return &state{Instances: map[string]*record{}} }

// snapshot returns a copy that shares nothing with the record.
func (r *record) snapshot() provider.Instance {
	instance := r.Instance
	instance.IPs = slices.Clone(instance.IPs)
	instance.Tags = maps.Clone(instance.Tags)
	return instance
}

func (r *record) log(format string, args ...any) {
	r.Console = fmt.Appendf(r.Console, "fake: "+format+"\n", args...)
}

// live returns the instance of that id unless it is gone.
func (s *state) live(id string) *record {
	if r := s.Instances[id]; r != nil && !r.Gone {
		return r
	}
	return nil
}

// existing is live with an error.
func (s *state) existing(id string) (*record, error) {
	if r := s.live(id); r != nil {
		return r, nil
	}
	return nil, notFound(id)
}

func notFound(id string) error { return fmt.Errorf("fake: instance %q: %w", id, provider.ErrNotFound) }

// byKey returns the instance made with key that is not being deleted.
func (s *state) byKey(key string) *record {
	for _, r := range s.Instances {
		if r.Key == key && !r.Gone && r.State != provider.StateDeleting {
			return r
		}
	}
	return nil
}

// sorted returns all records in the order they were made.
func (s *state) sorted() []*record {
	return slices.SortedFunc(maps.Values(s.Instances), func(a, b *record) int { return cmp.Compare(a.ID, b.ID) })
}

func (s *state) count() int {
	n := 0
	for _, r := range s.Instances {
		if !r.Gone {
			n++
		}
	}
	return n
}

// made writes a new resource of an instance into the ledger.
func (s *state) made(r *record, kind Kind, id string, now time.Time) {
	s.Ledger = append(s.Ledger, Resource{ID: id, Kind: kind, Instance: r.ID, Key: r.Key, Tags: maps.Clone(r.Tags), Made: now})
}

// deleted marks the resources of an instance that exist and are of one of
// kinds, or all without kinds.
func (s *state) deleted(instanceID string, now time.Time, kinds ...Kind) {
	for i := range s.Ledger {
		line := &s.Ledger[i]
		if line.Instance == instanceID && line.Deleted.IsZero() && (len(kinds) == 0 || slices.Contains(kinds, line.Kind)) {
			line.Deleted = now
		}
	}
}

// freeAddresses returns n addresses of the network that no instance has,
// leaving out the network's own and the first, as that of a gateway.
func (s *state) freeAddresses(network netip.Prefix, n int) ([]netip.Addr, error) {
	used := s.addresses()
	var free []netip.Addr
	for addr := network.Masked().Addr().Next().Next(); network.Contains(addr); addr = addr.Next() {
		if !used[addr] {
			free = append(free, addr)
		}
		if len(free) == n {
			return free, nil
		}
	}
	return nil, fmt.Errorf("%w: network %s has no address left", provider.ErrCapacity, network)
}

// Ledger returns every resource ever made, in the order of creation.
func (c *Cloud) Ledger() ([]Resource, error) {
	var lines []Resource
	err := c.store.update(func(s *state) error {
		for _, line := range s.Ledger {
			line.Tags = maps.Clone(line.Tags)
			lines = append(lines, line)
		}
		return nil
	})
	return lines, err
}

// Leaks returns every resource that exists. A test that has deleted what it made
// expects none.
func (c *Cloud) Leaks() ([]Resource, error) {
	lines, err := c.Ledger()
	return slices.DeleteFunc(lines, func(line Resource) bool { return !line.Deleted.IsZero() }), err
}

// UserData returns what an instance that exists was made with, or ErrNotFound.
func (c *Cloud) UserData(instanceID string) (string, error) {
	var userData string
	err := c.change(instanceID, func(r *record) { userData = r.UserData })
	return userData, err
}

// WriteConsole adds to the console of an instance that exists.
func (c *Cloud) WriteConsole(instanceID string, text []byte) error {
	return c.change(instanceID, func(r *record) { r.Console = append(r.Console, text...) })
}

// change changes an instance that exists, or returns ErrNotFound.
func (c *Cloud) change(instanceID string, change func(*record)) error {
	return c.store.update(func(s *state) error {
		r, err := s.existing(instanceID)
		if err == nil {
			change(r)
		}
		return err
	})
}
