// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
)

// Names are a prefix and a hash of cluster and key: in a zone a disk's name is there once, and in a project a
// snapshot's. None is one that an instance can have, whose root disk would have it too.
const (
	diskPrefix     = "outrigger-disk-"
	snapshotPrefix = "outrigger-snapshot-"
)

func volumeHash(cluster, key string) string {
	sum := sha256.Sum256([]byte(cluster + "/" + key))
	return hex.EncodeToString(sum[:16])
}

// volume is a disk or a snapshot, by the names of the discovery document. A snapshot's size is DiskSizeGB.
type volume struct {
	ID                string            `json:"id,omitempty"`
	Name              string            `json:"name,omitempty"`
	Zone              string            `json:"zone,omitempty"`
	Description       string            `json:"description,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	Status            string            `json:"status,omitempty"`
	Type              string            `json:"type,omitempty"`
	SizeGB            int64             `json:"sizeGb,omitempty,string"`
	DiskSizeGB        int64             `json:"diskSizeGb,omitempty,string"`
	SourceDisk        string            `json:"sourceDisk,omitempty"`
	SourceSnapshot    string            `json:"sourceSnapshot,omitempty"`
	CreationTimestamp string            `json:"creationTimestamp,omitempty"`
	Users             []string          `json:"users,omitempty"`
	Key               *diskKey          `json:"diskEncryptionKey,omitempty"`
}

const (
	diskFields     = "id,name,zone,description,status,type,sizeGb,sourceDisk,sourceSnapshot,creationTimestamp,users"
	snapshotFields = "id,name,description,status,diskSizeGb,sourceDisk,creationTimestamp"
)

func diskPath(at location) string     { return "zones/" + at.zone + "/disks/" + at.name }
func snapshotPath(name string) string { return "global/snapshots/" + name }

func (v *volume) location() location { return location{base(v.Zone), v.Name} }

func (v *volume) bytes() int64 { return (v.SizeGB + v.DiskSizeGB) << 30 }

// ready reports whether a disk can be attached, or what is written now is not in a snapshot any more.
func (v *volume) ready() bool { return v.Status == "READY" || v.Status == "UPLOADING" }

// zoneAndName returns the id of a resource by its link, which ends in zones/ZONE/KIND/NAME; empty if there is none.
func zoneAndName(link string) string {
	_, rest, _ := strings.Cut(link, "/zones/")
	if parts := strings.Split(rest, "/"); len(parts) == 3 {
		return location{parts[0], parts[2]}.String()
	}
	return ""
}

// keyOf returns the key of what was made here; empty for others'.
func (v *volume) keyOf(prefix string) (string, map[string]string) {
	tags := tagsOf(v.Description)
	if key := tags[provider.TagKey]; v.Name == prefix+volumeHash(tags[provider.TagCluster], key) {
		return key, tags
	}
	return "", tags
}

func (v *volume) disk() *provider.Disk {
	d := &provider.Disk{
		ID: v.location().String(), Bytes: v.bytes(), Type: base(v.Type), Zone: base(v.Zone), Created: timeOf(v.CreationTimestamp),
		FromDisk: zoneAndName(v.SourceDisk), FromSnapshot: base(v.SourceSnapshot),
	}
	d.Key, d.Tags = v.keyOf(diskPrefix)
	if len(v.Users) > 0 {
		d.InstanceID = zoneAndName(v.Users[0])
	}
	return d
}

func (v *volume) snapshot() *provider.Snapshot {
	s := &provider.Snapshot{
		ID: v.Name, DiskID: zoneAndName(v.SourceDisk), Bytes: v.bytes(), Ready: v.Status == "READY", Created: timeOf(v.CreationTimestamp),
	}
	s.Key, s.Tags = v.keyOf(snapshotPrefix)
	return s
}

// parsePlace returns false for what can be the id of no disk and of no instance, also of others.
func parsePlace(id string) (location, bool) {
	zone, name, ok := strings.Cut(id, "/")
	return location{zone, name}, ok && zoneName.MatchString(zone) && resourceName.MatchString(name)
}

// getDisk returns ErrNotFound only if the cloud has said that there is none, and never nil.
func (p *Provider) getDisk(ctx context.Context, id string) (*volume, error) {
	place := id
	if path, ok := strings.CutPrefix(id, "projects/"+p.cfg.Project+"/zones/"); ok { // as Google's own driver has it
		place = strings.Replace(path, "/disks/", "/", 1)
	}
	at, ok := parsePlace(place)
	if !ok {
		return &volume{}, fmt.Errorf("%w: no disk %.130q: ids are ZONE/NAME, and zonal disks of project %s", provider.ErrNotFound, id, p.cfg.Project)
	}
	return p.getVolume(ctx, diskPath(at), diskFields)
}

// getSnapshot is as getDisk.
func (p *Provider) getSnapshot(ctx context.Context, id string) (*volume, error) {
	if !resourceName.MatchString(id) {
		return &volume{}, fmt.Errorf("%w: no snapshot %.130q", provider.ErrNotFound, id)
	}
	return p.getVolume(ctx, snapshotPath(id), snapshotFields)
}

func (p *Provider) getVolume(ctx context.Context, path, fields string) (*volume, error) {
	v := &volume{}
	err := p.api.get(ctx, path, url.Values{"fields": {fields}}, v)
	if failure.HasStatus(err, http.StatusNotFound) {
		err = fmt.Errorf("%w: no %s in project %s", provider.ErrNotFound, path, p.cfg.Project)
		if gone := p.ofProject(p.api.get(ctx, "zones/"+p.cfg.Zones[0], nil, nil)); gone != nil {
			err = gone // not even the project is there
		}
	}
	return v, err
}

// making is one disk or snapshot to be made: who asks for it, and where it is then.
type making struct {
	at           location
	create, read string
	body         *volume
}

// makeVolume makes a disk or a snapshot unless it is there, and returns it when it is ready. As with instances the id
// of the request is made from the name: a request that comes late makes nothing again that was deleted meanwhile.
func (p *Provider) makeVolume(ctx context.Context, m making) (v *volume, err error) {
	fields := diskFields
	if strings.HasPrefix(m.read, "global/") {
		fields = snapshotFields
	}
	id := uuid.NewSHA1(namespace, []byte(m.at.String()))
	var op *operation
	err = p.wait.Until(ctx, func() (bool, error) {
		v, err = p.getVolume(ctx, m.read, fields)
		switch {
		case err == nil && v.ready():
			return true, nil
		case err == nil && v.Status == "FAILED" && v.Name == m.at.name:
			return false, p.api.send(ctx, http.MethodDelete, strings.TrimSuffix(m.read, m.at.name)+v.ID, requestID(), nil, nil)
		case err != nil && !errors.Is(err, provider.ErrNotFound):
			return false, err
		case op != nil && op.Status != operationDone:
			if err := p.refresh(ctx, "zones/"+m.at.zone, op); err != nil || op.Status != operationDone {
				return false, err
			}
			if err := op.failure(); !errors.Is(err, provider.ErrAlreadyExists) {
				return false, err
			}
			return false, nil
		case err == nil: // another process makes it, or deletes it
			return false, nil
		case op != nil: // is that of an earlier attempt
			id = follow(id, op)
		}
		op = &operation{}
		err := p.api.send(ctx, http.MethodPost, m.create, url.Values{"requestId": {id.String()}}, m.body, op)
		if failure.HasStatus(err, http.StatusConflict) || busy(err) { // it has just been made, or is being deleted
			op, err = nil, nil
		}
		return false, err
	})
	return v, err
}

// deleteVolume returns when what read reads is gone. It uses the number, which another of the same name has not.
func (p *Provider) deleteVolume(ctx context.Context, read func() (*volume, string, error)) error {
	number := ""
	return p.wait.Until(ctx, func() (bool, error) {
		v, path, err := read()
		switch {
		case errors.Is(err, provider.ErrNotFound), err == nil && number != "" && v.ID != number:
			return true, nil
		case err != nil:
			return false, err
		case len(v.Users) > 0:
			return false, fmt.Errorf("%w: instance %s has it", provider.ErrInUse, zoneAndName(v.Users[0]))
		}
		disk, _ := v.keyOf(diskPrefix)
		snapshot, _ := v.keyOf(snapshotPrefix)
		if disk+snapshot == "" {
			return false, fmt.Errorf("%w: %s was not made here", provider.ErrPermissionDenied, v.Name)
		}
		number = v.ID
		if v.Status == "DELETING" {
			return false, nil
		}
		err = p.api.send(ctx, http.MethodDelete, path+number, requestID(), nil, nil)
		if busy(err) || failure.HasStatus(err, http.StatusNotFound) || failure.HasCode(err, "resourceInUseByAnotherResource") {
			err = nil // also while a copy of it is made
		}
		return false, err
	})
}
