// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// Managed disks and snapshots (Compute Resource Provider, "Disks", "Snapshots" and "Virtual Machines - Attach Detach Data
// Disks"). Error codes and texts are those of "Troubleshoot common Azure deployment errors", of "Troubleshoot virtual
// machine deployment due to detached disks", and of the issues of azuredisk-csi-driver (436, 2883) and
// jenkins-infra/azure (1406).

// KindSnapshot is that of snapshots.
const KindSnapshot = "snapshot"

// liveGiB is the size up to which a disk of a running VM can grow ("Expand virtual hard disks", learn.microsoft.com).
const liveGiB = 4095

// maxDiskGiB is the largest size of ordinary disks ("Azure managed disk types", learn.microsoft.com).
const maxDiskGiB = 32767

// diskTypes are those of the SDK's enum, which is open: new ones come.
var diskTypes = armcompute.PossibleDiskStorageAccountTypesValues()

var diskNameSyntax = regexp.MustCompile(`^[A-Za-z0-9_][-A-Za-z0-9_.]{0,78}[A-Za-z0-9_]$`)

// stored is what disks and snapshots have.
type stored struct {
	body    map[string]any
	gib     int64
	created time.Time
	state   string
	content []byte
}

func isSnapshot(k *call) bool { return strings.Contains(k.route.path, "/snapshots") }

// storedAt returns a disk or snapshot by its resource id, with its tags. The caller holds mu.
func (c *Cloud) storedAt(id string) *disk {
	if d := c.disks[strings.ToLower(id)]; d != nil {
		return d
	}
	return c.snapshots[strings.ToLower(id)]
}

// diskID is that of what a call names, as it was first written.
func diskID(k *call) string {
	kind := compute + "disks"
	if isSnapshot(k) {
		kind = compute + "snapshots"
	}
	return partID(groupOf(k), kind, pathName(k.r))
}

// putStored is the PUT of a disk that is not uploaded, or of a snapshot. The caller holds mu.
func (c *Cloud) putStored(k *call, tree map[string]any) *failure {
	id := diskID(k)
	made, f := c.newStored(k, tree)
	if f != nil {
		return f
	}
	there := c.storedAt(id)
	switch {
	case !diskNameSyntax.MatchString(last(id)):
		return bad("diskName", "The name '%s' is invalid.", last(id))
	case there == nil:
	case there.deleting || there.stored == nil || there.state != "Succeeded" && there.state != "Failed":
		return fail(http.StatusConflict, "Conflict", "The resource '%s' is being changed.", id)
	case fmt.Sprint(at(there.body, "properties", "creationData")) != fmt.Sprint(at(tree, "properties", "creationData")):
		return fail(http.StatusConflict, "PropertyChangeNotAllowed", "Changing property 'creationData' is not allowed.")
	case made.gib < there.gib:
		return bad("diskSizeGB", "The disk cannot become smaller: %d GB.", made.gib)
	}
	o := c.begin(k, diskOperations)
	reply(k.w, http.StatusAccepted, map[string]any{"name": last(id), "location": Region})
	if there != nil { // the same again, or larger
		there.gib, made = made.gib, there.stored
	} else {
		d := &disk{id: id, tags: tagsIn(tree), stored: made}
		kind, all := cloudsim.KindDisk, c.disks
		if isSnapshot(k) {
			kind, all = KindSnapshot, c.snapshots
		}
		all[strings.ToLower(id)] = d
		c.World.Add(kind, id, d.tags)
	}
	c.after(1, func() {
		if f := c.struck("disk:make"); f != nil {
			made.state = "Failed"
			o.fail(f.Code, f.Message)
			return
		}
		made.state = "Succeeded"
		o.done()
	})
	return nil
}

// newStored checks a body by the rules, and returns what it makes. The caller holds mu.
func (c *Cloud) newStored(k *call, tree map[string]any) (*stored, *failure) {
	s := &stored{body: tree, created: time.Now().UTC(), state: "Creating"}
	size, sized := at(tree, "properties", "diskSizeGB").(float64)
	s.gib = int64(size)
	source, _ := at(tree, "properties", "creationData", "sourceResourceId").(string)
	switch option := at(tree, "properties", "creationData", "createOption"); {
	case option == "Empty" && !isSnapshot(k):
		if !sized {
			return nil, bad("diskSizeGB", "Required parameter 'diskSizeGB' is missing (null).")
		}
	case option == "Copy":
		from := c.storedAt(source)
		if from == nil || from.stored == nil && from.upload != nil || from.deleting {
			return nil, fail(http.StatusNotFound, "ResourceNotFound", "The source '%s' was not found.", source)
		}
		if from.stored != nil {
			s.content = slices.Clone(from.content)
			if s.gib = max(s.gib, from.gib); sized && int64(size) < from.gib {
				return nil, bad("diskSizeGB", "The size %v is less than that of the source: %d.", size, from.gib)
			}
		}
	default:
		return nil, bad("creationData.createOption", "This cloud does not know %v here.", option)
	}
	if sized && (s.gib < 1 || s.gib > maxDiskGiB) {
		return nil, bad("diskSizeGB", "The value %d of parameter 'diskSizeGB' is out of range: 1 to %d.", s.gib, maxDiskGiB)
	}
	return s, checkDiskPlace(tree)
}

func checkDiskPlace(tree map[string]any) *failure {
	kind, _ := at(tree, "sku", "name").(string)
	zones, _ := tree["zones"].([]any)
	switch {
	case kind != "" && !slices.Contains(diskTypes, armcompute.DiskStorageAccountTypes(kind)) && kind != "Standard_ZRS":
		return bad("sku.name", "The value of parameter sku.name is invalid.")
	case len(zones) > 1 || len(zones) == 1 && strings.HasSuffix(kind, "_ZRS"):
		return fail(http.StatusBadRequest, "BadRequest", "A disk has one zone, and one of type %s has none.", kind)
	case len(zones) == 1 && zones[0] != "1" && zones[0] != "2" && zones[0] != "3":
		return fail(http.StatusBadRequest, "InvalidAvailabilityZone", "The zone(s) '%v' for resource is not supported.", zones[0])
	}
	return nil
}

// zone returns that of a disk.
func (d *disk) zone() string {
	if d.stored == nil {
		return ""
	}
	if zones, _ := d.body["zones"].([]any); len(zones) == 1 {
		return zones[0].(string)
	}
	return ""
}

// redundant says of a disk that it is in all zones.
func (d *disk) redundant() bool {
	if d.stored == nil {
		return false
	}
	kind, _ := at(d.body, "sku", "name").(string)
	return strings.HasSuffix(kind, "_ZRS")
}

// view is a disk or snapshot as Azure shows it: the VM's resource group is in capitals.
func (d *disk) view() map[string]any {
	shown := map[string]any{"id": d.id, "name": last(d.id), "location": Region, "tags": d.tags}
	properties := map[string]any{"provisioningState": "Succeeded", "diskState": "Unattached"}
	if d.upload != nil {
		maps.Copy(properties, d.upload.content["properties"].(map[string]any))
	}
	if d.stored != nil {
		maps.Copy(properties, d.body["properties"].(map[string]any))
		for _, name := range []string{"sku", "zones"} {
			if value, there := d.body[name]; there {
				shown[name] = value
			}
		}
		maps.Copy(properties, map[string]any{"provisioningState": d.state, "diskSizeGB": d.gib, "diskSizeBytes": d.gib << 30, "timeCreated": d.created})
	}
	if d.vm != "" {
		shown["managedBy"], properties["diskState"] = strings.Replace(d.vm, ResourceGroup, strings.ToUpper(ResourceGroup), 1), "Attached"
	}
	shown["properties"] = properties
	return shown
}

func (c *Cloud) getDisk(k *call) *failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.storedAt(diskID(k))
	if d == nil {
		return notFound(strings.TrimSuffix(k.route.path, "/*"), k.name())
	}
	reply(k.w, http.StatusOK, d.view())
	return nil
}

func (c *Cloud) putSnapshot(k *call) *failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	tree, f := c.readBody(k, "Snapshot")
	if f != nil {
		return f
	}
	return c.putStored(k, tree)
}

func (c *Cloud) listDisks(k *call) *failure     { return c.listStored(k, cloudsim.KindDisk, c.disks) }
func (c *Cloud) listSnapshots(k *call) *failure { return c.listStored(k, KindSnapshot, c.snapshots) }

func (c *Cloud) listStored(k *call, kind string, all map[string]*disk) *failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	var items []any
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if d := all[key]; inGroup(d.id, k.group) && (d.unbooked || c.World.Visible(kind, d.id)) {
			items = append(items, d.view())
		}
	}
	return c.page(k, items)
}

func (c *Cloud) deleteSnapshot(k *call) *failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := strings.ToLower(diskID(k))
	d := c.snapshots[key]
	if d == nil {
		k.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return c.removal(k, KindSnapshot, d.id, diskOperations, &d.deleting, func() { delete(c.snapshots, key) })
}

// patchDisk makes a disk larger.
func (c *Cloud) patchDisk(k *call) *failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	tree, f := c.readBody(k, "DiskUpdate")
	if f != nil {
		return f
	}
	d := c.disks[strings.ToLower(diskID(k))]
	size, _ := at(tree, "properties", "diskSizeGB").(float64)
	switch gib := int64(size); {
	case d == nil || d.stored == nil:
		return notFound(compute+"disks", k.name())
	case d.deleting || d.state != "Succeeded":
		return fail(http.StatusConflict, "Conflict", "The disk '%s' is being changed.", d.id)
	case gib < d.gib || gib > maxDiskGiB:
		return bad("diskSizeGB", "The value %d of parameter 'diskSizeGB' is less than the size of the disk, or too large.", gib)
	case d.vm != "" && d.gib <= liveGiB && gib > liveGiB && c.runs(d.vm):
		return fail(http.StatusConflict, "OperationNotAllowed", "Cannot resize disk %s while it is attached to running VM %s.", last(d.id), d.vm)
	default:
		d.state = "Updating"
		o := c.begin(k, diskOperations)
		c.after(1, func() {
			d.state, d.gib = "Succeeded", gib
			o.done()
		})
		reply(k.w, http.StatusAccepted, map[string]any{"name": last(d.id), "location": Region})
		return nil
	}
}

func (c *Cloud) runs(vm string) bool {
	found := c.vms[strings.ToLower(last(vm))]
	return found != nil && found.power != "deallocated"
}

// changeDisks is the action attachDetachDataDisks.
func (c *Cloud) changeDisks(k *call) *failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	tree, f := c.readBody(k, "AttachDetachDataDisksRequest")
	if f != nil {
		return f
	}
	var request armcompute.AttachDetachDataDisksRequest
	if data, err := json.Marshal(tree); err != nil || json.Unmarshal(data, &request) != nil {
		return fail(http.StatusBadRequest, "InvalidRequestContent", "%v", err)
	}
	name := k.names[1]
	vm := c.vms[name]
	switch {
	case vm == nil:
		return notFound(compute+"virtualMachines", name)
	case vm.provisioning == "Creating":
		return fail(http.StatusConflict, "Conflict", "The virtual machine is being created.")
	case vm.provisioning == "Deleting":
		return fail(http.StatusConflict, "OperationNotAllowed", "The virtual machine '%s' is marked for deletion.", name)
	case vm.provisioning == "Updating":
		return fail(http.StatusConflict, "AnotherOperationInProgress", "Another operation on this virtual machine is in progress.")
	case !c.may(compute + "disks/read"):
		return forbidden(compute+"disks/read", k.r.URL.Path)
	}
	c.World.Called(compute + "disks/read")
	attach, f := c.toAttach(vm, &request)
	if f != nil {
		return f
	}
	c.carryOut(k, vm, attach, request.DataDisksToDetach)
	return nil
}

// dataDisks returns those of a VM's model.
func (vm *machine) dataDisks() []*armcompute.DataDisk {
	if vm.model.Properties.StorageProfile == nil {
		return nil
	}
	return vm.model.Properties.StorageProfile.DataDisks
}

// setDataDisks replaces the list: others may be reading the model that they were shown.
func (vm *machine) setDataDisks(list []*armcompute.DataDisk) {
	properties, storage := *vm.model.Properties, armcompute.StorageProfile{}
	if properties.StorageProfile != nil {
		storage = *properties.StorageProfile
	}
	storage.DataDisks = list
	properties.StorageProfile = &storage
	vm.model.Properties = &properties
}

func isDataDisk(id string) func(*armcompute.DataDisk) bool {
	return func(d *armcompute.DataDisk) bool { return strings.EqualFold(value(d.ManagedDisk.ID), id) }
}

// toAttach returns the data disks that the request adds, or why it cannot be. The caller holds mu.
func (c *Cloud) toAttach(vm *machine, request *armcompute.AttachDetachDataDisksRequest) (list []*armcompute.DataDisk, f *failure) {
	name := string(value(vm.model.Properties.HardwareProfile.VMSize))
	limit := int(min(2*sizeNamed(name).cores, 64)) // as the sizes here have it
	luns := map[int32]bool{}
	for _, d := range vm.dataDisks() {
		luns[value(d.Lun)] = true
	}
	for _, wanted := range request.DataDisksToAttach {
		id := value(wanted.DiskID)
		d := c.disks[strings.ToLower(id)]
		there := slices.IndexFunc(vm.dataDisks(), isDataDisk(id))
		switch {
		case d == nil || d.deleting:
			return nil, fail(http.StatusNotFound, "ResourceNotFound", "The disk '%s' was not found.", id)
		case there >= 0 && value(vm.dataDisks()[there].ToBeDetached):
			return nil, fail(http.StatusConflict, "AttachDiskWhileBeingDetached", "Cannot attach data disk '%s' to virtual machine '%s' because the disk is currently being detached or the last detach operation failed.", last(id), last(vm.id))
		case there >= 0:
			continue
		case d.vm != "":
			return nil, fail(http.StatusConflict, "ConflictingUserInput", "Disk '%s' cannot be attached as the disk is already owned by VM '%s'.", d.id, d.vm)
		case d.upload != nil || d.stored != nil && d.state != "Succeeded":
			return nil, fail(http.StatusConflict, "OperationNotAllowed", "The disk '%s' is not ready.", d.id)
		case d.zone() != zoneOfVM(vm) && !d.redundant():
			return nil, fail(http.StatusBadRequest, "BadRequest", "Disk %s cannot be attached to the VM because it is not in the same zone as the VM. VM zone: '%s'. Disk zone: '%s'.", d.id, zoneOfVM(vm), d.zone())
		case len(luns) >= limit:
			return nil, fail(http.StatusConflict, "OperationNotAllowed", "The maximum number of data disks allowed to be attached to a VM of this size is %d.", limit)
		}
		lun := wanted.Lun
		for n := int32(0); lun == nil; n++ { // "If not specified, lun would be auto assigned."
			if !luns[n] {
				lun = to.Ptr(n)
			}
		}
		if luns[*lun] {
			return nil, bad("dataDisks.lun", "The lun %d is taken.", *lun)
		}
		luns[*lun] = true
		list = append(list, &armcompute.DataDisk{
			Lun: lun, Name: to.Ptr(last(d.id)), CreateOption: to.Ptr(armcompute.DiskCreateOptionTypesAttach), DeleteOption: wanted.DeleteOption,
			Caching: wanted.Caching, ManagedDisk: &armcompute.ManagedDiskParameters{ID: to.Ptr(d.id)},
		})
	}
	return list, nil
}

func zoneOfVM(vm *machine) string {
	if len(vm.model.Zones) == 0 {
		return ""
	}
	return value(vm.model.Zones[0])
}

// carryOut shows at once what is asked for, and does it a step later. The caller holds mu.
func (c *Cloud) carryOut(k *call, vm *machine, attach []*armcompute.DataDisk, detach []*armcompute.DataDisksToDetach) {
	operation := c.begin(k, computeOperations)
	k.w.WriteHeader(http.StatusAccepted)
	vm.turn++
	turn := vm.turn
	vm.provisioning = "Updating"
	leaves := func(d *armcompute.DataDisk) bool {
		return slices.ContainsFunc(detach, func(x *armcompute.DataDisksToDetach) bool { return isDataDisk(value(x.DiskID))(d) })
	}
	var list []*armcompute.DataDisk
	for _, d := range vm.dataDisks() {
		if shown := *d; leaves(d) {
			shown.ToBeDetached = to.Ptr(true)
			d = &shown
		}
		list = append(list, d)
	}
	vm.setDataDisks(append(list, attach...))
	for _, d := range attach {
		found := c.disks[strings.ToLower(value(d.ManagedDisk.ID))]
		found.vm, found.goesToo = vm.id, value(d.DeleteOption) == armcompute.DiskDeleteOptionTypesDelete
	}
	c.after(1, func() {
		if vm.turn != turn {
			operation.fail("OperationPreempted", "The operation has been preempted by a more recent operation.")
			return
		}
		vm.provisioning = "Succeeded"
		gone := leaves
		if f := c.struck("vm:disks"); f != nil { // what was to come is not there, and what was to go stays
			gone = func(d *armcompute.DataDisk) bool { return slices.Contains(attach, d) }
			operation.fail(f.Code, f.Message)
		} else {
			operation.result = map[string]any{"dataDisks": []any{}}
			operation.done()
		}
		for _, d := range vm.dataDisks() {
			if found := c.disks[strings.ToLower(value(d.ManagedDisk.ID))]; gone(d) && found != nil {
				found.vm = ""
			}
		}
		vm.setDataDisks(slices.DeleteFunc(slices.Clone(vm.dataDisks()), gone))
	})
}

// ForeignDisk makes a disk of somebody else's and a snapshot of it, which have the same tags as ours, and
// returns a function that removes them.
func (c *Cloud) ForeignDisk(tags map[string]string) (diskID, snapshotID string, remove func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := fmt.Sprintf("somebodys-%d", c.number())
	made := func(kind string, create map[string]any) *disk {
		return &disk{id: partID(ResourceGroup, compute+kind, name), tags: tags, unbooked: true, stored: &stored{
			gib: 1, state: "Succeeded", created: time.Now().UTC(), body: map[string]any{"properties": map[string]any{"creationData": create}},
		}}
	}
	d := made("disks", map[string]any{"createOption": "Empty"})
	s := made("snapshots", map[string]any{"createOption": "Copy", "sourceResourceId": d.id})
	c.disks[strings.ToLower(d.id)], c.snapshots[strings.ToLower(s.id)] = d, s
	return d.id, s.id, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.storedAt(d.id) == nil || c.storedAt(s.id) == nil {
			return fmt.Errorf("disk or snapshot %s is gone", name)
		}
		delete(c.disks, strings.ToLower(d.id))
		delete(c.snapshots, strings.ToLower(s.id))
		return nil
	}
}

// WriteDisk writes the first bytes of a disk.
func (c *Cloud) WriteDisk(id string, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.disks[strings.ToLower(id)]
	if d == nil || d.stored == nil {
		return fmt.Errorf("no disk %s", id)
	}
	d.content = slices.Clone(data)
	return nil
}

// ReadDisk reads what WriteDisk has written to a disk, or to what it is a copy of.
func (c *Cloud) ReadDisk(id string, bytes int) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.disks[strings.ToLower(id)]
	if d == nil || d.stored == nil {
		return nil, fmt.Errorf("no disk %s", id)
	}
	return append(slices.Clone(d.content), make([]byte, bytes)...)[:bytes], nil
}
