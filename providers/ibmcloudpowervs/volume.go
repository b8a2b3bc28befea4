// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/failure"
	"github.com/outrigger/outrigger/provider/kit/lifetime"
	"github.com/outrigger/outrigger/provider/kit/tags"
)

// tagVolume is on what was made as a disk or a snapshot: boot volumes may have the tags of their instance. The others say
// what it is a copy of, also when that does not exist any more.
const (
	tagVolume       = "outrigger-volume"
	tagFromDisk     = "outrigger-from-disk"
	tagFromSnapshot = "outrigger-from-snapshot"
)

// Values of tagVolume. A snapshot is a clone of its volume: the API's own snapshots are of a server, and can only be restored to it.
const (
	kindDisk     = "disk"
	kindSnapshot = "snapshot"
)

// States of a volume, as far as they matter.
const (
	stateAvailable = "available"
	stateInUse     = "in-use"
	stateDeleting  = "deleting"
	stateError     = "error"
)

// clonePrefix begins the names that the cloud gives to clones; they end in "-" and five digits (model VolumesCloneAsyncRequest).
const clonePrefix = "clone-"

// volume is one of the workspace (models Volume and VolumeReference).
type volume struct {
	ID        string    `json:"volumeID"`
	Name      string    `json:"name"`
	Size      float64   `json:"size"` // GiB
	Type      string    `json:"diskType"`
	State     string    `json:"state"`
	WWN       string    `json:"wwn"`
	Created   time.Time `json:"creationDate"`
	Instances []string  `json:"pvmInstanceIDs"`
	UserTags  []string  `json:"userTags"`
}

func (v *volume) bytes() int64 { return int64(v.Size * (1 << 30)) }

// instance returns one that has the volume; empty when none has.
func (v *volume) instance() string {
	if len(v.Instances) == 0 {
		return ""
	}
	return v.Instances[0]
}

func inUse(v *volume) error {
	return fmt.Errorf("%w: instance %s has it", provider.ErrInUse, v.instance())
}

// keyOf returns the key of what was made here as such; empty for others', and for a clone that is not a disk yet.
func (v *volume) keyOf(kind string) string {
	pairs := decodeTags(v.UserTags)
	if pairs[tagVolume] != kind || strings.HasPrefix(v.Name, clonePrefix) {
		return ""
	}
	return pairs[provider.TagKey]
}

// shown returns the tags without those that only this package needs.
func shown(pairs map[string]string) map[string]string {
	rest := maps.Clone(pairs)
	for _, name := range []string{tagVolume, tagFromDisk, tagFromSnapshot} {
		delete(rest, name)
	}
	return rest
}

// look returns ErrNotFound for what the cloud does not have, or was made as the other kind.
func (p *Provider) look(ctx context.Context, kind, id string) (*volume, error) {
	v := new(volume)
	var err error
	if token.MatchString(id) {
		err = p.api.send(ctx, http.MethodGet, "/volumes/"+id, nil, v)
	}
	made := decodeTags(v.UserTags)[tagVolume]
	if v.ID == "" && err == nil || made != "" && made != kind || failure.HasStatus(err, http.StatusNotFound, http.StatusGone) {
		err = fmt.Errorf("%w: no %s %.100q in workspace %s", provider.ErrNotFound, kind, id, p.cfg.ServiceInstance)
	}
	return v, err
}

func (p *Provider) volumes(ctx context.Context, wanted func(*volume) bool) ([]*volume, error) {
	var all struct {
		Volumes []*volume `json:"volumes"`
	}
	err := p.api.send(ctx, http.MethodGet, "/volumes", nil, &all)
	return slices.DeleteFunc(all.Volumes, func(v *volume) bool { return !wanted(v) }), err
}

// making is a disk or a snapshot to be made. A workspace has one volume of a name. A clone gets its name last of all, so
// what has the name is whole, and the other clones of its key can be removed: nobody ever had them.
type making struct {
	kind, key, name string
	tags            map[string]string
	// from is the volume to clone, if any. size is in GiB, 0 for that of the volume.
	from, diskType string
	size           int64
}

func (p *Provider) newMaking(kind, key string, given, from map[string]string) *making {
	sum := sha256.Sum256([]byte(kind + "/" + given[provider.TagCluster] + "/" + key))
	return &making{
		kind: kind, key: key, name: "outrigger-" + kind + "-" + hex.EncodeToString(sum[:16]),
		tags: tags.Merge(p.cfg.Tags, given, from, map[string]string{provider.TagKey: key, tagVolume: kind}),
	}
}

// isClone reports whether a volume is a clone that was to become what has the name.
func isClone(v *volume, kind, name string) bool {
	return strings.HasPrefix(v.Name, clonePrefix+name+"-") && decodeTags(v.UserTags)[tagVolume] == kind
}

// findOrMakeVolume returns the volume of a key when it can be used. plan completes m before a volume is made.
func (p *Provider) findOrMakeVolume(ctx context.Context, m *making, plan func() error) (v *volume, err error) {
	ctx, sending, end, err := p.begin(ctx, m.name)
	if err != nil {
		return nil, err
	}
	defer end()
	err = p.wait.Until(ctx, func() (bool, error) {
		v, err = p.makeStep(ctx, m, plan, sending)
		if failure.HasStatus(err, http.StatusConflict) && !errors.Is(err, provider.ErrQuota) {
			return false, nil // the name is taken just now, or the source is busy
		}
		return v != nil, err
	})
	return v, err
}

// makeStep returns the volume, and nil after it has brought it nearer.
func (p *Provider) makeStep(ctx context.Context, m *making, plan func() error, sending *sync.WaitGroup) (*volume, error) {
	list, err := p.volumes(ctx, func(v *volume) bool {
		return v.State != stateDeleting && (v.Name == m.name && v.keyOf(m.kind) == m.key || isClone(v, m.kind, m.name))
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b *volume) int { // what has the name comes first, then the oldest
		if (a.Name == m.name) != (b.Name == m.name) {
			return strings.Compare(b.Name, a.Name)
		}
		return a.Created.Compare(b.Created)
	})
	switch {
	case len(list) == 0:
		if err := plan(); err != nil {
			return nil, err
		}
		return nil, p.makeVolume(ctx, m, sending)
	case list[0].State == stateError && list[0].Name != m.name:
		return nil, p.removeVolume(ctx, m.kind, list[0].ID) // nobody ever had it
	case list[0].State == stateError:
		return nil, fmt.Errorf("%w: volume %s is in state error: look for the reason in the workspace, and delete it there if nothing is on it", provider.ErrUnknown, list[0].ID)
	case list[0].State != stateAvailable && list[0].State != stateInUse:
		return nil, nil
	case list[0].Name != m.name:
		return nil, p.finish(ctx, m, plan, list[0])
	}
	for _, double := range list[1:] {
		if err := p.removeVolume(ctx, m.kind, double.ID); err != nil {
			return nil, err
		}
	}
	return list[0], nil
}

// finish gives a clone its size, and then its name.
func (p *Provider) finish(ctx context.Context, m *making, plan func() error, clone *volume) error {
	if err := plan(); err != nil && !errors.Is(err, provider.ErrNotFound) { // the source may be gone by now
		return err
	}
	change := map[string]any{"name": m.name}
	if clone.bytes() < m.size<<30 {
		change = map[string]any{"size": m.size}
	}
	err := p.api.send(ctx, http.MethodPut, "/volumes/"+clone.ID, change, nil)
	if failure.HasStatus(err, http.StatusNotFound) {
		return nil // another call has removed it, after it had finished its own
	}
	return err
}

// makeVolume sends the request. As that of an instance it goes on when ctx ends.
func (p *Provider) makeVolume(ctx context.Context, m *making, sending *sync.WaitGroup) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", provider.ErrUnavailable, context.Cause(ctx))
	}
	path, body := p.api.path("/volumes"), map[string]any{"name": m.name, "size": m.size, "userTags": encodeTags(m.tags)}
	if m.from != "" {
		path = strings.Replace(p.api.path("/volumes/clone"), "/v1/", "/v2/", 1)
		body = map[string]any{"name": m.name, "volumeIDs": []string{m.from}, "userTags": encodeTags(m.tags)}
	}
	if m.diskType != "" {
		body[map[bool]string{true: "targetStorageTier", false: "diskType"}[m.from != ""]] = m.diskType
	}
	sending.Add(1)
	task, err := lifetime.Outlive(ctx, func() (task cloneTask, err error) {
		defer sending.Done()
		err = p.api.sendToEnd(ctx, http.MethodPost, path, body, &task)
		return task, err
	})
	if class := provider.Class(err); class == provider.ErrInvalidArgument || class == provider.ErrNotFound {
		return fmt.Errorf("%w: type %q, %d GiB: %w", provider.ErrInvalidArgument, m.diskType, m.size, err)
	}
	if err != nil || m.from == "" {
		return err
	}
	return p.wait.Until(ctx, func() (bool, error) {
		err := p.api.sendTo(ctx, http.MethodGet, strings.TrimSuffix(path, "clone")+"clone-tasks/"+task.ID, nil, &task)
		if task.Status == "failed" {
			err = fmt.Errorf("%w: the cloud could not clone volume %s: %.300q", provider.ErrUnavailable, m.from, task.Reason)
		}
		return task.Status == "completed", err
	})
}

// cloneTask is of the models CloneTaskReference and CloneTaskStatus.
type cloneTask struct {
	ID     string `json:"cloneTaskID"`
	Status string `json:"status"`
	Reason string `json:"failedReason"`
}

// removeVolume returns when it does not exist.
func (p *Provider) removeVolume(ctx context.Context, kind, id string) error {
	refused := false
	return p.wait.Until(ctx, func() (bool, error) {
		v, err := p.look(ctx, kind, id)
		switch {
		case errors.Is(err, provider.ErrNotFound):
			return true, nil
		case err != nil:
			return false, err
		case v.instance() != "":
			return false, inUse(v)
		case v.State != stateAvailable && v.State != stateError:
			return false, nil
		}
		err = p.api.send(ctx, http.MethodDelete, "/volumes/"+id, nil, nil)
		switch {
		case failure.HasStatus(err, http.StatusNotFound, http.StatusGone):
			return true, nil
		case failure.HasStatus(err, http.StatusConflict), failure.HasStatus(err, http.StatusBadRequest) && !refused:
			refused = true // the next look may tell why
			return false, nil
		}
		return false, err
	})
}
