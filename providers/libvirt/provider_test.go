// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	lv "github.com/digitalocean/go-libvirt"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/conformance"
)

func TestFakeConformance(t *testing.T) {
	f := newFakeDaemon()
	conformance.Run(t, func(t *testing.T) conformance.Subject {
		reopen := func() provider.Provider { return fakeProvider(t, f) }
		return conformance.Subject{
			Provider: reopen(), Reopen: reopen, Leaks: f.leaks,
			DisksPerInstance: maxDisks, WriteDisk: f.writeDisk, ReadDisk: f.readDisk, Foreign: f.foreign,
			ReadUserData: func(_ context.Context, id string) (string, error) { return f.userData(id) },
		}
	})
}

// userData finds the text in a seed by its frame, which this package's own
// integration test reads with a library.
func (f *fakeDaemon) userData(id string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, v := range f.vols {
		if strings.HasPrefix(name, volumesOf(id)+"seed") {
			return isoFile(v.content, "USER-DATA.;1")
		}
	}
	return "", errors.New("no seed")
}

// isoFile reads a file of the root folder, whose records begin with where the
// file is and how long.
func isoFile(image []byte, name string) (string, error) {
	at := strings.Index(string(image), name)
	if at < 33 {
		return "", errors.New("no " + name)
	}
	record := image[at-33:]
	le := func(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 | int(b[3])<<24 }
	start, size := le(record[2:])*2048, le(record[10:])
	return string(image[start : start+size]), nil
}

func fakeCreate(ctx context.Context, p *Provider, key string) (*provider.Instance, error) {
	return p.CreateInstance(ctx, "pod", key, cloudinit.Raw("#cloud-config\n"), provider.InstanceTypeSpec{Tags: map[string]string{provider.TagKey: key}})
}

// TestFailureAnywhere lets every call of a creation fail in turn, refused or
// with a lost reply, and expects a class, nothing left, and success at the
// next try.
func TestFailureAnywhere(t *testing.T) {
	for _, lost := range []bool{false, true} {
		for at := 1; ; at++ {
			f := newFakeDaemon()
			var n atomic.Int32
			fail := func() error {
				if n.Add(1) == int32(at) {
					return errBroken
				}
				return nil
			}
			if lost {
				f.after = func(string) error { return fail() }
			} else {
				f.before = func(context.Context, string) error { return fail() }
			}
			p := fakeProvider(t, f)
			i, err := fakeCreate(t.Context(), p, "key")
			if err == nil {
				if int(n.Load()) >= at {
					continue // what failed was not needed
				}
				if at < 15 {
					t.Errorf("a creation has only %d calls", at)
				}
				break
			}
			if !errors.Is(err, provider.ErrUnavailable) {
				t.Errorf("call %d (lost reply %v): %v", at, lost, err)
			}
			if i == nil {
				f.wantNothing(t)
			}
			if i, err = fakeCreate(t.Context(), p, "key"); err != nil {
				t.Fatalf("after call %d failed: %v", at, err)
			}
			if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
				t.Fatal(err)
			}
			f.wantNothing(t)
		}
	}
}

// TestDeletionFailsAnywhere: a deletion that fails half-way can be repeated,
// and until it has succeeded the instance is listed.
func TestDeletionFailsAnywhere(t *testing.T) {
	for at := 1; ; at++ {
		f := newFakeDaemon()
		p := fakeProvider(t, f)
		i, err := fakeCreate(t.Context(), p, "key")
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		f.before = func(context.Context, string) error {
			if n++; n == at {
				return errBroken
			}
			return nil
		}
		if err := p.DeleteInstance(t.Context(), i.ID); err == nil && n < at {
			break
		} else if err != nil {
			if list, err := p.ListInstances(t.Context(), map[string]string{provider.TagKey: "key"}); err != nil || len(list) != 1 {
				t.Errorf("call %d failed: listed %v, %v", at, list, err)
			}
		}
		if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
			t.Fatal(err)
		}
		f.wantNothing(t)
	}
}

func TestRemainsWithoutADomainAreDeleted(t *testing.T) {
	f := newFakeDaemon()
	p := fakeProvider(t, f)
	i, err := fakeCreate(t.Context(), p, "key")
	if err != nil {
		t.Fatal(err)
	}
	delete(f.doms, i.ID)
	if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Error(err)
	}
	f.wantNothing(t)
}

func TestForeignDomains(t *testing.T) {
	f := newFakeDaemon()
	p := fakeProvider(t, f)
	id := instanceID("key")
	f.doms[id] = &fakeDomain{state: lv.DomainRunning}
	if _, err := fakeCreate(t.Context(), p, "key"); !errors.Is(err, provider.ErrPermissionDenied) {
		t.Errorf("create: %v", err)
	}
	if err := p.DeleteInstance(t.Context(), id); !errors.Is(err, provider.ErrPermissionDenied) {
		t.Errorf("delete: %v", err)
	}
	if _, err := p.GetInstance(t.Context(), id); !errors.Is(err, provider.ErrNotFound) {
		t.Errorf("get: %v", err)
	}
	if err := p.PowerOff(t.Context(), id); !errors.Is(err, provider.ErrNotFound) {
		t.Errorf("power off: %v", err)
	}
	if d := f.doms[id]; d == nil || d.state != lv.DomainRunning || len(f.doms) != 1 {
		t.Error("a foreign domain was touched")
	}
}

func TestTakenName(t *testing.T) {
	f := newFakeDaemon()
	p := fakeProvider(t, f)
	first, err := fakeCreate(t.Context(), p, "12345678-a")
	if err != nil {
		t.Fatal(err)
	}
	second, err := fakeCreate(t.Context(), p, "12345678-b")
	if err != nil {
		t.Fatal(err)
	}
	if first.Name != "podvm-pod-12345678" || second.Name == first.Name || !strings.HasPrefix(second.Name, first.Name) {
		t.Errorf("names %q and %q", first.Name, second.Name)
	}
}

// TestAnotherMaker: whoever finds an instance that is being made with other
// user-data waits for it, and replaces it when its maker is dead.
func TestAnotherMaker(t *testing.T) {
	for name, finishes := range map[string]bool{"Alive": true, "Dead": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeDaemon()
				p := fakeProvider(t, f)
				if _, err := fakeCreate(t.Context(), p, "key"); err != nil {
					t.Fatal(err)
				}
				id := instanceID("key")
				ready := f.doms[id].metadata
				f.doms[id].metadata = strings.Replace(ready, "ready", "making", 1)
				if finishes {
					time.AfterFunc(otherWait/2, func() {
						f.mu.Lock()
						defer f.mu.Unlock()
						f.doms[id].metadata = ready
					})
				}
				begin := time.Now()
				_, err := p.CreateInstance(t.Context(), "pod", "key", cloudinit.Raw("#cloud-config\nother: true\n"), provider.InstanceTypeSpec{})
				if err != nil {
					t.Fatal(err)
				}
				data, err := f.userData(id)
				if err != nil || strings.Contains(data, "other") == finishes {
					t.Errorf("after %v the instance has user-data %q, %v", time.Since(begin), data, err)
				}
			})
		})
	}
}

func TestPausedDomainIsResumed(t *testing.T) {
	f := newFakeDaemon()
	p := fakeProvider(t, f)
	i, err := fakeCreate(t.Context(), p, "key")
	if err != nil {
		t.Fatal(err)
	}
	f.doms[i.ID].state = lv.DomainPaused
	if got, err := p.GetInstance(t.Context(), i.ID); err != nil || got.State != provider.StateStopped {
		t.Errorf("a paused VM is %v, %v", got, err)
	}
	if err := p.PowerOn(t.Context(), i.ID); err != nil || f.doms[i.ID].state != lv.DomainRunning {
		t.Errorf("power on: %v, state %v", err, f.doms[i.ID].state)
	}
}

func TestConsoleThatWasRolled(t *testing.T) {
	f := newFakeDaemon()
	p := fakeProvider(t, f)
	i, err := fakeCreate(t.Context(), p, "key")
	if err != nil {
		t.Fatal(err)
	}
	text, err := p.Console(t.Context(), i.ID, 100)
	if err != nil || string(text) != "Booting the guest of a fake.\n" {
		t.Errorf("console %q, %v", text, err)
	}
	f.vols[volumesOf(i.ID)+consoleVolume].content = []byte("later")
	// What the log daemon set aside is known after a refresh only.
	f.after = func(call string) error {
		if call == "refresh" {
			f.addVolume(volumesOf(i.ID)+consoleVolume+".0", "raw", 10)
		}
		return nil
	}
	if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Fatal(err)
	}
	f.wantNothing(t)
}

func TestBusyPoolIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeDaemon()
		p := fakeProvider(t, f)
		i, err := fakeCreate(t.Context(), p, "key")
		if err != nil {
			t.Fatal(err)
		}
		busy := 3
		f.before = func(_ context.Context, call string) error {
			if call == "deleteVolume" && busy > 0 {
				busy--
				return said(lv.ErrOperationInvalid, "volume 'x' is still in use.")
			}
			return nil
		}
		if err := p.DeleteInstance(t.Context(), i.ID); err != nil || busy != 0 {
			t.Errorf("%v, busy %d more times", err, busy)
		}
		f.wantNothing(t)
	})
}
