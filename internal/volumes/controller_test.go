// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/outrigger/outrigger/provider"
	cloud "github.com/outrigger/outrigger/provider/fake"
)

const gib = 1 << 30

// world is a driver over a cloud with two nodes.
type world struct {
	*testing.T
	*Driver
	cloud  *cloud.Cloud
	n1, n2 string
}

func newWorld(t *testing.T, w Workloads, faults ...cloud.Fault) *world {
	t.Helper()
	c, err := cloud.New(cloud.Options{Faults: faults, Disks: cloud.DiskOptions{PerInstance: 2}})
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(Options{Provider: c, Cluster: "c1", Workloads: w, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	world := &world{T: t, Driver: d, cloud: c}
	for key, id := range map[string]*string{"n1": &world.n1, "n2": &world.n2} {
		i, err := c.CreateInstance(t.Context(), key, key, nil, provider.InstanceTypeSpec{})
		if err != nil {
			t.Fatal(err)
		}
		*id = i.ID
	}
	return world
}

func (w *world) create(name string, change ...func(*csi.CreateVolumeRequest)) (*csi.Volume, error) {
	r := &csi.CreateVolumeRequest{Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: gib}, VolumeCapabilities: []*csi.VolumeCapability{mountCapability("")}}
	for _, c := range change {
		c(r)
	}
	got, err := call(w.Driver, w.Context(), "CreateVolume", w.controller.CreateVolume, r)
	return got.GetVolume(), err
}

func (w *world) mustCreate(name string, change ...func(*csi.CreateVolumeRequest)) *csi.Volume {
	w.Helper()
	v, err := w.create(name, change...)
	if err != nil {
		w.Fatal(err)
	}
	return v
}

func (w *world) publish(volume, node string, c *csi.VolumeCapability) (map[string]string, error) {
	got, err := call(w.Driver, w.Context(), "ControllerPublishVolume", w.controller.ControllerPublishVolume,
		&csi.ControllerPublishVolumeRequest{VolumeId: volume, NodeId: node, VolumeCapability: c})
	return got.GetPublishContext(), err
}

func (w *world) unpublish(volume, node string) error {
	_, err := call(w.Driver, w.Context(), "ControllerUnpublishVolume", w.controller.ControllerUnpublishVolume,
		&csi.ControllerUnpublishVolumeRequest{VolumeId: volume, NodeId: node})
	return err
}

func (w *world) holder(volume string) string {
	w.Helper()
	d, err := w.cloud.GetDisk(w.Context(), volume)
	if err != nil {
		w.Fatal(err)
	}
	return d.InstanceID
}

// in asks for zones, the first of which is preferred.
func in(zones ...string) func(*csi.CreateVolumeRequest) {
	r := &csi.TopologyRequirement{}
	for _, z := range zones {
		r.Requisite = append(r.Requisite, topology(z)...)
	}
	slices.Reverse(r.Requisite)
	r.Preferred = topology(zones[0])
	return func(q *csi.CreateVolumeRequest) { q.AccessibilityRequirements = r }
}

func parameter(name, value string) func(*csi.CreateVolumeRequest) {
	return func(r *csi.CreateVolumeRequest) { r.Parameters = map[string]string{name: value} }
}

// TestOwnerTags: a disk is known by its key and by its owner, whatever the volume is called.
func TestOwnerTags(t *testing.T) {
	w := newWorld(t, nil)
	for name, key := range map[string]string{
		"pvc-1": "pvc-1", "a name/with spaces": "", strings.Repeat("x", 128): "",
	} {
		v := w.mustCreate(name, parameter("csi.storage.k8s.io/pvc/namespace", "team a"))
		d, err := w.cloud.GetDisk(t.Context(), v.GetVolumeId())
		if err != nil {
			t.Fatal(err)
		}
		if name == "pvc-1" && d.Key != key || !validKey.MatchString(d.Key) || name != "pvc-1" && !strings.HasPrefix(d.Key, "csi-") {
			t.Errorf("%s has the key %q", name, d.Key)
		}
		if d.Tags[provider.TagCluster] != "c1" || d.Tags[provider.TagKey] != d.Key || d.Tags[provider.TagNamespace] != "team-a" || d.Tags[provider.TagCreated] == "" {
			t.Errorf("%s has the tags %v", name, d.Tags)
		}
		if again := w.mustCreate(name); again.GetVolumeId() != v.GetVolumeId() {
			t.Errorf("%s twice: %s and %s", name, v.GetVolumeId(), again.GetVolumeId())
		}
	}
}

func encryptedDevice(r *csi.CreateVolumeRequest) {
	parameter(parameterEncrypted, "true")(r)
	r.VolumeCapabilities[0].AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
}

// TestEncryptedVolume: nodes are told.
func TestEncryptedVolume(t *testing.T) {
	w := newWorld(t, nil)
	for value, want := range map[string]string{"true": "true", "false": ""} {
		if v, err := w.create("pvc-"+value, parameter(parameterEncrypted, value)); err != nil || v.GetVolumeContext()[attributeEncrypted] != want {
			t.Errorf("%s: %v, %v", value, v, err)
		}
	}
}

func TestRefusedByName(t *testing.T) {
	w := newWorld(t, nil)
	many := mountCapability("")
	many.AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	for name, test := range map[string]struct {
		change func(*csi.CreateVolumeRequest)
		code   codes.Code
		text   string
	}{
		"encrypted":         {parameter("encrypted", "perhaps"), codes.InvalidArgument, `encrypted "perhaps"`},
		"encrypted device":  {encryptedDevice, codes.InvalidArgument, "volumeMode Block"},
		"unknown parameter": {parameter("iops", "7"), codes.InvalidArgument, `unknown parameter "iops"`},
		"unknown type":      {parameter("type", "golden"), codes.InvalidArgument, "golden"},
		"many nodes":        {func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0] = many }, codes.InvalidArgument, "MULTI_NODE_READER_ONLY"},
		"file system":       {func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0] = mountCapability("btrfs") }, codes.InvalidArgument, "btrfs"},
		"no size":           {func(r *csi.CreateVolumeRequest) { r.CapacityRange.LimitBytes = 1 }, codes.InvalidArgument, "capacity_range"},
		"zone":              {in("mars"), codes.InvalidArgument, "mars"},
		"attributes":        {func(r *csi.CreateVolumeRequest) { r.MutableParameters = map[string]string{"a": "b"} }, codes.InvalidArgument, "VolumeAttributesClass"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.create("pvc-1", test.change)
			wantCode(t, err, test.code, test.text)
		})
	}
	if disks, err := w.cloud.ListDisks(t.Context(), w.controller.owner()); err != nil || len(disks) > 0 {
		t.Errorf("%v, %v", disks, err)
	}
}

// TestZones: the first zone with room gets the disk, also when the reply is lost, and the volume
// is where it was asked for.
func TestZones(t *testing.T) {
	full := cloud.Fault{Op: cloud.OpCreateDisk, Err: provider.ErrCapacity}
	lost := cloud.Fault{Op: cloud.OpCreateDisk, Err: provider.ErrUnavailable, Effect: cloud.EffectFull}
	w := newWorld(t, nil, full, lost)
	_, err := w.create("pvc-1", in("fake-zone", "fake-zone-b"))
	wantCode(t, err, codes.Unavailable, "")
	v := w.mustCreate("pvc-1", in("fake-zone", "fake-zone-b")) // the first zone has room again
	if zone := v.GetAccessibleTopology()[0].GetSegments()[TopologyKey]; zone != "fake-zone-b" {
		t.Errorf("it is in %q", zone)
	}
	if disks, err := w.cloud.ListDisks(t.Context(), w.controller.owner()); err != nil || len(disks) != 1 {
		t.Errorf("%v, %v", disks, err)
	}
	if v := w.mustCreate("pvc-2", in(anyZone)); v.GetAccessibleTopology()[0].GetSegments()[TopologyKey] != anyZone {
		t.Errorf("for Nodes without a zone: %v", v.GetAccessibleTopology())
	}
	w.cloud.Inject(full, full)
	_, err = w.create("pvc-3", in("fake-zone", "fake-zone-b"))
	wantCode(t, err, codes.ResourceExhausted, "no capacity")
}

// TestCopies of a volume and of a snapshot are at least as large as their source.
func TestCopies(t *testing.T) {
	w := newWorld(t, nil)
	v := w.mustCreate("pvc-1", func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes = 2 * gib })
	if err := w.cloud.WriteDisk(v.GetVolumeId(), []byte("data")); err != nil {
		t.Fatal(err)
	}
	s, err := call(w.Driver, t.Context(), "CreateSnapshot", w.controller.CreateSnapshot, &csi.CreateSnapshotRequest{Name: "snap-1", SourceVolumeId: v.GetVolumeId()})
	if err != nil || !s.GetSnapshot().GetReadyToUse() {
		t.Fatalf("%v, %v", s, err)
	}
	for name, source := range map[string]*csi.VolumeContentSource{
		"clone":    {Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: v.GetVolumeId()}}},
		"restored": {Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: s.GetSnapshot().GetSnapshotId()}}},
	} {
		c := w.mustCreate(name, func(r *csi.CreateVolumeRequest) { r.CapacityRange, r.VolumeContentSource = nil, source })
		data, err := w.cloud.ReadDisk(c.GetVolumeId())
		if err != nil || string(data) != "data" || c.GetCapacityBytes() != 2*gib || c.GetContentSource() != source {
			t.Errorf("%s: %v, %q, %v", name, c, data, err)
		}
	}
	_, err = call(w.Driver, t.Context(), "CreateSnapshot", w.controller.CreateSnapshot,
		&csi.CreateSnapshotRequest{Name: "snap-2", SourceVolumeId: v.GetVolumeId(), Parameters: map[string]string{"speed": "high"}})
	wantCode(t, err, codes.InvalidArgument, `"speed"`)
}

// TestPublishToTheNode attaches to its instance, and to one at a time.
func TestPublishToTheNode(t *testing.T) {
	w := newWorld(t, nil)
	v := w.mustCreate("pvc-1").GetVolumeId()
	for range 2 {
		got, err := w.publish(v, w.n1, mountCapability(""))
		if err != nil || got[keyPlacement] != "node" || got[keySerial] != v || w.holder(v) != w.n1 {
			t.Fatalf("%v, %v, at %s", got, err, w.holder(v))
		}
	}
	_, err := w.publish(v, w.n2, mountCapability(""))
	wantCode(t, err, codes.FailedPrecondition, w.n1)
	if err := w.unpublish(v, w.n2); err != nil || w.holder(v) != w.n1 { // never from another
		t.Errorf("%v, at %s", err, w.holder(v))
	}
	_, err = call(w.Driver, t.Context(), "DeleteVolume", w.controller.DeleteVolume, &csi.DeleteVolumeRequest{VolumeId: v})
	wantCode(t, err, codes.FailedPrecondition, "")
	for range 2 {
		if err := w.unpublish(v, w.n1); err != nil || w.holder(v) != "" {
			t.Errorf("%v, at %s", err, w.holder(v))
		}
	}
	_, err = w.publish(v, "node-without-an-instance", mountCapability(""))
	wantCode(t, err, codes.NotFound, "only pods in VMs")
	wantCode(t, w.unpublish(v, ""), codes.InvalidArgument, "node_id")
	for _, name := range []string{"pvc-2", "pvc-3"} {
		if _, err := w.publish(w.mustCreate(name).GetVolumeId(), w.n1, mountCapability("")); err != nil {
			t.Error(err)
		}
	}
	_, err = w.publish(v, w.n1, mountCapability(""))
	wantCode(t, err, codes.ResourceExhausted, "no more")
}

// placed is what the API server says of all volumes.
type placed struct {
	Nowhere
	placement Placement
	err       error
	inVMs     map[string][]string
	attached  Placement
	node      string // the instance that is a Node
	pod       Pod
}

func (p *placed) IsNode(_ context.Context, id string) (bool, error) { return id == p.node, nil }

func (p *placed) Pod(context.Context, string, string, string) (*Pod, error) { return &p.pod, nil }

func (p *placed) Attached(context.Context, string, string) (Placement, error) { return p.attached, nil }

func (p *placed) Placement(context.Context, string, string) (Placement, error) {
	return p.placement, p.err
}

func (p *placed) InVMs(context.Context) (map[string][]string, error) { return p.inVMs, nil }

// TestPublishToAVM attaches nothing to the node, and the end of the publication takes no disk from
// a VM.
func TestPublishToAVM(t *testing.T) {
	p := &placed{placement: InVM}
	w := newWorld(t, p)
	v := w.mustCreate("pvc-1").GetVolumeId()
	got, err := w.publish(v, w.n1, mountCapability(""))
	if err != nil || len(got) != 1 || got[keyPlacement] != "vm" || w.holder(v) != "" {
		t.Fatalf("%v, %v, at %q", got, err, w.holder(v))
	}
	if _, err := w.cloud.AttachDisk(t.Context(), v, w.n2); err != nil { // n2 is the VM
		t.Fatal(err)
	}
	p.inVMs = map[string][]string{v: {w.n1}}
	list, err := call(w.Driver, t.Context(), "ListVolumes", w.controller.ListVolumes, &csi.ListVolumesRequest{})
	if err != nil || len(list.GetEntries()) != 1 || !slices.Equal(list.GetEntries()[0].GetStatus().GetPublishedNodeIds(), []string{w.n1}) {
		t.Errorf("%v, %v", list, err)
	}
	if err := w.unpublish(v, w.n1); err != nil || w.holder(v) != w.n2 {
		t.Errorf("%v, at %q", err, w.holder(v))
	}
	block := mountCapability("")
	block.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	if r, err := w.publish(v, w.n1, block); err != nil || r[keyPlacement] != string(InVM) {
		t.Errorf("a raw block volume: %v, %v", r, err)
	}
	p.attached = OnNode
	_, err = w.publish(v, w.n2, mountCapability(""))
	wantCode(t, err, codes.FailedPrecondition, "still attached to node")
	// The ordinary pod was deleted before its attachment was on record.
	p.attached = ""
	if _, err = w.publish(v, w.n2, mountCapability("")); err != nil || w.holder(v) != "" {
		t.Errorf("%v, at %q", err, w.holder(v))
	}
	p.err = fmt.Errorf("%w: both kinds", errPrecondition)
	_, err = w.publish(v, w.n1, mountCapability(""))
	wantCode(t, err, codes.FailedPrecondition, "both kinds")
}

func TestExpand(t *testing.T) {
	w := newWorld(t, nil)
	v := w.mustCreate("pvc-1").GetVolumeId()
	expand := func(least, most int64) (*csi.ControllerExpandVolumeResponse, error) {
		return call(w.Driver, t.Context(), "ControllerExpandVolume", w.controller.ControllerExpandVolume,
			&csi.ControllerExpandVolumeRequest{VolumeId: v, CapacityRange: &csi.CapacityRange{RequiredBytes: least, LimitBytes: most}, VolumeCapability: mountCapability("")})
	}
	for range 2 {
		if got, err := expand(3*gib, 0); err != nil || got.GetCapacityBytes() != 3*gib || !got.GetNodeExpansionRequired() {
			t.Errorf("%v, %v", got, err)
		}
	}
	if got, err := expand(gib, 0); err != nil || got.GetCapacityBytes() != 3*gib {
		t.Errorf("disks never shrink: %v, %v", got, err)
	}
	_, err := expand(gib, 2*gib)
	wantCode(t, err, codes.OutOfRange, "never shrink")
	_, err = expand(1<<60, 0)
	wantCode(t, err, codes.OutOfRange, "")
}

// TestPages: what is deleted and made between two pages moves nothing.
func TestPages(t *testing.T) {
	w := newWorld(t, nil)
	var ids []string
	for i := range 5 {
		ids = append(ids, w.mustCreate(fmt.Sprintf("pvc-%d", i)).GetVolumeId())
	}
	page := func(token string) ([]string, string, error) {
		got, err := call(w.Driver, t.Context(), "ListVolumes", w.controller.ListVolumes, &csi.ListVolumesRequest{MaxEntries: 2, StartingToken: token})
		var found []string
		for _, e := range got.GetEntries() {
			found = append(found, e.GetVolume().GetVolumeId())
		}
		return found, got.GetNextToken(), err
	}
	first, token, err := page("")
	if err != nil || !slices.Equal(first, ids[:2]) {
		t.Fatalf("%v, %v", first, err)
	}
	if err := errors.Join(w.cloud.DeleteDisk(t.Context(), ids[0]), w.cloud.DeleteDisk(t.Context(), ids[1])); err != nil {
		t.Fatal(err)
	}
	second, token, err := page(token)
	if err != nil || !slices.Equal(second, ids[2:4]) {
		t.Errorf("%v, %v", second, err)
	}
	last, token, err := page(token)
	if err != nil || !slices.Equal(last, ids[4:]) || token != "" {
		t.Errorf("%v, %q, %v", last, token, err)
	}
	for _, wrong := range []string{"7", "x/disk-1"} {
		_, _, err = page(wrong)
		wantCode(t, err, codes.Aborted, "starting_token")
	}
}

// TestCodes: each class has the code of the CSI specification.
func TestCodes(t *testing.T) {
	for _, class := range provider.Classes() {
		if codeOf[class] == codes.OK {
			t.Errorf("%v has no code", class)
		}
	}
	for err, want := range map[error]codes.Code{
		provider.ErrInUse: codes.FailedPrecondition, provider.ErrCapacity: codes.ResourceExhausted, provider.ErrUnknown: codes.Unavailable,
		errors.New("what is not classed"): codes.Unavailable, context.Canceled: codes.Canceled, context.DeadlineExceeded: codes.DeadlineExceeded,
	} {
		wantCode(t, wire(fmt.Errorf("call: %w", err)), want, "call: ")
	}
}

// TestOneAfterTheOther: requests about one volume wait for each other, those about others do not.
func TestOneAfterTheOther(t *testing.T) {
	blocked, gate := cloud.Block(cloud.OpAttachDisk)
	w := newWorld(t, nil)
	a, b := w.mustCreate("pvc-a").GetVolumeId(), w.mustCreate("pvc-b").GetVolumeId()
	w.cloud.Inject(blocked)
	var both sync.WaitGroup
	both.Go(func() {
		if _, err := w.publish(a, w.n1, mountCapability("")); err != nil {
			t.Error(err)
		}
	})
	<-gate.Reached()
	if _, err := w.publish(b, w.n1, mountCapability("")); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := call(w.Driver, ctx, "ControllerUnpublishVolume", w.controller.ControllerUnpublishVolume, &csi.ControllerUnpublishVolumeRequest{VolumeId: a, NodeId: w.n1})
	wantCode(t, err, codes.DeadlineExceeded, "")
	gate.Open()
	both.Wait()
}

// TestWithoutDisks: a provider that has none is a clear error.
func TestWithoutDisks(t *testing.T) {
	c, err := cloud.New(cloud.Options{})
	if err != nil {
		t.Fatal(err)
	}
	type bare struct{ provider.Provider }
	if _, err := New(Options{Provider: bare{c}, Cluster: "c1"}); !errors.Is(err, provider.ErrUnimplemented) || !strings.Contains(err.Error(), "DiskController") {
		t.Error(err)
	}
	type disks struct {
		provider.Provider
		provider.DiskController
	}
	d, err := New(Options{Provider: disks{c, c}, Cluster: "c1", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = call(d, t.Context(), "ListSnapshots", d.controller.ListSnapshots, &csi.ListSnapshotsRequest{})
	wantCode(t, err, codes.Unimplemented, "")
}

// TestCallsPerVolume counts what a thousand volumes cost in calls to the cloud, without those of the adaptor.
func TestCallsPerVolume(t *testing.T) {
	const volumes = 1000
	for placement, want := range map[Placement]map[cloud.Op]int{
		InVM:   {cloud.OpCreateDisk: 1, cloud.OpGetDisk: 1, cloud.OpDetachDisk: 1, cloud.OpDeleteDisk: 1}, // what the node never had is detached, too
		OnNode: {cloud.OpCreateDisk: 1, cloud.OpGetDisk: 1, cloud.OpAttachDisk: 1, cloud.OpDetachDisk: 1, cloud.OpDeleteDisk: 1},
	} {
		w := newWorld(t, &placed{placement: placement})
		for n := range volumes {
			v := w.mustCreate(fmt.Sprint("pvc-", n)).GetVolumeId()
			_, err := w.publish(v, w.n1, mountCapability(""))
			if err == nil {
				err = w.unpublish(v, w.n1)
			}
			if err == nil {
				_, err = call(w.Driver, t.Context(), "DeleteVolume", w.controller.DeleteVolume, &csi.DeleteVolumeRequest{VolumeId: v})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, op := range []cloud.Op{cloud.OpCreateDisk, cloud.OpGetDisk, cloud.OpListDisks, cloud.OpAttachDisk, cloud.OpDetachDisk, cloud.OpDeleteDisk} {
			if got := w.cloud.Calls(op); got != want[op]*volumes {
				t.Errorf("%s: %d calls of %s for %d volumes, want %d for each", placement, got, op, volumes, want[op])
			}
		}
	}
}
