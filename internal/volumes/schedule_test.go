// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/mount-utils"

	"github.com/outrigger/outrigger/internal/directvolume"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/tier"
)

// TestSchedulesOfVolumes drives claims, pods of both kinds on two nodes and their volumes through
// random schedules: provisioner, attacher, resizer, attach-detach controller, kubelet and the adaptor
// do the next of their steps in any order, as they are documented to. The driver's controller and
// node plugins are killed before or after any call to the cloud and to the node's mounts, adaptors also between their
// steps and while they take over what the one before has left; replies of the cloud are lost. At no instant does a node have a file system mounted whose disk is elsewhere, a
// pod in a VM run without its disk, a claim without its disk, or two disks for a claim; no file system
// is made twice. Then all faults end: pods run, pods and claims are deleted, and nothing is left: no attachment
// that cannot be removed, no mount, no record, no disk. OUTRIGGER_SEED runs one again.
func TestSchedulesOfVolumes(t *testing.T) {
	if text := os.Getenv("OUTRIGGER_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("OUTRIGGER_SEED=%q: %v", text, err)
		}
		onFake(t, seed, os.Getenv("OUTRIGGER_WRAPPED") != "").run()
		return
	}
	runSchedules(t, tier.Rounds(t, 100, 500), false)
}

// TestSchedulesOfAWrappedDriver is the same with the driver before one that knows no VMs, and serves
// ordinary pods alone. OUTRIGGER_WRAPPED=1 and OUTRIGGER_SEED run one again, of TestSchedulesOfVolumes.
func TestSchedulesOfAWrappedDriver(t *testing.T) { runSchedules(t, tier.Rounds(t, 100, 300), true) }

func runSchedules(t *testing.T, rounds int, wrapped bool) {
	died := map[string]int{}
	for range rounds {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			s := onFake(t, seed, wrapped)
			s.run()
			for where, n := range s.died {
				died[where] += n
			}
		})
	}
	t.Logf("processes ended: %v", died)
	for _, places := range adaptorDies {
		if died[places[0]]+died[places[1]] == 0 {
			t.Errorf("no adaptor ended at %s or %s", places[0], places[1])
		}
	}
	for _, call := range []string{"CreateDisk", "DeleteDisk", "AttachDisk", "DetachDisk", "ResizeDisk", "Mount", "Unmount"} {
		if died["before "+call] == 0 || died["after "+call] == 0 {
			t.Errorf("none ended before, or after, %s", call)
		}
	}
	if died["never: disk awaited"] == 0 {
		t.Error("no VM waited for a disk")
	}
	if died["never: node ran"] == 0 || died["never: vm ran"] == 0 {
		t.Error("no pod of one of the kinds ran")
	}
}

// claim is a PersistentVolumeClaim with its volume.
type claim struct {
	name           string
	bytes          int64
	handle         string // of the volume; empty until it is there
	asked, deleted bool
	resize         bool
	uuid           string // of its file system on nodes
}

// podOf has one claim.
type podOf struct {
	name, uid string
	claim     *claim
	on        *nodeOf
	inVM      bool
	step      podStep
	deleted   bool
	sandbox   string // the last one
	vm        string // the instance
	stopped   bool   // its VM is on its way out, or it has none
	removed   bool   // that is gone
}

type podStep int

const (
	podPending podStep = iota
	podStaged
	podPublished
	podRunning
	podUnpublished
)

// attachment is a VolumeAttachment.
type attachment struct {
	claim   *claim
	on      *nodeOf
	context map[string]string // nil until it is attached
	deleted bool
}

// run does random steps, and then all that is left.
func (s *schedule) run() {
	for range 300 {
		s.anything()
		s.check()
	}
	s.faults = false
	for range 100 {
		s.everything()
		s.check()
	}
	s.wantRunning()
	for _, p := range s.pods {
		p.deleted = true
	}
	for _, c := range s.claims {
		c.deleted = true
	}
	for range 100 {
		s.everything()
		s.check()
		if len(s.pods)+len(s.claims)+len(s.attachments) == 0 {
			break
		}
	}
	s.wantNothing()
}

// anything does one step of one of those who work, or of a user.
func (s *schedule) anything() {
	switch s.random.IntN(13) {
	case 0:
		if len(s.claims) < 3 {
			s.serial++
			s.claims = append(s.claims, &claim{name: fmt.Sprint("pvc-", s.serial), bytes: gib})
		}
	case 1:
		s.newPod()
	case 2:
		if p := pick(s, s.pods); p != nil {
			p.deleted = true
		}
	case 3:
		if c := pick(s, s.claims); c != nil && s.random.IntN(3) == 0 {
			c.deleted = true
		}
	case 4:
		if c := pick(s, s.claims); c != nil && c.handle != "" && !c.deleted && c.bytes < 3*gib {
			c.bytes, c.resize = c.bytes+gib, true
		}
	case 5:
		s.everything()
	case 6:
		if p := pick(s, s.pods); p != nil && p.vm != "" && !p.stopped && s.kill != nil {
			s.kill(p.vm)
			p.deleted = true
		}
	default:
		s.oneOf()
	}
}

// newPod makes a pod of a claim that no pod has, or whose pod is on its way out.
func (s *schedule) newPod() {
	c := pick(s, s.claims)
	if c == nil || c.handle == "" || c.deleted || slices.ContainsFunc(s.pods, func(p *podOf) bool { return p.claim == c && !p.deleted }) {
		return
	}
	s.serial++
	p := &podOf{name: fmt.Sprint("pod-", s.serial), uid: fmt.Sprint("uid-", s.serial), claim: c, on: s.nodes[s.random.IntN(len(s.nodes))], inVM: s.random.IntN(2) == 0}
	if i := slices.IndexFunc(s.pods, func(before *podOf) bool { return before.claim == c }); i >= 0 && s.dice(4) > 0 {
		p.on, p.inVM = s.pods[i].on, s.pods[i].inVM // as a Deployment's next pod is
	}
	p.stopped, p.removed = !p.inVM, !p.inVM
	s.pods = append(s.pods, p)
}

func pick[T any](s *schedule, list []*T) *T {
	if len(list) == 0 {
		return nil
	}
	return list[s.random.IntN(len(list))]
}

// oneOf does a step of somebody who works.
func (s *schedule) oneOf() {
	switch s.random.IntN(4) {
	case 0:
		s.provision(pick(s, s.claims))
	case 1:
		s.attachDetach()
	case 2:
		s.attach(pick(s, s.attachments))
	default:
		s.kubelet(pick(s, s.pods))
	}
}

func (s *schedule) everything() {
	for _, c := range slices.Clone(s.claims) {
		s.provision(c)
	}
	s.attachDetach()
	for _, a := range slices.Clone(s.attachments) {
		s.attach(a)
	}
	for _, p := range slices.Clone(s.pods) {
		s.kubelet(p)
	}
}

// provision does what external-provisioner and external-resizer do: a creation that was begun is
// repeated until it has an answer, also of a claim that is deleted meanwhile.
func (s *schedule) provision(c *claim) {
	switch used := c != nil && slices.ContainsFunc(s.pods, func(p *podOf) bool { return p.claim == c }); {
	case c == nil:
	case c.deleted && !c.asked:
		s.claims = remove(s.claims, c)
	case c.handle == "":
		c.asked = true
		got, err := request(s, s.controller, "CreateVolume", s.controller.controller.CreateVolume, &csi.CreateVolumeRequest{
			Name: c.name, CapacityRange: &csi.CapacityRange{RequiredBytes: gib}, VolumeCapabilities: []*csi.VolumeCapability{mountCapability("")},
		})
		if err == nil {
			c.handle = got.GetVolume().GetVolumeId()
		}
	case c.deleted:
		// The finalizers of claim and volume: neither goes while a pod or an attachment has it.
		if used || slices.ContainsFunc(s.attachments, func(a *attachment) bool { return a.claim == c }) {
			return
		}
		c.asked = true
		if _, err := request(s, s.controller, "DeleteVolume", s.controller.controller.DeleteVolume, &csi.DeleteVolumeRequest{VolumeId: c.handle}); err == nil {
			s.claims = remove(s.claims, c)
		}
	case c.resize:
		got, err := request(s, s.controller, "ControllerExpandVolume", s.controller.controller.ControllerExpandVolume, &csi.ControllerExpandVolumeRequest{
			VolumeId: c.handle, CapacityRange: &csi.CapacityRange{RequiredBytes: c.bytes}, VolumeCapability: mountCapability(""),
		})
		if c.resize = err != nil; err == nil && got.GetCapacityBytes() < c.bytes {
			s.Errorf("%s has %d bytes and not %d", c.name, got.GetCapacityBytes(), c.bytes)
		}
	}
}

// attachDetach does what the attach-detach controller does: a volume is attached to one node, and
// to the next one when the attachment before is gone, which is not while kubelet has it in use.
func (s *schedule) attachDetach() {
	for _, a := range s.attachments {
		users := slices.ContainsFunc(s.pods, func(p *podOf) bool { return p.claim == a.claim && p.on == a.on && !p.deleted })
		a.deleted = a.deleted || !users && !a.on.inUse[a.claim]
	}
	for _, p := range s.pods {
		if !p.deleted && p.step == podPending && !slices.ContainsFunc(s.attachments, func(a *attachment) bool { return a.claim == p.claim }) {
			s.attachments = append(s.attachments, &attachment{claim: p.claim, on: p.on})
		}
	}
}

// attach does what external-attacher does.
func (s *schedule) attach(a *attachment) {
	switch {
	case a == nil:
	case a.deleted:
		_, err := request(s, s.controller, "ControllerUnpublishVolume", s.controller.controller.ControllerUnpublishVolume,
			&csi.ControllerUnpublishVolumeRequest{VolumeId: a.claim.handle, NodeId: a.on.id})
		if err == nil {
			s.attachments = remove(s.attachments, a)
		}
	case a.context == nil:
		got, err := request(s, s.controller, "ControllerPublishVolume", s.controller.controller.ControllerPublishVolume,
			&csi.ControllerPublishVolumeRequest{VolumeId: a.claim.handle, NodeId: a.on.id, VolumeCapability: mountCapability("")})
		if err == nil {
			a.context = got.GetPublishContext()
		}
	}
}

// kubelet does a pod's next step.
func (s *schedule) kubelet(p *podOf) {
	switch {
	case p == nil:
	case p.deleted:
		s.endPod(p)
	case p.step == podRunning:
	default:
		i := slices.IndexFunc(s.attachments, func(a *attachment) bool { return a.claim == p.claim && a.on == p.on && a.context != nil && !a.deleted })
		if i >= 0 {
			s.startPod(p, s.attachments[i].context)
		}
	}
}

func (s *schedule) startPod(p *podOf, publishContext map[string]string) {
	n := p.on
	switch p.step {
	case podPending:
		n.inUse[p.claim] = true
		s.plug()
		_, err := request(s, n.process, "NodeStageVolume", n.node.NodeStageVolume, &csi.NodeStageVolumeRequest{
			VolumeId: p.claim.handle, StagingTargetPath: n.staging(p.claim), VolumeCapability: mountCapability(""), PublishContext: publishContext,
		})
		if err == nil {
			p.step = podStaged
		}
	case podStaged:
		_, err := request(s, n.process, "NodePublishVolume", n.node.NodePublishVolume, &csi.NodePublishVolumeRequest{
			VolumeId: p.claim.handle, StagingTargetPath: n.staging(p.claim), TargetPath: n.target(p), VolumeCapability: mountCapability(""), PublishContext: publishContext,
			VolumeContext: map[string]string{sidecarPrefix + "pod.namespace": "ns", sidecarPrefix + "pod.name": p.name, sidecarPrefix + "pod.uid": p.uid},
		})
		if err == nil {
			p.step = podPublished
		}
	case podPublished:
		if !p.inVM || s.startVM(p) {
			p.step = podRunning
			s.died["never: "+string(p.placement())+" ran"]++
		}
	}
}

// startVM does what kubelet and a shim do: a sandbox that did not come to run is removed, and another one tried.
func (s *schedule) startVM(p *podOf) bool {
	vms := p.on.vms
	if p.sandbox != "" && vms.stop(p.sandbox) != nil {
		return false
	}
	s.serial++
	p.sandbox = fmt.Sprint("sandbox-", s.serial)
	if vms.start(p.sandbox, p) != nil {
		if vms.forgotten(p.sandbox) {
			p.sandbox = ""
		}
		return false
	}
	list, err := s.cloud.ListInstances(s.Context(), map[string]string{provider.TagKey: p.sandbox})
	if err != nil || len(list) != 1 {
		s.Fatalf("%s has the VMs %+v, %v", p.name, list, err)
	}
	p.vm = list[0].ID
	return true
}

// endPod removes VM and volume in any order, and the pod when both are gone.
func (s *schedule) endPod(p *podOf) {
	n := p.on
	switch {
	case !p.removed && (p.step == podUnpublished || s.random.IntN(2) == 0):
		if s.faults && p.step == podUnpublished && s.dice(10) > 0 {
			return // it takes its time, and the next pod waits for the disk
		}
		p.stopped = true
		p.removed = p.sandbox == "" || n.vms.stop(p.sandbox) == nil
	case p.step != podUnpublished:
		_, err := request(s, n.process, "NodeUnpublishVolume", n.node.NodeUnpublishVolume, &csi.NodeUnpublishVolumeRequest{VolumeId: p.claim.handle, TargetPath: n.target(p)})
		if err == nil {
			p.step = podUnpublished
		}
	case slices.ContainsFunc(s.pods, func(other *podOf) bool {
		return other != p && other.claim == p.claim && other.on == n && other.step != podPending
	}) || !n.inUse[p.claim]:
		s.pods = remove(s.pods, p)
	default:
		_, err := request(s, n.process, "NodeUnstageVolume", n.node.NodeUnstageVolume, &csi.NodeUnstageVolumeRequest{VolumeId: p.claim.handle, StagingTargetPath: n.staging(p.claim)})
		if err == nil {
			delete(n.inUse, p.claim)
			s.pods = remove(s.pods, p)
		}
	}
}

func remove[T any](list []*T, one *T) []*T {
	return slices.DeleteFunc(slices.Clone(list), func(other *T) bool { return other == one })
}

// Placement implements [Workloads].
func (s *schedule) Placement(_ context.Context, volumeID, nodeID string) (Placement, error) {
	users := map[Placement]bool{}
	for _, p := range s.pods {
		if p.claim.handle == volumeID && p.on.id == nodeID {
			users[p.placement()] = true
		}
	}
	if len(users) != 1 {
		return "", fmt.Errorf("%w: %d kinds of pods use it there", errPrecondition, len(users))
	}
	if users[InVM] {
		return InVM, nil
	}
	return OnNode, nil
}

func (p *podOf) placement() Placement {
	if p.inVM {
		return InVM
	}
	return OnNode
}

// Pod implements [Workloads].
func (s *schedule) Pod(_ context.Context, _, name, uid string) (*Pod, error) {
	i := slices.IndexFunc(s.pods, func(p *podOf) bool { return p.name == name && p.uid == uid })
	if i < 0 {
		return nil, fmt.Errorf("%w: pod %s is gone", errPrecondition, name)
	}
	return &Pod{Placement: s.pods[i].placement()}, nil
}

// Attached implements [Workloads].
func (s *schedule) Attached(_ context.Context, volumeID, nodeID string) (Placement, error) {
	for _, a := range s.attachments {
		if a.claim.handle == volumeID && a.on.id == nodeID && a.context != nil {
			return Placement(a.context[keyPlacement]), nil
		}
	}
	return "", nil
}

// IsNode implements [Workloads].
func (s *schedule) IsNode(_ context.Context, instanceID string) (bool, error) {
	return slices.ContainsFunc(s.nodes, func(n *nodeOf) bool { return n.id == instanceID }), nil
}

// InVMs implements [Workloads].
func (s *schedule) InVMs(context.Context) (map[string][]string, error) { return nil, nil }

// check says what must be true at every instant.
func (s *schedule) check() {
	for _, n := range s.nodes {
		for _, m := range n.mounts.MountPoints {
			i := slices.IndexFunc(s.claims, func(c *claim) bool { return n.staging(c) == m.Path })
			if i >= 0 && s.holder(s.claims[i]) != n.id {
				s.Fatalf("%s is mounted at node %s, and its disk is at %q", s.claims[i].name, n.id, s.holder(s.claims[i]))
			}
		}
	}
	for _, p := range s.pods {
		switch {
		case p.step == podRunning && !p.stopped && s.holder(p.claim) != p.vm:
			s.Fatalf("%s runs in %s, and its disk is at %q", p.name, p.vm, s.holder(p.claim))
		case p.step == podRunning && !p.stopped:
			if got := p.on.vms.attached(p.sandbox); len(got) != 1 || got[0].Target != p.on.target(p) || got[0].Serial == "" {
				s.Fatalf("%s runs in %s, and its relay finds the volumes %+v", p.name, p.vm, got)
			}
		case p.step == podRunning && !p.inVM && !p.deleted && !mounted(p.on.mounts, p.on.target(p)):
			s.Fatalf("%s runs without its volume: %v", p.name, p.on.mounts.MountPoints)
		}
	}
	disks, err := s.cloud.ListDisks(s.Context(), map[string]string{provider.TagCluster: provider.TagValue("c1")})
	if err != nil {
		s.Fatal(err)
	}
	keys := map[string]bool{}
	for _, d := range disks {
		if keys[d.Key] {
			s.Fatalf("two disks for %s", d.Key)
		}
		keys[d.Key] = true
	}
	for _, c := range s.claims {
		if c.handle != "" && !c.deleted && !keys[c.name] {
			s.Fatalf("the disk of %s is gone", c.name)
		}
	}
	s.checkFileSystems()
}

func mounted(m *mount.FakeMounter, path string) bool {
	return slices.ContainsFunc(m.MountPoints, func(p mount.MountPoint) bool { return p.Path == path })
}

// wantRunning says that each pod has come to run, unless its volume is attached to the node
// for pods of the other kind: kubelet is told so, and the pod has to be made again.
func (s *schedule) wantRunning() {
	for _, p := range s.pods {
		other := slices.ContainsFunc(s.attachments, func(a *attachment) bool {
			return a.claim == p.claim && a.on == p.on && a.context != nil && a.context[keyPlacement] != string(p.placement())
		})
		if p.step != podRunning && !p.deleted && !other {
			s.Errorf("%s does not start: step %d, in a VM: %v", p.name, p.step, p.inVM)
		}
	}
}

// wantNothing says what must be true in the end.
func (s *schedule) wantNothing() {
	for _, a := range s.attachments {
		s.Errorf("the attachment of %s to %s stays", a.claim.name, a.on.id)
	}
	for _, p := range s.pods {
		s.Errorf("%s stays, step %d, VM %q", p.name, p.step, p.vm)
	}
	for _, c := range s.claims {
		s.Errorf("%s stays", c.name)
	}
	for _, n := range s.nodes {
		targets, err := directvolume.Targets(n.path("records"))
		if err != nil || len(targets)+len(n.mounts.MountPoints) > 0 {
			s.Errorf("node %s has mounts %v and records %v, %v", n.id, n.mounts.MountPoints, targets, err)
		}
		if left := n.vms.left(); len(left) > 0 {
			s.Errorf("the adaptor of node %s leaves %q", n.id, left)
		}
		n.vms.close()
	}
	instances, err := s.cloud.ListInstances(s.Context(), map[string]string{provider.TagCluster: provider.TagValue("c1")})
	if err != nil || len(instances) != len(s.nodes) {
		s.Errorf("VMs are left: %+v, %v", instances, err)
	}
	disks, err := s.cloud.ListDisks(s.Context(), map[string]string{provider.TagCluster: provider.TagValue("c1")})
	if err != nil || len(disks) > 0 {
		s.Errorf("disks are left: %+v, %v", disks, err)
	}
	if s.Failed() {
		s.Logf("processes ended: %v\n%s", s.died, strings.Join(s.story, "\n"))
	}
}
