// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// An object that is written oftenWritten times with the same content has a conflicting
// manager: another controller, or an admission webhook that changes each write. From
// then on it is written with exponential backoff. The conflict is forgotten when the
// object has stayed as wanted for the time of calm. A few edits by a person are not a
// conflict.
const (
	oftenWritten = 20
	firstRest    = time.Minute
	longestRest  = 30 * time.Minute
	calm         = 10 * time.Minute
)

// conflict is the history of writes of one object.
type conflict struct {
	// wanted is the hash of the content that was written.
	wanted string
	// written is the object after the last write.
	written *unstructured.Unstructured
	times   int
	last    time.Time
	// what says which field is changed, and by whom.
	what string
}

func (c *conflict) backoff() time.Duration {
	if c.times < oftenWritten {
		return 0
	}
	return min(firstRest<<min(c.times-oftenWritten, 10), longestRest)
}

func (a *Applier) now() time.Time {
	if a.Now == nil {
		return time.Now()
	}
	return a.Now()
}

// recordWrite adds a write to an object's history. trial is what the dry run returned,
// is what the API server stored.
func (a *Applier) recordWrite(d item, trial, is *unstructured.Unstructured) {
	ref, sum := refOf(d.object), d.object.GetAnnotations()[SpecHashAnnotation]
	c := a.conflicts[ref]
	if c == nil || c.wanted != sum {
		c = &conflict{wanted: sum}
	}
	c.times, c.last, c.written = c.times+1, a.now(), is
	if d.kind.made(trial, d.object) != d.kind.made(is, d.object) {
		c.what = difference(content(trial), content(is)) + " is made something else each time, by an admission webhook"
	}
	if a.conflicts == nil {
		a.conflicts = map[Ref]*conflict{}
	}
	a.conflicts[ref] = c
}

// backsOff reports whether an object that is not as wanted is left alone for now.
func (a *Applier) backsOff(ctx context.Context, d item, existing *unstructured.Unstructured) bool {
	c := a.conflicts[refOf(d.object)]
	if c == nil || c.wanted != d.object.GetAnnotations()[SpecHashAnnotation] || c.times < oftenWritten {
		return false
	}
	if c.what == "" {
		c.what = a.conflictingManager(ctx, d, existing, c.written)
	}
	return a.now().Sub(c.last) < c.backoff()
}

// contested describes the objects with a conflicting manager, and returns the time until
// the next of them is written again. It forgets objects that have been calm for long
// enough, or are not wanted any more.
func (a *Applier) contested(desired []item) (all []string, again time.Duration) {
	now := a.now()
	maps.DeleteFunc(a.conflicts, func(ref Ref, c *conflict) bool {
		return now.Sub(c.last) >= c.backoff()+calm || !slices.ContainsFunc(desired, func(d item) bool { return refOf(d.object) == ref })
	})
	for ref, c := range a.conflicts {
		if c.times < oftenWritten || c.what == "" {
			continue
		}
		all = append(all, fmt.Sprintf("%s: %s; it is written with growing backoff: stop one of the two", ref, c.what))
		wait := c.backoff() - now.Sub(c.last)
		if wait <= 0 {
			wait += calm // nobody has changed it back; it is forgotten after that time
		}
		if wait = max(wait, time.Second); again == 0 || wait < again {
			again = wait
		}
	}
	slices.Sort(all)
	return all, again
}

// conflictingManager describes which field is changed back, and by which manager if the
// API server knows.
func (a *Applier) conflictingManager(ctx context.Context, d item, existing, written *unstructured.Unstructured) string {
	path := difference(content(written), content(existing))
	for field, lists := range map[string][2]map[string]string{
		"labels": {d.object.GetLabels(), existing.GetLabels()}, "annotations": {d.object.GetAnnotations(), existing.GetAnnotations()},
	} {
		for key, value := range lists[0] {
			if path == "" && lists[1][key] != value {
				path = "metadata." + field + "." + key
			}
		}
	}
	if path == "" {
		path = "it"
	}
	by := ""
	// A cache drops managedFields.
	if live := existing.DeepCopy(); a.live(ctx, live) == nil {
		if name := lastManager(live.GetManagedFields(), path, a.Manager); name != "" {
			by = ", by " + name
		}
	}
	return path + " is changed back each time it is written" + by
}

// difference returns the path of the first field in which two values differ; empty if
// they are equal.
func difference(a, b any) string { return strings.TrimPrefix(differs(a, b, ""), ".") }

func differs(a, b any, path string) string {
	if reflect.DeepEqual(a, b) {
		return ""
	}
	x, isMap := a.(map[string]any)
	y, both := b.(map[string]any)
	if isMap && both {
		keys := slices.Sorted(maps.Keys(x))
		for _, key := range slices.Sorted(maps.Keys(y)) {
			if _, has := x[key]; !has {
				keys = append(keys, key)
			}
		}
		for _, key := range keys {
			if field := differs(x[key], y[key], path+"."+key); field != "" {
				return field
			}
		}
	}
	l, isList := a.([]any)
	m, both := b.([]any)
	if isList && both && len(l) == len(m) {
		for i := range l {
			if field := differs(l[i], m[i], fmt.Sprintf("%s[%d]", path, i)); field != "" {
				return field
			}
		}
	}
	return path
}

// lastManager returns the last manager other than us that wrote a field. An index in
// path is ignored: it returns the manager of the whole list.
func lastManager(all []metav1.ManagedFieldsEntry, path, us string) string {
	path, _, _ = strings.Cut(path, "[")
	name, newest := "", time.Time{}
	for _, e := range all {
		if e.Manager == us || e.FieldsV1 == nil || e.Time == nil || e.Time.Time.Before(newest) {
			continue
		}
		var fields map[string]any
		if yaml.Unmarshal(e.FieldsV1.GetRawBytes(), &fields) == nil && hasField(fields, strings.Split(path, ".")) {
			name, newest = e.Manager, e.Time.Time
		}
	}
	return name
}

// hasField looks for a path; the key of a label may have dots.
func hasField(fields map[string]any, path []string) bool {
	if len(path) == 0 {
		return true
	}
	for n := 1; n <= len(path); n++ {
		if below, has := fields["f:"+strings.Join(path[:n], ".")].(map[string]any); has && hasField(below, path[n:]) {
			return true
		}
	}
	return false
}
