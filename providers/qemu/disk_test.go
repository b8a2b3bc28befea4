// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/localnet/statefile"
	"github.com/outrigger/outrigger/provider"
)

var ownTags = map[string]string{provider.TagCluster: "test"}

const mib = 1 << 20

// again returns a second process's provider on the same folder.
func again(t *testing.T, p *Provider) *Provider {
	t.Helper()
	other, err := New(p.cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Teardown() })
	return other
}

func makeDisk(t testing.TB, p *Provider, key string, spec provider.DiskSpec) *provider.Disk {
	t.Helper()
	spec.Tags = ownTags
	d, err := p.CreateDisk(t.Context(), key, spec)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// stopped makes an instance that is off, without a network.
func stopped(t *testing.T, p *Provider, key string) string {
	t.Helper()
	r := testRecord()
	r.Key, r.UUID, r.Tags = key, uuid.NewString(), ownTags
	if err := p.store.instances().claim(r, "podvm-"+key); err != nil {
		t.Fatal(err)
	}
	return r.ID
}

func attach(t testing.TB, p *Provider, diskID, instanceID string) {
	t.Helper()
	a, err := p.AttachDisk(t.Context(), diskID, instanceID)
	if err != nil {
		t.Fatal(err)
	}
	if a.Serial != diskID || len(a.Serial) > 20 {
		t.Errorf("serial number %q of %s", a.Serial, diskID)
	}
}

func write(t testing.TB, path string, at int64, text string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteAt([]byte(text), at)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, path string, at int64, n int) string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	data := make([]byte, n)
	if _, err := file.ReadAt(data, at); err != nil {
		t.Fatal(err)
	}
	return strings.TrimRight(string(data), "\x00")
}

// usage returns what a file uses of the file system.
func usage(t testing.TB, path string) int64 {
	t.Helper()
	var info unix.Stat_t
	if err := unix.Stat(path, &info); err != nil {
		t.Fatal(err)
	}
	return info.Blocks * 512
}

func wantClass(t testing.TB, what string, err, class error, words ...string) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Errorf("%s: error %v, want %v", what, err, class)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%s: error %q does not mention %q", what, err, word)
		}
	}
}

func TestSizesOfDisks(t *testing.T) {
	p := openUnit(t)
	d := makeDisk(t, p, "a", provider.DiskSpec{Bytes: 5*mib + 1})
	info, err := os.Stat(p.store.disks().image(d.ID))
	if err != nil || d.Bytes != 6*mib || info.Size() != 6*mib || info.Mode().Perm() != 0o600 {
		t.Errorf("%+v, file %v, %v", d, info, err)
	}
	if n := usage(t, p.store.disks().image(d.ID)); n > 64<<10 {
		t.Errorf("an empty disk uses %d bytes", n)
	}
	for name, test := range map[string]struct {
		spec  provider.DiskSpec
		class error
		word  string
	}{
		"type":      {provider.DiskSpec{Bytes: mib, Type: "fast"}, provider.ErrInvalidArgument, "fast"},
		"zone":      {provider.DiskSpec{Bytes: mib, Zone: "east"}, provider.ErrInvalidArgument, "east"},
		"limit":     {provider.DiskSpec{Bytes: mib + 1, Limit: mib + 2}, provider.ErrInvalidArgument, fmt.Sprint(mib + 2)},
		"too large": {provider.DiskSpec{Bytes: 1 << 62}, provider.ErrInvalidArgument, fmt.Sprint(int64(1 << 62))},
		"nothing":   {provider.DiskSpec{}, provider.ErrInvalidArgument, "0 bytes"},
		"no source": {provider.DiskSpec{FromDisk: "disk-0123456789abcde"}, provider.ErrNotFound, "disk-0123456789abcde"},
		"no such":   {provider.DiskSpec{FromSnapshot: "../disk"}, provider.ErrNotFound, "../disk"},
	} {
		_, err := p.CreateDisk(t.Context(), "b", test.spec)
		wantClass(t, name, err, test.class, test.word)
	}
	if all, err := p.ListDisks(t.Context(), ownTags); len(all) != 1 || err != nil {
		t.Errorf("disks %v, %v: one was made", all, err)
	}
	makeDisk(t, p, "largest", provider.DiskSpec{Bytes: maxDiskBytes})
}

func TestDiskFromBirthToDeath(t *testing.T) {
	p := openUnit(t)
	other := again(t, p)
	d := makeDisk(t, p, "a", provider.DiskSpec{Name: "data of web", Bytes: 2 * mib})
	if same := makeDisk(t, other, "a", provider.DiskSpec{Bytes: mib, Limit: 4 * mib}); same.ID != d.ID {
		t.Errorf("one key, disks %s and %s", d.ID, same.ID)
	}
	_, err := p.CreateDisk(t.Context(), "a", provider.DiskSpec{Bytes: 3 * mib})
	wantClass(t, "another size", err, provider.ErrAlreadyExists, d.ID)
	list, err := other.ListDisks(t.Context(), ownTags)
	if err != nil || len(list) != 1 || list[0].ID != d.ID || list[0].Key != "a" {
		t.Errorf("list %+v, %v", list, err)
	}
	if list, err := p.ListDisks(t.Context(), map[string]string{provider.TagCluster: "others"}); err != nil || len(list) != 0 {
		t.Errorf("list of others %+v, %v", list, err)
	}
	_, err = p.ListDisks(t.Context(), nil)
	wantClass(t, "list of everything", err, provider.ErrInvalidArgument)
	for range 2 {
		if err := other.DeleteDisk(t.Context(), d.ID); err != nil {
			t.Fatal(err)
		}
	}
	_, err = p.GetDisk(t.Context(), d.ID)
	wantClass(t, "get", err, provider.ErrNotFound, d.ID)
	noFolder(t, p)
	if next := makeDisk(t, p, "a", provider.DiskSpec{Bytes: mib}); next.ID == d.ID {
		t.Errorf("a disk has the id of the one before it, %s: a late deletion would remove it", d.ID)
	}
}

func noFolder(t *testing.T, p *Provider) {
	t.Helper()
	if _, err := os.Stat(p.store.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the state folder is left, with %v", tree(p.store.dir))
	}
}

func tree(dir string) (paths []string) {
	filepath.WalkDir(dir, func(path string, _ fs.DirEntry, _ error) error {
		paths = append(paths, path)
		return nil
	})
	return paths
}

// TestMakerOfADiskWasKilled after each of its steps.
func TestMakerOfADiskWasKilled(t *testing.T) {
	for name, leave := range map[string]func(*Provider, *volume) error{
		"folder": func(p *Provider, v *volume) error {
			return os.MkdirAll(p.store.disks().dir()+"/"+newPrefix+p.store.disks().hash(v.Key), 0o700)
		},
		"record": func(p *Provider, v *volume) error { return p.store.disks().claim(v, newID("disk")) },
		"half a file": func(p *Provider, v *volume) error {
			return errors.Join(p.store.disks().claim(v, newID("disk")), os.WriteFile(p.store.disks().image(v.ID), []byte("half"), 0o600))
		},
		"half a write": func(p *Provider, v *volume) error {
			return errors.Join(p.store.disks().claim(v, newID("disk")), os.WriteFile(p.store.disks().record(v.ID)+".new", []byte("{"), 0o600))
		},
		"deletion": func(p *Provider, v *volume) error {
			return errors.Join(p.store.disks().claim(v, newID("disk")), os.Rename(p.store.disks().folder(v.ID), p.store.disks().folder(gonePrefix+v.ID)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := openUnit(t)
			v := &volume{Key: "a", Bytes: mib, Phase: phaseMaking, Tags: ownTags}
			if err := leave(p, v); err != nil {
				t.Fatal(err)
			}
			if list, err := p.ListDisks(t.Context(), ownTags); err != nil || len(list) != 0 && list[0].ID != v.ID {
				t.Errorf("list %+v, %v", list, err)
			}
			d := makeDisk(t, p, "a", provider.DiskSpec{Bytes: 2 * mib})
			if got, err := p.GetDisk(t.Context(), d.ID); err != nil || got.Bytes != 2*mib {
				t.Errorf("disk %+v, %v", got, err)
			}
			again(t, p) // which tidies up
			if entries, err := os.ReadDir(p.store.disks().dir()); err != nil || len(entries) != 1 {
				t.Errorf("%v are there, %v; one disk is", tree(p.store.disks().dir()), err)
			}
			if err := p.DeleteDisk(t.Context(), d.ID); err != nil {
				t.Fatal(err)
			}
			noFolder(t, p)
		})
	}
}

// TestPartlyCreatedDisk is neither attached nor copied, and can be deleted.
func TestPartlyCreatedDisk(t *testing.T) {
	p := openUnit(t)
	v := &volume{Key: "a", Bytes: mib, Phase: phaseMaking, Tags: ownTags}
	if err := p.store.disks().claim(v, newID("disk")); err != nil {
		t.Fatal(err)
	}
	i := stopped(t, p, "i")
	_, err := p.AttachDisk(t.Context(), v.ID, i)
	wantClass(t, "attach", err, provider.ErrUnavailable, v.ID)
	_, err = p.CreateSnapshot(t.Context(), "s", v.ID, nil)
	wantClass(t, "snapshot", err, provider.ErrUnavailable, v.ID)
	_, err = p.CreateDisk(t.Context(), "b", provider.DiskSpec{FromDisk: v.ID})
	wantClass(t, "copy", err, provider.ErrUnavailable, v.ID)
	if err := errors.Join(p.DetachDisk(t.Context(), v.ID, i), p.DeleteDisk(t.Context(), v.ID)); err != nil {
		t.Error(err)
	}
	if _, err := p.GetDisk(t.Context(), v.ID); !errors.Is(err, provider.ErrNotFound) {
		t.Error(err)
	}
}

func TestOneDiskForOneKey(t *testing.T) {
	p := openUnit(t)
	other := again(t, p)
	ids := make([]string, 8)
	var wg sync.WaitGroup
	for n := range ids {
		wg.Go(func() {
			d, err := []*Provider{p, other}[n%2].CreateDisk(t.Context(), "a", provider.DiskSpec{Bytes: mib, Tags: ownTags})
			if err != nil {
				t.Error(err)
				return
			}
			ids[n] = d.ID
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("one key, disks %v", ids)
		}
	}
}

func TestDisksOfAnInstanceThatIsOff(t *testing.T) {
	p := openUnit(t)
	a, b := stopped(t, p, "a"), stopped(t, p, "b")
	d := makeDisk(t, p, "d", provider.DiskSpec{Bytes: mib})
	for range 2 {
		attach(t, p, d.ID, a)
	}
	_, err := p.AttachDisk(t.Context(), d.ID, b)
	wantClass(t, "attach to another", err, provider.ErrInUse, a)
	wantClass(t, "delete", p.DeleteDisk(t.Context(), d.ID), provider.ErrInUse, a)
	_, err = p.AttachDisk(t.Context(), d.ID, "podvm-none")
	wantClass(t, "attach to none", err, provider.ErrNotFound, "podvm-none")
	_, err = p.AttachDisk(t.Context(), "disk-0123456789abcde", a)
	wantClass(t, "attach none", err, provider.ErrNotFound, "disk-0123456789abcde")
	if err := errors.Join(p.DetachDisk(t.Context(), d.ID, b), p.DetachDisk(t.Context(), d.ID, "podvm-none"), p.DetachDisk(t.Context(), "disk-none", a)); err != nil {
		t.Error(err)
	}
	if got, err := p.GetDisk(t.Context(), d.ID); err != nil || got.InstanceID != a {
		t.Errorf("%+v, %v; %s has it", got, err, a)
	}
	for range 2 {
		if err := again(t, p).DetachDisk(t.Context(), d.ID, a); err != nil {
			t.Fatal(err)
		}
	}
	attach(t, p, d.ID, b)
	if err := p.letAllGo(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	attach(t, p, d.ID, a)
}

// TestDiskOfAnInstanceThatIsGone: somebody has removed the instance's folder.
func TestDiskOfAnInstanceThatIsGone(t *testing.T) {
	p := openUnit(t)
	a := stopped(t, p, "a")
	d := makeDisk(t, p, "d", provider.DiskSpec{Bytes: mib})
	attach(t, p, d.ID, a)
	if err := p.store.instances().remove(a); err != nil {
		t.Fatal(err)
	}
	wantClass(t, "delete", p.DeleteDisk(t.Context(), d.ID), provider.ErrInUse, a)
	if err := errors.Join(p.DetachDisk(t.Context(), d.ID, a), p.DeleteDisk(t.Context(), d.ID)); err != nil {
		t.Error(err)
	}
}

func TestMostDisksOfAnInstance(t *testing.T) {
	p := openUnit(t)
	a := stopped(t, p, "a")
	for n := range maxDisks {
		v := &volume{Key: fmt.Sprint(n), Bytes: mib, Phase: phaseReady, Instance: a}
		if err := p.store.disks().claim(v, newID("disk")); err != nil {
			t.Fatal(err)
		}
	}
	d := makeDisk(t, p, "one more", provider.DiskSpec{Bytes: mib})
	_, err := p.AttachDisk(t.Context(), d.ID, a)
	wantClass(t, "attach", err, provider.ErrCapacity, fmt.Sprint(maxDisks))
}

func TestArgumentsOfDisks(t *testing.T) {
	r := testRecord()
	if args := strings.Join(arguments(r, false), " "); !strings.HasSuffix(args, "-device virtio-scsi-pci,id=disks") {
		t.Errorf("without disks: %s", args)
	}
	r.disks = []string{"disk-0123456789abcde"}
	checkArguments(t, r, []string{
		`-blockdev {"discard":"unmap","driver":"raw","file":{"discard":"unmap","driver":"file","filename":"../../disks/disk-0123456789abcde/image.raw","locking":"on"},"node-name":"disk-0123456789abcde"}`,
		"-device driver=scsi-hd,id=disk-0123456789abcde,bus=disks.0,drive=disk-0123456789abcde,serial=disk-0123456789abcde,werror=report",
	}, nil)
}

// TestOneInstanceGetsADisk of many that want it at once.
func TestOneInstanceGetsADisk(t *testing.T) {
	p := openUnit(t)
	other := again(t, p)
	d := makeDisk(t, p, "d", provider.DiskSpec{Bytes: mib})
	var instances [4]string
	for n := range instances {
		instances[n] = stopped(t, p, fmt.Sprint("i", n))
	}
	for round := range 5 {
		var mu sync.Mutex
		var got []string
		var wg sync.WaitGroup
		for n, i := range instances {
			wg.Go(func() {
				_, err := []*Provider{p, other}[n%2].AttachDisk(t.Context(), d.ID, i)
				if err != nil && !errors.Is(err, provider.ErrInUse) {
					t.Error(err)
				}
				if err == nil {
					mu.Lock()
					got = append(got, i)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if len(got) != 1 {
			t.Fatalf("round %d: instances %v have one disk", round, got)
		}
		if err := p.DetachDisk(t.Context(), d.ID, got[0]); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCopiesOfDisks(t *testing.T) {
	p := openUnit(t)
	d := makeDisk(t, p, "d", provider.DiskSpec{Bytes: 1 << 30})
	image := p.store.disks().image(d.ID)
	write(t, image, 0, "begin")
	write(t, image, 600*mib+4096*3, "middle")
	s, err := p.CreateSnapshot(t.Context(), "s", d.ID, ownTags)
	if err != nil || !s.Ready || s.DiskID != d.ID || s.Bytes != 1<<30 {
		t.Fatalf("snapshot %+v, %v", s, err)
	}
	write(t, image, 0, "later")
	if again, err := p.CreateSnapshot(t.Context(), "s", d.ID, ownTags); err != nil || again.ID != s.ID {
		t.Errorf("snapshot %+v, %v; want %s", again, err, s.ID)
	}
	e := makeDisk(t, p, "e", provider.DiskSpec{Bytes: mib})
	_, err = p.CreateSnapshot(t.Context(), "s", e.ID, ownTags)
	wantClass(t, "snapshot of another disk", err, provider.ErrAlreadyExists, s.ID)
	_, err = p.CreateDisk(t.Context(), "c", provider.DiskSpec{FromSnapshot: s.ID, Bytes: mib})
	wantClass(t, "a copy that is smaller", err, provider.ErrInvalidArgument, fmt.Sprint(mib))
	_, err = p.CreateDisk(t.Context(), "c", provider.DiskSpec{FromDisk: d.ID, Limit: mib})
	wantClass(t, "a copy within a limit", err, provider.ErrInvalidArgument, fmt.Sprint(mib))

	old := makeDisk(t, p, "old", provider.DiskSpec{FromSnapshot: s.ID})
	now := makeDisk(t, p, "now", provider.DiskSpec{FromDisk: d.ID, Bytes: 2 << 30})
	if err := errors.Join(p.DeleteDisk(t.Context(), d.ID), p.DeleteSnapshot(t.Context(), s.ID), p.DeleteSnapshot(t.Context(), s.ID)); err != nil {
		t.Fatal(err)
	}
	if same := makeDisk(t, p, "old", provider.DiskSpec{FromSnapshot: s.ID}); same.ID != old.ID {
		t.Errorf("disks %s and %s of one key", old.ID, same.ID)
	}
	for _, c := range []struct {
		disk  *provider.Disk
		begin string
		bytes int64
	}{{old, "begin", 1 << 30}, {now, "later", 2 << 30}} {
		image := p.store.disks().image(c.disk.ID)
		if begin, middle := read(t, image, 0, 512), read(t, image, 600*mib+4096*3, 512); begin != c.begin || middle != "middle" {
			t.Errorf("a copy has %q and %q", begin, middle)
		}
		if n := usage(t, image); n > mib {
			t.Errorf("a copy of two blocks uses %d bytes", n)
		}
		if info, err := os.Stat(image); err != nil || info.Size() != c.bytes || c.disk.Bytes != c.bytes {
			t.Errorf("a copy of %d bytes, %v; want %d", c.disk.Bytes, err, c.bytes)
		}
	}
	if list, err := p.ListSnapshots(t.Context(), ownTags); err != nil || len(list) != 0 {
		t.Errorf("snapshots %v, %v", list, err)
	}
}

// TestCopyWaitsForWhoWorksOnTheDisk and does not keep others from the instance meanwhile.
func TestCopyWaitsForWhoWorksOnTheDisk(t *testing.T) {
	p := openUnit(t)
	a := stopped(t, p, "a")
	d := makeDisk(t, p, "d", provider.DiskSpec{Bytes: mib})
	attach(t, p, d.ID, a)
	lock, err := statefile.Acquire(t.Context(), p.store.disks().lockPath("d"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, err := p.CreateSnapshot(t.Context(), "s", d.ID, ownTags)
		done <- err
	}()
	for range 20 {
		instance, err := statefile.Acquire(t.Context(), p.store.instances().lockPath("a"))
		if err != nil {
			t.Fatal(err)
		}
		instance.Release()
	}
	select {
	case err := <-done:
		t.Errorf("a snapshot was made while somebody else had the disk: %v", err)
	default:
	}
	lock.Release()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestResizeDisk(t *testing.T) {
	p := openUnit(t)
	d := makeDisk(t, p, "d", provider.DiskSpec{Bytes: mib})
	for _, step := range []struct{ ask, want int64 }{{2*mib + 1, 3 * mib}, {mib, 3 * mib}, {3 * mib, 3 * mib}, {4 * mib, 4 * mib}} {
		got, err := p.ResizeDisk(t.Context(), d.ID, step.ask)
		if err != nil || got.Bytes != step.want {
			t.Errorf("resize to %d: %+v, %v; want %d", step.ask, got, err, step.want)
		}
		if info, err := os.Stat(p.store.disks().image(d.ID)); err != nil || info.Size() != step.want {
			t.Errorf("the image: %v, %v", info, err)
		}
	}
	// One who made it larger was killed before it wrote that down.
	if err := os.Truncate(p.store.disks().image(d.ID), 8*mib); err != nil {
		t.Fatal(err)
	}
	if got, err := p.ResizeDisk(t.Context(), d.ID, 5*mib); err != nil || got.Bytes != 8*mib {
		t.Errorf("resize after a crash: %+v, %v", got, err)
	}
	_, err := p.ResizeDisk(t.Context(), d.ID, 1<<62)
	wantClass(t, "too large", err, provider.ErrInvalidArgument, fmt.Sprint(int64(1<<62)))
	_, err = p.ResizeDisk(t.Context(), "disk-0123456789abcde", mib)
	wantClass(t, "none", err, provider.ErrNotFound)
}

func TestDiskThatCannotBeMade(t *testing.T) {
	p := openUnit(t)
	if err := os.MkdirAll(p.store.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.store.disks().dir(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := p.CreateDisk(t.Context(), "d", provider.DiskSpec{Bytes: mib}); err == nil {
		t.Error("a disk was made where there is no folder")
	}
	if _, err := os.Stat(p.store.disks().lockPath("d")); err == nil {
		t.Error("the lock of a disk that was not made is left")
	}
}
