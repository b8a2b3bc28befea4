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

// An object that is written the same way this often has a conflicting manager: another
// controller, or an admission webhook that makes something else of it each time. It is
// then written with exponential backoff, and the conflict is forgotten when the object
// has been as wanted for calm. A few edits by a person are not a conflict.
const (
	oftenWritten = 20
	firstRest    = time.Minute
	longestRest  = 30 * time.Minute
	calm         = 10 * time.Minute
)

// conflict is the history of writes of one object.
type conflict struct {
	// wanted is the sum of what was to be there.
	wanted string
	// left is the object as the last write left it.
	left  *unstructured.Unstructured
	times int
	last  time.Time
	// what is said of it: the field, and who changes it.
	what string
}

func (c *conflict) rest() time.Duration {
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

// wrote notes a write.
func (a *Applier) wrote(d item, trial, is *unstructured.Unstructured) {
	ref, sum := refOf(d.object), d.object.GetAnnotations()[SpecHashAnnotation]
	c := a.conflicts[ref]
	if c == nil || c.wanted != sum {
		c = &conflict{wanted: sum}
	}
	c.times, c.last, c.left = c.times+1, a.now(), is
	if d.kind.made(trial, d.object) != d.kind.made(is, d.object) {
		c.what = difference(content(trial), content(is)) + " is made something else each time, by an admission webhook"
	}
	if a.conflicts == nil {
		a.conflicts = map[Ref]*conflict{}
	}
	a.conflicts[ref] = c
}

// rests reports whether an object that is not as wanted is left alone for now.
func (a *Applier) rests(ctx context.Context, d item, existing *unstructured.Unstructured) bool {
	c := a.conflicts[refOf(d.object)]
	if c == nil || c.wanted != d.object.GetAnnotations()[SpecHashAnnotation] || c.times < oftenWritten {
		return false
	}
	if c.what == "" {
		c.what = a.conflictingManager(ctx, d, existing, c.left)
	}
	return a.now().Sub(c.last) < c.rest()
}

// contested are the objects with a conflicting manager, and when one is written again. What has
// been calm for long enough, or is not wanted any more, is forgotten.
func (a *Applier) contested(desired []item) (all []string, again time.Duration) {
	now := a.now()
	maps.DeleteFunc(a.conflicts, func(ref Ref, c *conflict) bool {
		return now.Sub(c.last) >= c.rest()+calm || !slices.ContainsFunc(desired, func(d item) bool { return refOf(d.object) == ref })
	})
	for ref, c := range a.conflicts {
		if c.times < oftenWritten || c.what == "" {
			continue
		}
		all = append(all, fmt.Sprintf("%s: %s; it is written with growing backoff: stop one of the two", ref, c.what))
		left := c.rest() - now.Sub(c.last)
		if left <= 0 {
			left += calm // nobody changed it back: then it is forgotten
		}
		if left = max(left, time.Second); again == 0 || left < again {
			again = left
		}
	}
	slices.Sort(all)
	return all, again
}

// conflictingManager returns which field is changed back, and by which manager, if the API
// server knows.
func (a *Applier) conflictingManager(ctx context.Context, d item, existing, left *unstructured.Unstructured) string {
	path := difference(content(left), content(existing))
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
	// A cache does not keep who has written what.
	if live := existing.DeepCopy(); a.live(ctx, live) == nil {
		if name := lastManager(live.GetManagedFields(), path, a.Manager); name != "" {
			by = ", by " + name
		}
	}
	return path + " is changed back each time it is written" + by
}

// difference is the path of the first field in which two values differ; empty if
// there is none.
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
			if found := differs(x[key], y[key], path+"."+key); found != "" {
				return found
			}
		}
	}
	l, isList := a.([]any)
	m, both := b.([]any)
	if isList && both && len(l) == len(m) {
		for i := range l {
			if found := differs(l[i], m[i], fmt.Sprintf("%s[%d]", path, i)); found != "" {
				return found
			}
		}
	}
	return path
}

// lastManager returns the last other manager that wrote a field. Lists are compared
// as a whole.
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
