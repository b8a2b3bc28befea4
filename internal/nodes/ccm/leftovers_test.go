// SPDX-License-Identifier: Apache-2.0

package ccm

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/provider"
)

// TestLeftovers: what has no Service is deleted, after a while and not before;
// nothing else is.
func TestLeftovers(t *testing.T) {
	s := &balancing{sky: &sky{}, made: map[string]provider.LoadBalancerSpec{}}
	put := func(key string, tags map[string]string) {
		s.made[key] = provider.LoadBalancerSpec{Key: key, Tags: tags}
	}
	ours := map[string]string{provider.TagCluster: "c1", tagService: "web.front"}
	put("a0d3f11", ours) // of service()
	put("ater", ours)    // of the other Service: before the UID comes an a
	put("left", ours)
	put("another-clusters", map[string]string{provider.TagCluster: "c2", tagService: "web.front"})
	put("no-services", map[string]string{provider.TagCluster: "c1"})
	now := time.Now()
	c, err := New(Options{Name: "sky", Provider: s, Tags: map[string]string{provider.TagCluster: "c1"}, LeftAfter: 9 * time.Minute, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	other := *service()
	other.UID = "ter"
	there := []v1.Service{*service(), other}
	var failing error
	l := c.Leftovers(func(context.Context) ([]v1.Service, error) { return there, failing }, slog.New(slog.DiscardHandler))
	want := func(when string, minutes int, keys ...string) {
		t.Helper()
		for range minutes / 3 {
			if err := l.collect(t.Context()); !errors.Is(err, failing) {
				t.Errorf("%s: %v", when, err)
			}
			now = now.Add(3 * time.Minute)
		}
		if diff := cmp.Diff(keys, slices.Sorted(maps.Keys(s.made))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	all := []string{"a0d3f11", "another-clusters", "ater", "left", "no-services"}
	want("before it is time", 9, all...)
	failing = errors.New("the API server does not answer")
	want("without a list of Services", 30, all...)
	failing = nil
	want("when it is time", 3, "a0d3f11", "another-clusters", "ater", "no-services")
	there = there[:1]
	want("a Service is just gone", 9, "a0d3f11", "another-clusters", "ater", "no-services")
	there = append(there, other)
	want("it was there again", 9, "a0d3f11", "another-clusters", "ater", "no-services")
	there = there[:1]
	want("gone for good", 12, "a0d3f11", "another-clusters", "no-services")
}

// TestLeftoversEnd: the loop looks at once, and ends with its context.
func TestLeftoversEnd(t *testing.T) {
	s := &balancing{sky: &sky{}, made: map[string]provider.LoadBalancerSpec{}}
	for _, after := range []time.Duration{time.Nanosecond, time.Hour} {
		c, err := New(Options{Name: "sky", Provider: s, Tags: map[string]string{provider.TagCluster: "c1"}, LeftAfter: after})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		c.Leftovers(func(context.Context) ([]v1.Service, error) { cancel(); return nil, ctx.Err() }, slog.New(slog.DiscardHandler)).Run(ctx)
		if ctx.Err() == nil {
			t.Errorf("with %s it never looked", after)
		}
	}
}

func TestLeftoversAreNotLookedForWithoutTags(t *testing.T) {
	s := &balancing{sky: &sky{}, made: map[string]provider.LoadBalancerSpec{}}
	for name, o := range map[string]Options{
		"without tags": {LeftAfter: time.Minute}, "when told so": {Tags: map[string]string{provider.TagCluster: "c1"}},
	} {
		o.Name, o.Provider = "sky", s
		c, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		if c.Leftovers(nil, nil) != nil {
			t.Errorf("%s: they are looked for", name)
		}
	}
}
