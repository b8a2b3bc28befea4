// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// selected returns the resources that a list shows, in a stable order, from
// the page on that is asked for, and the token of the next page.
func (s *Sim) selected(c *call, items []map[string]any) (page []map[string]any, next string, err error) {
	conditions, err := parseFilter(c.query.Get("filter"))
	if err != nil {
		return nil, "", refuse(http.StatusBadRequest, "invalid", "%v", err)
	}
	items = slices.DeleteFunc(items, func(o map[string]any) bool { return !all(conditions, o) })
	slices.SortFunc(items, func(a, b map[string]any) int {
		return cmp.Or(cmp.Compare(text(a, "zone"), text(b, "zone")), cmp.Compare(text(a, "name"), text(b, "name")))
	})
	size := s.MaxPage
	if asked := c.query.Get("maxResults"); asked != "" {
		n, _ := strconv.Atoi(asked)
		if n > 500 {
			return nil, "", invalid("maxResults", asked, "Values must be within the range: [0, 500]")
		}
		size = min(size, n)
	}
	if token := c.query.Get("pageToken"); token != "" {
		after := slices.IndexFunc(items, func(o map[string]any) bool { return place(o) > token })
		if after < 0 {
			return nil, "", nil
		}
		items = items[after:]
	}
	if len(items) <= size {
		return items, "", nil
	}
	return items[:size], place(items[size-1]), nil
}

func place(o map[string]any) string { return text(o, "zone") + "/" + text(o, "name") }

// page is a list of one zone.
func (s *Sim) page(c *call, kind string, items []map[string]any) (any, error) {
	shown, next, err := s.selected(c, items)
	if err != nil {
		return nil, err
	}
	answer := map[string]any{"kind": kind}
	if len(shown) > 0 {
		answer["items"] = shown
	}
	if next != "" {
		answer["nextPageToken"] = next
	}
	return answer, nil
}

// aggregated is a list of all zones.
func (s *Sim) aggregated(c *call, name string, items []map[string]any) (any, error) {
	items = slices.DeleteFunc(items, func(o map[string]any) bool { return s.unreachable[last(text(o, "zone"))] })
	shown, next, err := s.selected(c, items)
	if err != nil {
		return nil, err
	}
	scopes := map[string]any{}
	var missing []string
	for _, zone := range Zones {
		if s.unreachable[zone] {
			missing = append(missing, "projects/"+Project+"/zones/"+zone)
			continue
		}
		in := []any{}
		for _, o := range shown {
			if last(text(o, "zone")) == zone {
				in = append(in, o)
			}
		}
		if len(in) > 0 {
			scopes["zones/"+zone] = map[string]any{name: in}
			continue
		}
		scopes["zones/"+zone] = map[string]any{"warning": map[string]any{
			"code": "NO_RESULTS_ON_PAGE", "message": fmt.Sprintf("There are no results for scope 'zones/%s' on this page.", zone),
		}}
	}
	if len(missing) > 0 && c.query.Get("returnPartialSuccess") != "true" {
		return nil, refuse(http.StatusServiceUnavailable, "backendError", "%v cannot be reached", missing)
	}
	answer := map[string]any{"items": scopes, "unreachables": missing}
	if next != "" {
		answer["nextPageToken"] = next
	}
	return answer, nil
}

func (s *Sim) listInstances(c *call) (any, error) {
	items, err := s.shown(c)
	if err != nil {
		return nil, err
	}
	return s.aggregated(c, "instances", items)
}

func (s *Sim) listZoneInstances(c *call) (any, error) {
	items, err := s.shown(c)
	if err != nil {
		return nil, err
	}
	items = slices.DeleteFunc(items, func(vm map[string]any) bool { return last(text(vm, "zone")) != c.path["zone"] })
	return s.page(c, "compute#instanceList", items)
}

// shown returns the instances that a list shows by now.
func (s *Sim) shown(c *call) ([]map[string]any, error) {
	conditions, err := parseFilter(c.query.Get("filter"))
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "invalid", "%v", err)
	}
	var items []map[string]any
	for _, vm := range s.instances {
		if all(conditions, vm) && s.World.Visible(cloudsim.KindInstance, text(vm, "id")) {
			items = append(items, vm)
		}
	}
	return items, nil
}

func (s *Sim) listDisks(c *call) (any, error) {
	var items []map[string]any
	for _, disk := range s.disks {
		items = append(items, disk)
	}
	return s.aggregated(c, "disks", items)
}

func (s *Sim) deleteDisk(c *call) (any, error) {
	if again, err := s.repeated(c); again != nil || err != nil {
		return resourceOf(again), err
	}
	at, disk, err := s.diskOf(c)
	if err != nil {
		return nil, err
	}
	if user := user(disk); user != "" {
		return nil, refuse(http.StatusBadRequest, "resourceInUseByAnotherResource", "The disk resource '%s' is already being used by '%s'", at, user)
	}
	op := s.begin(c, "delete", c.path["zone"], text(disk, "selfLink"), disk["id"])
	s.World.Deleting(cloudsim.KindDisk, text(disk, "id"))
	s.later(func() {
		s.dropDisk(at, disk)
		s.finish(op)
	})
	return op.resource, nil
}
