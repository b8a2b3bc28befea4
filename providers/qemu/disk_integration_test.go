// SPDX-License-Identifier: Apache-2.0

//go:build integration

package qemu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/procid"
	"github.com/outrigger/outrigger/provider"
)

// diskWatcher is the "debug shell" of the guests in these tests. It says on the console which
// disks there are, by serial number (page 0x80 of the vital product data has it after four bytes),
// their sectors, and what is on them. Then it leaves its host name on a disk, and a number at
// 1 MiB, and, when that is on the disk, the same at 3 MiB. It has device files of its own: if it
// wrote to /dev/sda when that disk was just taken away, it would make an ordinary file there, which
// hides the next disk.
const diskWatcher = `#!/bin/busybox sh
b=/bin/busybox
$b mkdir /disks
seen=" "
i=1
while :; do
	now=" "
	for d in /sys/block/sd*; do
		[ -e $d/size ] || continue
		dev=$($b cat $d/dev) || continue
		n=/disks/$dev
		[ -b $n ] || $b mknod $n b ${dev%:*} ${dev#*:}
		serial=$($b dd if=$d/device/vpd_pg80 bs=1 skip=4 2>/dev/null)
		disk="$serial sectors=$($b cat $d/size)"
		now="$now$disk "
		case "$seen" in *" $disk "*) ;; *)
			holds=$($b dd if=$n bs=512 count=1 2>/dev/null | $b tr -d '\000')
			printf "left by %s" "$($b hostname)" | $b dd of=$n conv=fsync,notrunc 2>/dev/null
			echo "WATCHER sees $disk holds=<$holds>" # it is written: the VM may end
		esac
		$b printf %08d $i | $b dd of=$n bs=1M seek=1 conv=fsync,notrunc 2>/dev/null
		$b printf %08d $i | $b dd of=$n bs=1M seek=3 conv=fsync,notrunc 2>/dev/null
	done
	[ "$now" = "$seen" ] || echo "WATCHER has<$now>"
	seen=$now
	i=$((i+1))
	$b sleep 0.1
done
`

// withWatcher adds the watcher to the pod VM's image.
func withWatcher(t *testing.T) func(*Config) {
	t.Helper()
	path, err := exec.LookPath("busybox")
	if err != nil {
		t.Skipf("%v; run: apt-get install busybox-static", err)
	}
	busybox, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return func(c *Config) {
		image, err := os.ReadFile(c.Initrd)
		if err != nil {
			t.Fatal(err)
		}
		out := bytes.NewBuffer(image)
		out.Write(make([]byte, -out.Len()&3))
		cpioEntry(out, "bin", 0o040755, 0, 0, nil)
		cpioEntry(out, "bin/busybox", 0o100755, 0, 0, busybox)
		cpioEntry(out, "bin/sh", 0o100755, 0, 0, []byte(diskWatcher))
		cpioEntry(out, "TRAILER!!!", 0, 0, 0, nil)
		dir := t.TempDir()
		c.Initrd = filepath.Join(dir, "initrd.cpio")
		c.TemplateDir = filepath.Join(dir, "templates")
		if err := os.WriteFile(c.Initrd, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// openDisks is open, and deletes disks and snapshots in the end.
func openDisks(t *testing.T) *Provider {
	t.Helper()
	p := open(t, testConfig(t, withWatcher(t)))
	t.Cleanup(func() { deleteDisks(t, p) })
	return p
}

func deleteDisks(t *testing.T, p *Provider) {
	t.Helper()
	deleteAll(t, p)
	ctx := context.Background()
	disks, err := p.store.disks().list()
	snapshots, otherErr := p.store.snapshots().list()
	err = errors.Join(err, otherErr)
	for _, v := range disks {
		err = errors.Join(err, p.DeleteDisk(ctx, v.ID))
	}
	for _, v := range snapshots {
		err = errors.Join(err, p.DeleteSnapshot(ctx, v.ID))
	}
	if err != nil {
		t.Error(err)
	}
}

// sees is what the watcher says of a disk.
func sees(d *provider.Disk, holds string) string {
	return fmt.Sprintf("WATCHER sees %s sectors=%d holds=<%s>", d.ID, d.Bytes/512, holds)
}

// has is what it says of all disks, in the order in which they came.
func has(disks ...*provider.Disk) string {
	list := " "
	for _, d := range disks {
		list += fmt.Sprintf("%s sectors=%d ", d.ID, d.Bytes/512)
	}
	return "WATCHER has<" + list + ">"
}

// forget empties an instance's console, so that what it says is said again.
func forget(t *testing.T, p *Provider, i *provider.Instance) {
	t.Helper()
	if err := os.Truncate(p.store.file(i.ID, consoleName), 0); err != nil {
		t.Fatal(err)
	}
}

func detach(t *testing.T, p *Provider, d *provider.Disk, i *provider.Instance) {
	t.Helper()
	begin := time.Now()
	if err := p.DetachDisk(t.Context(), d.ID, i.ID); err != nil {
		t.Fatal(err)
	}
	t.Logf("detached in %v", time.Since(begin))
}

func resize(t *testing.T, p *Provider, d *provider.Disk, bytes int64) *provider.Disk {
	t.Helper()
	got, err := p.ResizeDisk(t.Context(), d.ID, bytes)
	if err != nil || got.Bytes != bytes {
		t.Fatalf("resize: %+v, %v", got, err)
	}
	return got
}

func killQEMU(t *testing.T, p *Provider, i *provider.Instance) {
	t.Helper()
	if err := procidOf(t, p, i).Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestDiskMovesBetweenVMs, all of which run: they were restored, are restarted or killed.
func TestDiskMovesBetweenVMs(t *testing.T) {
	p := openDisks(t)
	a, b := create(t, p, "a"), create(t, p, "b")
	if restoredFrom(t, p, a) == "" {
		t.Fatal("the VM was not restored")
	}
	d := makeDisk(t, p, "d", provider.DiskSpec{Bytes: 8 * mib})
	intend(t, p, d, a) // a process that was killed then
	begin := time.Now()
	attach(t, p, d.ID, a.ID)
	t.Logf("attached in %v", time.Since(begin))
	awaitConsole(t, p, a, sees(d, ""))
	attach(t, p, d.ID, a.ID)
	_, err := p.AttachDisk(t.Context(), d.ID, b.ID)
	wantClass(t, "attach to another", err, provider.ErrInUse, a.ID)
	d = resize(t, p, d, 16*mib)
	awaitConsole(t, p, a, has(d))
	forget(t, p, a)
	detach(t, p, d, a)
	awaitConsole(t, p, a, has())

	attach(t, p, d.ID, b.ID)
	awaitConsole(t, p, b, sees(d, "left by "+a.ID))
	guarded(t, p, d, a)

	// Power off, and on with another disk that came meanwhile.
	e := makeDisk(t, p, "e", provider.DiskSpec{Bytes: 4 * mib})
	if err := p.PowerOff(t.Context(), b.ID); err != nil {
		t.Fatal(err)
	}
	attach(t, p, e.ID, b.ID)
	d = resize(t, p, d, 20*mib)
	forget(t, p, b)
	if err := p.PowerOn(t.Context(), b.ID); err != nil {
		t.Fatal(err)
	}
	f := makeDisk(t, p, "f", provider.DiskSpec{Bytes: 4 * mib})
	attach(t, p, f.ID, b.ID) // while it boots
	awaitConsole(t, p, b, sees(d, "left by "+b.ID))
	awaitConsole(t, p, b, sees(e, ""))
	awaitConsole(t, p, b, sees(f, ""))
	detach(t, p, e, b)

	// A VM that died has its disks until they are detached or it is deleted.
	killQEMU(t, p, b)
	_, err = p.AttachDisk(t.Context(), d.ID, a.ID)
	wantClass(t, "attach while a dead VM has it", err, provider.ErrInUse, b.ID)
	detach(t, p, f, b)
	if err := p.DeleteInstance(t.Context(), b.ID); err != nil {
		t.Fatal(err)
	}
	forget(t, p, a)
	attach(t, p, d.ID, a.ID)
	attach(t, p, f.ID, a.ID)
	awaitConsole(t, p, a, sees(d, "left by "+b.ID))
	awaitConsole(t, p, a, sees(f, "left by "+b.ID))
	if err := p.DeleteInstance(t.Context(), a.ID); err != nil {
		t.Fatal(err)
	}
	if got := read(t, p.store.disks().image(d.ID), 0, 64); got != "left by "+a.ID {
		t.Errorf("after all instances the disk has %q", got)
	}
}

// intend writes down that a VM has a disk, without the disk being attached.
func intend(t *testing.T, p *Provider, d *provider.Disk, i *provider.Instance) {
	t.Helper()
	v, err := p.store.disks().load(d.ID)
	if err == nil {
		v.Instance = i.ID
		err = p.store.disks().save(v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// guarded: even if the record is wrong, two VMs do not get one disk.
func guarded(t *testing.T, p *Provider, d *provider.Disk, other *provider.Instance) {
	t.Helper()
	err := p.withMonitor(t.Context(), other.ID, plugWait, func(ctx context.Context, m *monitor) error { return plug(ctx, m, d.ID) })
	wantClass(t, "attach a disk that another VM has open", err, provider.ErrInUse)
}

// TestDetachFromAGuestThatHangs: QEMU does not ask the guest.
func TestDetachFromAGuestThatHangs(t *testing.T) {
	cfg := testConfig(t, func(c *Config) { c.Append, c.Templates = "init=/nothing rdinit=/nothing panic=0", TemplatesNever })
	p := open(t, cfg)
	t.Cleanup(func() { deleteDisks(t, p) })
	i, d := create(t, p, "a"), makeDisk(t, p, "d", provider.DiskSpec{Bytes: mib})
	attach(t, p, d.ID, i.ID)
	detach(t, p, d, i)
	if err := p.DeleteDisk(t.Context(), d.ID); err != nil {
		t.Error(err)
	}
}

// numbers are the two that the watcher writes.
func numbers(t *testing.T, image string) (first, second string) {
	t.Helper()
	return read(t, image, mib, 8), read(t, image, 3*mib, 8)
}

// ofOneTime: the second number is written when the first is on the disk.
func ofOneTime(t *testing.T, what, image string) string {
	t.Helper()
	var first, second int
	a, b := numbers(t, image)
	fmt.Sscanf(a, "%d", &first)
	fmt.Sscanf(b, "%d", &second)
	if first == 0 || first != second && first != second+1 {
		t.Errorf("%s has %q and %q: they are of two times", what, a, b)
	}
	return a
}

// TestCopiesOfADiskThatAVMWritesTo.
func TestCopiesOfADiskThatAVMWritesTo(t *testing.T) {
	p := openDisks(t)
	i := create(t, p, "a")
	d := makeDisk(t, p, "d", provider.DiskSpec{Bytes: 10 << 30})
	live := p.store.disks().image(d.ID)
	attach(t, p, d.ID, i.ID)
	awaitConsole(t, p, i, sees(d, ""))
	await(t, "numbers", func() bool { _, second := numbers(t, live); return second != "" })

	leaveCopy(t, p, d, i) // by a process that was killed
	begin := time.Now()
	s, err := p.CreateSnapshot(t.Context(), "s", d.ID, ownTags)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("snapshot of 10 GiB after %v", time.Since(begin))
	image := p.store.snapshots().image(s.ID)
	kept := ofOneTime(t, "the snapshot", image)
	if n := usage(t, image); n > mib {
		t.Errorf("the snapshot uses %d bytes", n)
	}
	await(t, "later numbers", func() bool { first, _ := numbers(t, live); return first > kept })
	if got := read(t, image, mib, 8); got != kept {
		t.Errorf("the snapshot changed from %s to %s", kept, got)
	}
	e := makeDisk(t, p, "e", provider.DiskSpec{FromDisk: d.ID})
	ofOneTime(t, "the copy", p.store.disks().image(e.ID))
	f := makeDisk(t, p, "f", provider.DiskSpec{FromSnapshot: s.ID, Bytes: 11 << 30})
	attach(t, p, f.ID, i.ID)
	awaitConsole(t, p, i, sees(f, "left by "+i.ID))

	leaveCopy(t, p, d, i)
	detach(t, p, d, i)
	attach(t, p, d.ID, i.ID)
	leaveCopy(t, p, d, i)
	if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Fatal(err)
	}
	ofOneTime(t, "the disk", live)
}

// leaveCopy leaves what a process leaves that is killed while it makes a snapshot.
func leaveCopy(t *testing.T, p *Provider, d *provider.Disk, i *provider.Instance) {
	t.Helper()
	s := p.store.snapshots()
	v, err := s.byKey("s")
	if v == nil && err == nil {
		v = &volume{Key: "s", Bytes: d.Bytes, FromDisk: d.ID, Phase: phaseMaking}
		err = s.claim(v, newID(s.kind))
	}
	if err == nil {
		err = errors.Join(createFile(s.image(v.ID)+".left"), growFile(s.image(v.ID)+".left", d.Bytes))
	}
	if err == nil {
		err = p.withMonitor(t.Context(), i.ID, plugWait, func(ctx context.Context, m *monitor) error {
			return startCopy(ctx, m, d.ID, s.image(v.ID)+".left")
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestVMEndsWhileItsDiskIsCopied: the copy is made of what is on the disk.
func TestVMEndsWhileItsDiskIsCopied(t *testing.T) {
	p := openDisks(t)
	i := create(t, p, "a")
	d := makeDisk(t, p, "d", provider.DiskSpec{Bytes: 64 * mib})
	write(t, p.store.disks().image(d.ID), 0, strings.Repeat("x", 32*mib))
	attach(t, p, d.ID, i.ID)
	if err := procidOf(t, p, i).Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, err := p.CreateSnapshot(context.Background(), "s", d.ID, ownTags)
		done <- err
	}()
	killQEMU(t, p, i)
	if err := <-done; err != nil && !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("error %v, want none or unavailable", err)
	}
	s, err := p.CreateSnapshot(t.Context(), "s", d.ID, ownTags)
	if err != nil || read(t, p.store.snapshots().image(s.ID), 31*mib, 4) != "xxxx" {
		t.Errorf("snapshot %+v, %v", s, err)
	}
}

func procidOf(t *testing.T, p *Provider, i *provider.Instance) procid.ID {
	t.Helper()
	r, err := p.existing(i.ID)
	if err != nil {
		t.Fatal(err)
	}
	return procid.ID(r.Process)
}
