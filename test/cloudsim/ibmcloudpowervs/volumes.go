// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/IBM-Cloud/power-go-client/power/models"
	"github.com/go-openapi/strfmt"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
)

const (
	// MaxVolumes is how many a VM has besides its boot volume; fewer than those of the cloud, which are an assumption too.
	MaxVolumes = 6
	maxGiB     = 2000
	// LateClone is the action whose faults end a clone in an error with the fault's message.
	LateClone = "powervs:clone"
)

// Tiers are the types of disks (GET storage-tiers).
var Tiers = []string{"tier0", "tier1", "tier3", "tier5k"}

// volume is a data volume. Until busy is over it is on its way to another state.
type volume struct {
	id, name, tier, pool, vm string
	size                     float64
	made, busy               time.Time
	state                    string // what it is in until busy
	goes                     bool   // with its VM
	goneVM                   bool   // the VM goes at the end of busy
	broken                   bool
	tags                     []string
	data                     []byte
}

func (v *volume) now() string {
	switch {
	case time.Now().Before(v.busy):
		return v.state
	case v.broken:
		return "error"
	case v.vm != "":
		return "in-use"
	}
	return "available"
}

func (s *Sim) begin(v *volume, state string) { v.state, v.busy = state, time.Now().Add(s.Step) }

type task struct {
	made           time.Time
	failure, clone string
	of             string
}

// settleVolumes ends what is over.
func (s *Sim) settleVolumes() {
	for id, v := range s.volumes {
		if time.Now().Before(v.busy) {
			continue
		}
		if v.state == "detaching" && v.goneVM {
			v.vm, v.goneVM = "", false
		}
		if v.vm != "" && s.vms[v.vm] == nil { // deleted
			v.vm = ""
			if v.goes {
				v.state = "deleting"
			}
		}
		if v.state == "deleting" {
			delete(s.volumes, id)
			s.World.Remove(cloudsim.KindDisk, id)
		}
	}
}

func (s *Sim) serveVolumes(out http.ResponseWriter, r *http.Request, path []string) {
	s.sweep()
	s.settleVolumes()
	switch {
	case len(path) == 0 && r.Method == http.MethodGet:
		list := []any{}
		for _, v := range s.volumes {
			list = append(list, v.show())
		}
		writeJSON(out, http.StatusOK, map[string]any{"volumes": list})
	case len(path) == 0 && r.Method == http.MethodPost:
		s.createVolume(out, r)
	case len(path) == 1 && path[0] == "clone" && r.Method == http.MethodPost:
		s.cloneVolume(out, r)
	case len(path) == 2 && path[0] == "clone-tasks" && r.Method == http.MethodGet:
		s.showTask(out, path[1])
	case len(path) == 1 && s.volumes[path[0]] != nil:
		s.serveVolume(out, r, s.volumes[path[0]])
	default:
		refuse(out, http.StatusNotFound, "volume %s does not exist", strings.Join(path, "/"))
	}
}

func (s *Sim) serveVolume(out http.ResponseWriter, r *http.Request, v *volume) {
	switch r.Method {
	case http.MethodGet:
		writeJSON(out, http.StatusOK, v.show())
	case http.MethodPut:
		s.updateVolume(out, r, v)
	case http.MethodDelete:
		if state := v.now(); state != "available" && state != "error" { // an assumption: 400, as Cinder's
			refuse(out, http.StatusBadRequest, "volume %s is in state %s", v.id, state)
			return
		}
		s.begin(v, "deleting")
		s.World.Deleting(cloudsim.KindDisk, v.id)
		writeJSON(out, http.StatusOK, map[string]any{})
	default:
		refuse(out, http.StatusMethodNotAllowed, "%s", r.Method)
	}
}

// taken reports whether a volume has the name (the CSI driver of the cloud knows "volume name already exists for cloud instance").
func (s *Sim) taken(name string) bool {
	for _, v := range s.volumes {
		if v.name == name {
			return true
		}
	}
	return false
}

func (s *Sim) createVolume(out http.ResponseWriter, r *http.Request) {
	var body models.CreateDataVolume
	if err := decode(r.Body, &body); err != nil {
		refuse(out, http.StatusBadRequest, "%v", err)
		return
	}
	if err := body.Validate(strfmt.Default); err != nil {
		refuse(out, http.StatusUnprocessableEntity, "%v", err)
		return
	}
	tier := body.DiskType
	if tier == "" {
		tier = "tier3" // the model CreateDataVolume
	}
	switch {
	case !slices.Contains(Tiers, tier):
		refuse(out, http.StatusBadRequest, "disk type %s does not exist", tier)
	case *body.Size < 1 || *body.Size > maxGiB || *body.Size != float64(int64(*body.Size)):
		refuse(out, http.StatusBadRequest, "size %v GiB is not from 1 to %d", *body.Size, maxGiB)
	case s.taken(*body.Name):
		refuse(out, http.StatusConflict, "volume name already exists for cloud instance")
	default:
		v := s.addVolume(*body.Name, tier, *body.Size, body.UserTags, false)
		writeJSON(out, http.StatusAccepted, v.show())
	}
}

func (s *Sim) addVolume(name, tier string, size float64, userTags []string, foreign bool) *volume {
	s.serial++
	s.last = later(time.Now(), s.last.Add(time.Millisecond))
	v := &volume{
		id: fmt.Sprintf("%08x-0000-4000-9000-000000000000", s.serial*2654435761%(1<<32)), name: name, tier: tier, size: size, made: s.last,
		pool: "pool-" + tier, tags: kept(userTags),
	}
	s.begin(v, "creating")
	s.volumes[v.id] = v
	tags := map[string]string{provider.TagKey: name}
	if TagsOf != nil {
		tags = TagsOf(v.tags)
	}
	if foreign {
		s.World.AddForeign(cloudsim.KindDisk, v.id, tags)
	} else {
		s.World.Add(cloudsim.KindDisk, v.id, tags)
	}
	return v
}

// kept are user tags as the tagging service keeps them: in no order that was given.
func kept(userTags []string) (list []string) {
	for _, tag := range userTags {
		if tag = strings.ToLower(tag); !slices.Contains(list, tag) {
			list = append(list, tag)
		}
	}
	slices.Reverse(list)
	return list
}

// cloneVolume copies at once, and shows the clone at the end of its task: an assumption.
func (s *Sim) cloneVolume(out http.ResponseWriter, r *http.Request) {
	var body models.VolumesCloneAsyncRequest
	if err := decode(r.Body, &body); err != nil {
		refuse(out, http.StatusBadRequest, "%v", err)
		return
	}
	if err := body.Validate(strfmt.Default); err != nil || len(body.VolumeIDs) != 1 {
		refuse(out, http.StatusUnprocessableEntity, "%d volumes: %v", len(body.VolumeIDs), err)
		return
	}
	from := s.volumes[body.VolumeIDs[0]]
	tier := body.TargetStorageTier
	switch {
	case from == nil:
		refuse(out, http.StatusNotFound, "volume %s does not exist", body.VolumeIDs[0])
		return
	case from.now() != "available" && from.now() != "in-use":
		refuse(out, http.StatusConflict, "volume %s is in state %s", from.id, from.now())
		return
	case tier != "" && !slices.Contains(Tiers, tier):
		refuse(out, http.StatusBadRequest, "storage tier %s does not exist", tier)
		return
	case tier == "":
		tier = from.tier
	}
	t := &task{made: time.Now(), of: from.id}
	if f := s.World.Called(LateClone); f != nil {
		t.failure = f.Message
	} else {
		v := s.addVolume(fmt.Sprintf("clone-%s-%05d", *body.Name, s.serial%100000), tier, from.size, body.UserTags, false)
		v.pool, v.data, t.clone = from.pool, slices.Clone(from.data), v.id
	}
	id := fmt.Sprintf("task-%d", s.serial)
	s.tasks[id] = t
	writeJSON(out, http.StatusAccepted, map[string]string{"cloneTaskID": id, "href": "/volumes/clone-tasks/" + id})
}

func (s *Sim) showTask(out http.ResponseWriter, id string) {
	t := s.tasks[id]
	switch {
	case t == nil:
		refuse(out, http.StatusNotFound, "clone task %s does not exist", id)
	case time.Since(t.made) < s.Step:
		writeJSON(out, http.StatusOK, map[string]any{"status": "running", "percentComplete": 10})
	case t.failure != "":
		writeJSON(out, http.StatusOK, map[string]any{"status": "failed", "percentComplete": 10, "failedReason": t.failure})
	default:
		writeJSON(out, http.StatusOK, map[string]any{
			"status": "completed", "percentComplete": 100, "clonedVolumes": []any{map[string]string{"clonedVolumeID": t.clone, "sourceVolumeID": t.of}},
		})
	}
}

func (s *Sim) updateVolume(out http.ResponseWriter, r *http.Request, v *volume) {
	var body models.UpdateVolume
	if err := decode(r.Body, &body); err != nil {
		refuse(out, http.StatusBadRequest, "%v", err)
		return
	}
	switch state := v.now(); {
	case state != "available" && state != "in-use":
		refuse(out, http.StatusConflict, "volume %s is in state %s", v.id, state)
		return
	case body.Size != 0 && (body.Size < v.size || body.Size > maxGiB):
		refuse(out, http.StatusBadRequest, "size %v GiB is not from %v to %d", body.Size, v.size, maxGiB)
		return
	case body.Name != nil && *body.Name != v.name && s.taken(*body.Name):
		refuse(out, http.StatusConflict, "volume name already exists for cloud instance")
		return
	case body.Name != nil:
		v.name = *body.Name
	}
	if body.Size != 0 {
		v.size = body.Size
		s.begin(v, "extending")
	}
	writeJSON(out, http.StatusOK, v.show())
}

// attachments is what is below a VM's volumes.
func (s *Sim) attachments(out http.ResponseWriter, r *http.Request, m *machine, id string) {
	s.settleVolumes()
	v := s.volumes[id]
	switch {
	case v == nil || r.Method != http.MethodPost && v.vm != m.id:
		refuse(out, http.StatusNotFound, "volume %s does not exist", id)
	case r.Method == http.MethodGet:
		shown := v.show()
		shown["deleteOnTermination"] = v.goes
		writeJSON(out, http.StatusOK, shown)
	case r.Method == http.MethodPut:
		var body models.PVMInstanceVolumeUpdate
		if err := errors.Join(decode(r.Body, &body), body.Validate(strfmt.Default)); err != nil {
			refuse(out, http.StatusBadRequest, "%v", err)
			return
		}
		v.goes = *body.DeleteOnTermination
		writeJSON(out, http.StatusOK, map[string]any{})
	case v.now() != map[string]string{http.MethodPost: "available", http.MethodDelete: "in-use"}[r.Method]:
		refuse(out, http.StatusConflict, "volume %s is in state %s", v.id, v.now())
	case r.Method == http.MethodDelete:
		s.begin(v, "detaching")
		v.goneVM = true
		writeJSON(out, http.StatusAccepted, map[string]any{})
	default:
		s.attach(out, m, v)
	}
}

func (s *Sim) attach(out http.ResponseWriter, m *machine, v *volume) {
	has := 0
	for _, other := range s.volumes {
		if other.vm == m.id {
			has++
		}
	}
	switch status := m.status(); {
	case status != "ACTIVE" && status != "SHUTOFF":
		refuse(out, http.StatusConflict, "pvm-instance %s is in state %s", m.id, status)
	case has >= MaxVolumes:
		refuse(out, http.StatusBadRequest, "the maximum number of volumes is attached to pvm-instance %s", m.id)
	case (m.create.StoragePoolAffinity == nil || *m.create.StoragePoolAffinity) && v.pool != "pool-tier1":
		refuse(out, http.StatusBadRequest, "volume %s is in another storage pool than the pvm-instance, which has storage pool affinity", v.id)
	default:
		v.vm, v.goes = m.id, s.GoWithVM
		s.begin(v, "attaching")
		writeJSON(out, http.StatusOK, map[string]any{})
	}
}

func (v *volume) show() map[string]any {
	instances := []string{}
	if v.vm != "" {
		instances = append(instances, v.vm)
	}
	shown := map[string]any{
		"volumeID": v.id, "name": v.name, "size": v.size, "diskType": v.tier, "state": v.now(), "pvmInstanceIDs": instances, "userTags": v.tags,
		"creationDate": v.made.UTC().Format("2006-01-02T15:04:05.000Z"), "volumePool": v.pool, "shareable": false,
	}
	if v.now() != "creating" { // as the CSI driver of the cloud has it
		shown["wwn"] = "600507681082018BC8000000" + v.id[:8]
	}
	return shown
}

// ForeignVolume makes a volume of somebody else's.
func (s *Sim) ForeignVolume(name string, userTags []string) (id string, remove func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id = s.addVolume(name, "tier1", 1, userTags, true).id
	return id, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.volumes[id] == nil {
			return fmt.Errorf("volume %s is gone", id)
		}
		delete(s.volumes, id)
		return nil
	}
}

// Break puts a volume into state error.
func (s *Sim) Break(id string) error { return s.withVolume(id, func(v *volume) { v.broken = true }) }

// CloneAgain makes a clone as that which has become a volume was when it was new, as of a request that was lost.
func (s *Sim) CloneAgain(id string) error {
	return s.withVolume(id, func(v *volume) { s.addVolume("clone-"+v.name+"-00000", v.tier, v.size, v.tags, false) })
}

// WriteDisk and ReadDisk write and read the first bytes of a volume.
func (s *Sim) WriteDisk(id string, data []byte) error {
	return s.withVolume(id, func(v *volume) { v.data = slices.Clone(data) })
}

func (s *Sim) ReadDisk(id string, bytes int) (data []byte, err error) {
	err = s.withVolume(id, func(v *volume) { data = append(slices.Clone(v.data), make([]byte, bytes)...)[:bytes] })
	return data, err
}

func (s *Sim) withVolume(id string, do func(*volume)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.volumes[id] == nil {
		return fmt.Errorf("volume %s does not exist", id)
	}
	do(s.volumes[id])
	return nil
}
