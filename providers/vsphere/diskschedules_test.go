// SPDX-License-Identifier: Apache-2.0

//go:build !race

package vsphere

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/vsphere"
	"github.com/outrigger/outrigger/test/tier"
)

// diskFaults are what befalls calls about disks.
var diskFaults = append([]cloudsim.Fault{
	cloudsim.LostReply("CreateVM_Task"), cloudsim.LostReply("ReconfigVM_Task"), cloudsim.Unreachable("ReconfigVM_Task"), cloudsim.LostReply("FindChild"),
	cloudsim.GoesOn("ReconfigVM_Task", 10*time.Millisecond), cloudsim.Lost("ReconfigVM_Task", 10*time.Millisecond), cloudsim.Lost("CreateVM_Task", 10*time.Millisecond),
	cloudsim.Lost("CloneVM_Task", 10*time.Millisecond), cloudsim.Lost("Destroy_Task", 10*time.Millisecond),
	cloudsim.Refused("ReconfigVM_Task", 500, "task:SystemError"), cloudsim.Refused("ReconfigVM_Task", 500, "task:ConcurrentAccess"),
	cloudsim.Refused("CreateVM_Task", 500, "task:NoDiskSpace"), cloudsim.Refused("CloneVM_Task", 500, "task:FileLocked"),
}, faults...)

// TestSchedulesOfDisks: several processes make, copy, attach, detach, resize and delete the same disks and instances at the same time; they
// give up, are killed and started, and calls of vCenter fail. No file is ever in two VMs, and what nobody has deleted is there.
// OUTRIGGER_SEED runs the one schedule of a failure again.
func TestSchedulesOfDisks(t *testing.T) {
	first, n := rand.Uint64()>>1, tier.Rounds(t, 20, 1000)
	if text := os.Getenv("OUTRIGGER_SEED"); text != "" {
		var err error
		if first, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
		n = 1
	}
	var wait sync.WaitGroup
	next := make(chan uint64)
	for range cloudsim.Workers {
		wait.Go(func() {
			for seed := range next {
				t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { runDiskSchedule(t, seed) })
			}
		})
	}
	for i := range uint64(n) {
		if t.Failed() {
			break
		}
		next <- first + i
	}
	close(next)
	wait.Wait()
}

// diskSchedule is one run. Only its own goroutine uses random.
type diskSchedule struct {
	t         testing.TB
	s         *sim.Site
	random    *rand.Rand
	processes []*Provider

	mu    sync.Mutex
	story []string
	// kept are disks that were made, by key, and that nobody has begun to delete; begun counts deletions, and doomed are keys of
	// which one runs or was given up: it may go on.
	kept   map[string]string
	begun  map[string]int
	doomed map[string]int
}

var (
	diskKeys = []string{"disk-a", "disk-b"}
	copyKeys = []string{"copy-a", "copy-b"}
	nodeKeys = []string{"one", "two"}
)

func runDiskSchedule(t *testing.T, seed uint64) {
	d := &diskSchedule{t: t, s: sim.Start(t), random: rand.New(rand.NewPCG(seed, 1)), kept: map[string]string{}, begun: map[string]int{}, doomed: map[string]int{}}
	for range 3 {
		d.processes = append(d.processes, mustOpen(t, simConfig(d.s)))
	}
	for range d.random.IntN(5) {
		f := diskFaults[d.random.IntN(len(diskFaults))]
		f.Skip += d.random.IntN(15)
		d.s.World.Script(f)
		d.tell("fault %+v", f)
	}
	for range 6 + d.random.IntN(8) {
		var calls sync.WaitGroup
		for range 1 + d.random.IntN(3) {
			call := d.draw()
			calls.Go(call)
		}
		calls.Wait()
		checkOneHolder(t, d.s)
	}
	d.s.World.ClearFaults()
	d.recover()
	if t.Failed() {
		t.Logf("run it again with OUTRIGGER_SEED=%d; what happened:\n%s", seed, strings.Join(d.story, "\n"))
	}
}

func (d *diskSchedule) tell(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.story = append(d.story, fmt.Sprintf(format, args...))
}

func pick[T any](random *rand.Rand, list []T) T { return list[random.IntN(len(list))] }

// draw returns the call of a process, which may give up.
func (d *diskSchedule) draw() func() {
	p, patience := pick(d.random, d.processes), time.Minute
	if d.random.IntN(3) == 0 {
		patience = time.Duration(d.random.IntN(60)) * time.Millisecond
	}
	key, copied, instance := pick(d.random, diskKeys), pick(d.random, copyKeys), pick(d.random, nodeKeys)
	id, nodeID := volumeID(kindDisk, cloudsim.OwnerTags(key)[provider.TagCluster], key), instanceID(instance)
	name, call := "", func(context.Context) error { return nil }
	switch d.random.IntN(12) {
	case 0, 1:
		name, call = "create "+key, func(ctx context.Context) error { return d.create(ctx, p, key, provider.DiskSpec{Bytes: 1 << 30}) }
	case 2:
		name, call = "copy "+copied+" of "+key, func(ctx context.Context) error {
			return d.create(ctx, p, copied, provider.DiskSpec{FromDisk: id})
		}
	case 3, 4, 5:
		name, call = "attach "+key+" to "+instance, func(ctx context.Context) error { _, err := p.AttachDisk(ctx, id, nodeID); return err }
	case 6, 7:
		name, call = "detach "+key+" from "+instance, func(ctx context.Context) error { return p.DetachDisk(ctx, id, nodeID) }
	case 8:
		name, call = "resize "+key, func(ctx context.Context) error { _, err := p.ResizeDisk(ctx, id, 2<<30); return err }
	case 9:
		name, call = "delete "+key, func(ctx context.Context) error { return d.remove(ctx, p, key, id) }
	case 10:
		name, call = "make "+instance, func(ctx context.Context) error { _, err := create(ctx, p, instance); return err }
	case 11:
		name, call = "end "+instance, func(ctx context.Context) error { return p.DeleteInstance(ctx, nodeID) }
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		err := call(ctx)
		d.tell("%s for %v: %v", name, patience, err)
		if err != nil && provider.Class(err) == provider.ErrUnknown {
			d.t.Errorf("%s: %v", name, err)
		}
	}
}

func (d *diskSchedule) create(ctx context.Context, p *Provider, key string, spec provider.DiskSpec) error {
	spec.Tags = cloudsim.OwnerTags(key)
	d.mu.Lock()
	before := d.begun[key]
	d.mu.Unlock()
	made, err := p.CreateDisk(ctx, key, spec)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil && d.begun[key] == before && d.doomed[key] == 0 {
		d.kept[key] = made.ID
	}
	return err
}

func (d *diskSchedule) remove(ctx context.Context, p *Provider, key, id string) error {
	count := func(more int) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.begun[key]++
		d.doomed[key] += more
		delete(d.kept, key)
	}
	count(1)
	err := p.DeleteDisk(ctx, id)
	if err == nil || errors.Is(err, provider.ErrInUse) {
		count(-1)
	}
	return err
}

// recover takes all disks to one new instance and back, and then removes everything.
func (d *diskSchedule) recover() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	p := mustOpen(d.t, simConfig(d.s))
	node := mustCreate(d.t, p, "recovery")
	owner := map[string]string{provider.TagCluster: cloudsim.OwnerTags("")[provider.TagCluster]}
	list, err := p.ListDisks(ctx, owner)
	d.tell("list: %+v, %v", list, err)
	there := map[string]bool{}
	for _, disk := range list {
		there[disk.ID] = true
		v := errors.Join(
			try(ctx, func() error { return p.DetachDisk(ctx, disk.ID, disk.InstanceID) }),
			try(ctx, func() error { _, err := p.AttachDisk(ctx, disk.ID, node); return err }),
			try(ctx, func() error { _, err := p.ResizeDisk(ctx, disk.ID, 3<<30); return err }),
		)
		if v != nil && !strings.Contains(v.Error(), "being made or deleted") {
			d.t.Errorf("disk %s: %v", disk.Key, v)
		}
	}
	checkOneHolder(d.t, d.s)
	for key, id := range d.kept {
		if !there[id] {
			d.t.Errorf("disk %s is gone", key)
		}
	}
	for _, id := range []string{node, instanceID("one"), instanceID("two")} {
		if err := try(ctx, func() error { return p.DeleteInstance(ctx, id) }); err != nil {
			d.t.Errorf("instance %s: %v", id, err)
		}
	}
	for more := true; more && ctx.Err() == nil; { // what a lost request makes comes late
		for _, disk := range list {
			if err := try(ctx, func() error { return p.DeleteDisk(ctx, disk.ID) }); err != nil {
				d.t.Errorf("disk %s: %v", disk.Key, err)
			}
		}
		list, err = p.ListDisks(ctx, owner)
		instances, listErr := p.ListInstances(ctx, owner)
		for _, i := range instances {
			_ = p.DeleteInstance(ctx, i.ID)
		}
		more = len(list)+len(instances)+len(d.s.World.Own()) > 0 || errors.Join(err, listErr) != nil
	}
	checkNothing(d.t, d.s, p)
}

// try repeats a call while callers may.
func try(ctx context.Context, call func() error) error {
	for {
		err := call()
		if err == nil || !provider.Retryable(err) || ctx.Err() != nil || strings.Contains(err.Error(), "being made or deleted") {
			return err
		}
	}
}
