// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// createSnapshot takes what is on the disk when the snapshot begins to be uploaded.
func (s *Sim) createSnapshot(c *call) (any, error) {
	if again, err := s.repeated(c); again != nil || err != nil {
		return resourceOf(again), err
	}
	at, disk, err := s.diskOf(c)
	if err != nil {
		return nil, err
	}
	name := text(c.body, "name")
	switch {
	case s.snapshots[name] != nil:
		return nil, refuse(http.StatusConflict, "alreadyExists", "The resource 'projects/%s/global/snapshots/%s' already exists", Project, name)
	case disk["status"] != "READY":
		return nil, refuse(http.StatusBadRequest, "resourceNotReady", "The resource '%s' is not ready", at)
	case len(text(c.body, "description")) > maxDescription:
		return nil, invalid("resource.description", "…", "Must be at most 2048 characters.")
	}
	if err := checkLabels("resource.labels", object(c.body, "labels")); err != nil {
		return nil, err
	}
	snapshot := normal(c.body).(map[string]any)
	maps.Copy(snapshot, map[string]any{
		"kind": "compute#snapshot", "id": fmt.Sprint(s.number()), "status": "CREATING", "creationTimestamp": s.stamp(), "selfLink": s.link("global/snapshots/%s", name),
		"sourceDisk": disk["selfLink"], "sourceDiskId": disk["id"], "diskSizeGb": disk["sizeGb"],
	})
	s.snapshots[name] = snapshot
	s.World.Add(KindSnapshot, text(snapshot, "id"), s.TagsOf(snapshot))
	op := s.begin(c, "createSnapshot", c.path["zone"], text(disk, "selfLink"), disk["id"])
	s.later(func() {
		op.resource["status"] = "RUNNING"
	}, func() {
		if fault := s.World.Called(Late("createSnapshot", c.path["zone"])); fault != nil && fault.Code != "" {
			snapshot["status"] = "FAILED"
			s.fail(op, *fault)
			return
		}
		snapshot["status"] = "UPLOADING"
		s.contents[text(snapshot, "id")] = s.contents[text(disk, "id")]
		s.later(func() {
			snapshot["status"] = "READY"
			s.finish(op)
		})
	})
	return op.resource, nil
}

func (s *Sim) snapshotOf(c *call) (map[string]any, error) {
	for name, snapshot := range s.snapshots {
		if name == c.path["snapshot"] || snapshot["id"] == c.path["snapshot"] {
			return snapshot, nil
		}
	}
	return nil, notFound("projects/" + Project + "/global/snapshots/" + c.path["snapshot"])
}

func (s *Sim) getSnapshot(c *call) (any, error) {
	snapshot, err := s.snapshotOf(c)
	return snapshot, err
}

func (s *Sim) listSnapshots(c *call) (any, error) {
	return s.page(c, "compute#snapshotList", slices.Collect(maps.Values(s.snapshots)))
}

func (s *Sim) deleteSnapshot(c *call) (any, error) {
	if again, err := s.repeated(c); again != nil || err != nil {
		return resourceOf(again), err
	}
	snapshot, err := s.snapshotOf(c)
	if err != nil {
		return nil, err
	}
	if snapshot["status"] == "CREATING" || snapshot["status"] == "UPLOADING" {
		return nil, refuse(http.StatusBadRequest, "resourceNotReady", "The resource '%s' is not ready", text(snapshot, "name"))
	}
	op := s.begin(c, "delete", "global", text(snapshot, "selfLink"), snapshot["id"])
	s.World.Deleting(KindSnapshot, text(snapshot, "id"))
	snapshot["status"] = "DELETING"
	s.later(func() {
		delete(s.snapshots, text(snapshot, "name"))
		s.World.Remove(KindSnapshot, text(snapshot, "id"))
		s.finish(op)
	})
	return op.resource, nil
}

// ForeignDisk makes a disk of somebody else's and a snapshot of it, with a description and labels as ours have them,
// and returns a function that removes both.
func (s *Sim) ForeignDisk(description string, labels map[string]string) (diskID, snapshotID string, remove func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, zone := fmt.Sprintf("somebodys-%d", s.number()), Zones[0]
	made := func(link string, more map[string]any) map[string]any {
		o := map[string]any{
			"name": name, "id": fmt.Sprint(s.number()), "description": description, "labels": normal(labels), "status": "READY",
			"selfLink": link, "creationTimestamp": s.stamp(),
		}
		maps.Copy(o, more)
		return o
	}
	disk := made(s.link("zones/%s/disks/%s", zone, name), map[string]any{
		"zone": s.link("zones/%s", zone), "type": s.link("zones/%s/diskTypes/pd-ssd", zone), "sizeGb": "10", "users": []any{},
	})
	snapshot := made(s.link("global/snapshots/%s", name), map[string]any{"sourceDisk": disk["selfLink"], "diskSizeGb": "10"})
	s.disks[zone+"/"+name], s.snapshots[name] = disk, snapshot
	s.World.AddForeign(cloudsim.KindDisk, text(disk, "id"), s.TagsOf(disk))
	s.World.AddForeign(KindSnapshot, text(snapshot, "id"), s.TagsOf(snapshot))
	return zone + "/" + name, name, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.disks[zone+"/"+name] == nil || s.snapshots[name] == nil {
			return fmt.Errorf("disk or snapshot %s is gone", name)
		}
		delete(s.disks, zone+"/"+name)
		delete(s.snapshots, name)
		return nil
	}
}

// WriteDisk writes the first bytes of a disk.
func (s *Sim) WriteDisk(id string, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.disks[id] == nil {
		return fmt.Errorf("no disk %s", id)
	}
	s.contents[text(s.disks[id], "id")] = slices.Clone(data)
	return nil
}

// ReadDisk reads what WriteDisk has written to a disk, or to what it is a copy of.
func (s *Sim) ReadDisk(id string, bytes int) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.disks[id] == nil {
		return nil, fmt.Errorf("no disk %s", id)
	}
	return append(slices.Clone(s.contents[text(s.disks[id], "id")]), make([]byte, bytes)...)[:bytes], nil
}
