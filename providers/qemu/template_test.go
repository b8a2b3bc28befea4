// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.yaml.in/yaml/v2"

	"github.com/outrigger/outrigger/internal/localnet/statefile"
	"github.com/outrigger/outrigger/internal/nocloud"
	"github.com/outrigger/outrigger/internal/procid"
)

func TestArgumentsOfTemplates(t *testing.T) {
	r := testRecord()
	r.saving = true
	checkArguments(t, r, []string{
		"-machine q35,memory-backend=memory", "size=512M,share=on,mem-path=memory", "-kernel /image/vmlinux",
		"-netdev tap,id=net0,fd=3", " " + nocloud.TemplateArg,
	}, []string{"ifname=", "-incoming"})
	r = testRecord()
	r.Template = "/cache/key"
	checkArguments(t, r, []string{
		"-machine q35,memory-backend=memory", "size=512M,share=off,mem-path=/proc/self/fd/3", "-incoming defer", "ifname=ort0", "mac=02:6f:74:01:02:03",
	}, []string{"-kernel", "-initrd", "share=on", nocloud.TemplateArg})
}

func checkArguments(t *testing.T, r *record, wanted, never []string) {
	t.Helper()
	line := strings.Join(arguments(r, false), " ")
	for _, want := range wanted {
		if !strings.Contains(line, want) {
			t.Errorf("command line lacks %q: %s", want, line)
		}
	}
	for _, not := range never {
		if strings.Contains(line, not) {
			t.Errorf("command line has %q: %s", not, line)
		}
	}
}

// A template is for the instances that differ from it in nothing that a guest remembers.
func TestTemplateKey(t *testing.T) {
	p := openUnit(t)
	from, err := p.configuredBoot()
	if err != nil {
		t.Fatal(err)
	}
	key := func(change func(*record)) string {
		t.Helper()
		r := testRecord()
		r.Boot = from
		change(r)
		key, err := p.templateKey(templateOf(r))
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	first := key(func(*record) {})
	for name, change := range map[string]func(*record){
		"id": func(r *record) { r.ID, r.Key, r.UUID = "another", "another", uuid.NewString() },
		"network": func(r *record) {
			r.Interface, r.MAC, r.Addrs = "ort1", "02:6f:74:01:02:04", nil
		},
	} {
		if got := key(change); got != first {
			t.Errorf("another %s, another template", name)
		}
	}
	for name, change := range map[string]func(*record){
		"memory":  func(r *record) { r.Memory++ },
		"CPUs":    func(r *record) { r.CPUs++ },
		"MTU":     func(r *record) { r.MTU++ },
		"append":  func(r *record) { r.Append = "word" },
		"scratch": func(r *record) { r.Scratch++ },
		"accel":   func(r *record) { r.Accel = AccelKVM },
		"kernel": func(r *record) {
			if err := os.WriteFile(r.Boot.Kernel, []byte("another"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"image": func(r *record) {
			if err := os.WriteFile(r.Boot.Initrd, []byte("another"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		if got := key(change); got == first {
			t.Errorf("another %s, the same template", name)
		}
	}
}

func TestOnlyImagesThatSaySoAreSaved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "initrd.cpio")
	for content, want := range map[string]bool{
		"070701" + strings.Repeat("0", 104) + nocloud.TemplateMark + "\x00": true,
		"070701" + strings.Repeat("0", 104) + "dev\x00":                     false,
		"": false,
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := knowsTemplates(path); got != want {
			t.Errorf("an initramfs that begins with %q is saved: %v, want %v", content, got, want)
		}
	}
}

func TestWhoWantsATemplate(t *testing.T) {
	for _, test := range []struct {
		templates, accel string
		boot             boot
		want             bool
	}{
		{TemplatesAuto, AccelTCG, boot{Initrd: "x"}, true},
		{TemplatesAuto, AccelKVM, boot{Initrd: "x"}, false},
		{TemplatesAlways, AccelKVM, boot{Initrd: "x"}, true},
		{TemplatesAlways, AccelTCG, boot{Disk: "x"}, false},
		{TemplatesNever, AccelTCG, boot{Initrd: "x"}, false},
	} {
		p := &Provider{cfg: Config{Templates: test.templates}}
		if got := p.wantsTemplate(&record{Accel: test.accel, Boot: test.boot}); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

// What is in the folder becomes memory of VMs.
func TestTemplatesOfOthersAreNotUsed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "templates")
	if _, err := ownFolder(dir); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(dir, 0o770); err != nil {
		t.Fatal(err)
	}
	if _, err := ownFolder(dir); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a folder that others may write in: %v", err)
	}
}

func TestWhatCouldNotBeMadeIsNotTriedAgainAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "key")
	if err := createFile(dir + failedSuffix); err != nil {
		t.Fatal(err)
	}
	if lock, err := lockTemplate(t.Context(), dir); err == nil {
		lock.Release()
		t.Error("tried again")
	}
	long := time.Now().Add(-2 * failedFor)
	if err := os.Chtimes(dir+failedSuffix, long, long); err != nil {
		t.Fatal(err)
	}
	lock, err := lockTemplate(t.Context(), dir)
	if err != nil || lock == nil {
		t.Fatal("not tried again", err)
	}
	// Who waits for it goes on when it is there.
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if second, err := lockTemplate(t.Context(), dir); second != nil || err != nil {
		t.Error("waits for a template that is there", err)
	}
	lock.ReleaseAndRemove()
}

// A damaged template is removed, one that was made again meanwhile is not.
func TestDiscardTemplate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "key")
	make := func() os.FileInfo {
		t.Helper()
		info, err := os.Stat(dir)
		if err != nil {
			err = os.Mkdir(dir, 0o700)
		}
		if err == nil {
			info, err = os.Stat(dir)
		}
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	other, err := os.Stat(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	make()
	discardTemplate(dir, other)
	discardTemplate(dir, nil)
	if _, err := os.Stat(dir); err != nil {
		t.Error("another template was removed")
	}
	discardTemplate(dir, make())
	if _, err := os.Stat(dir); err == nil {
		t.Error("the damaged template is there")
	}
}

// The random bytes of two VMs that were restored from one are all they differ by at first.
func TestSeedOfARestoredVM(t *testing.T) {
	r := testRecord()
	r.Template = "/cache/key"
	seen := map[string]bool{}
	for range 2 {
		image, err := seed(r, "#cloud-config\n", false, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(image) != seedSize {
			t.Fatalf("a seed disk of %d bytes, want that of the template: %d", len(image), seedSize)
		}
		_, files := readISO(t, image)
		var meta map[string]string
		if err := yaml.Unmarshal([]byte(files["meta-data"]), &meta); err != nil {
			t.Fatal(err)
		}
		random, err := base64.StdEncoding.DecodeString(meta["random_seed"])
		if err != nil || len(random) != randomSeedSize || seen[string(random)] {
			t.Errorf("random seed %q (%v), seen before: %v", meta["random_seed"], err, seen[string(random)])
		}
		seen[string(random)] = true
		if at, err := time.Parse(time.RFC3339Nano, meta["outrigger-time"]); err != nil || time.Since(at) > time.Minute || time.Since(at) < 0 {
			t.Errorf("time %q, %v", meta["outrigger-time"], err)
		}
	}
}

func TestNoRoomForATemplate(t *testing.T) {
	if err := enoughRoom(t.TempDir(), 1<<60); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("an exabyte of memory: %v, want no space", err)
	}
}

func TestPrune(t *testing.T) {
	boot, err := procid.Boot()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	key := func(boot string, n int) string { return fmt.Sprintf("%s%032x", ofBoot(boot), n) }
	keep := map[string]bool{}
	add := func(name string, age time.Duration, kept bool) {
		t.Helper()
		path := filepath.Join(dir, name)
		at := time.Now().Add(-age)
		if err := errors.Join(os.Mkdir(path, 0o700), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
		keep[name] = kept
	}
	for n := range maxTemplates + 1 {
		add(key(boot, n), time.Duration(n)*time.Hour, n < maxTemplates-1)
	}
	add("instances", 0, true) // not ours
	add("00000000-of-others", 0, true)
	add(key("00000000", 0), 0, false)
	add(newPrefix+key(boot, 100), 0, false)
	add(newPrefix+key(boot, 101), 0, true)
	lock, err := statefile.TryAcquire(filepath.Join(dir, key(boot, 101)+lockSuffix))
	if err != nil || lock == nil {
		t.Fatal(lock, err)
	}
	defer lock.Release()
	for n, kept := range []bool{false, true} { // a lock that nobody holds, and that one
		name := key(boot, 100+n) + lockSuffix
		if err := createFile(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		keep[name] = kept
	}
	if err := prune(dir); err != nil {
		t.Error(err)
	}
	for name, want := range keep {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", name, err == nil, want)
		}
	}
}

func TestMoreSizesThanTemplates(t *testing.T) {
	boot, err := procid.Boot()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for n := range maxTemplates {
		if err := os.Mkdir(filepath.Join(dir, fmt.Sprintf("%s%032x", ofBoot(boot), n)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := prune(dir); err == nil {
		t.Error("one that is in use was removed to make another")
	}
}
