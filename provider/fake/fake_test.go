// SPDX-License-Identifier: Apache-2.0

package fake_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/fake"
)

const userData = cloudinit.Raw("#cloud-config\nwrite_files: []\n")

var owner = map[string]string{provider.TagCluster: "c1"}

func newCloud(t *testing.T, options fake.Options) *fake.Cloud {
	t.Helper()
	cloud, err := fake.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return cloud
}

func create(ctx context.Context, cloud *fake.Cloud, key string) (*provider.Instance, error) {
	return cloud.CreateInstance(ctx, "pod", key, userData, provider.InstanceTypeSpec{Tags: owner})
}

func mustCreate(t *testing.T, cloud *fake.Cloud, key string) *provider.Instance {
	t.Helper()
	instance, err := create(t.Context(), cloud, key)
	if err != nil {
		t.Fatal(err)
	}
	return instance
}

func checkLeaks(t *testing.T, cloud *fake.Cloud, kinds ...fake.Kind) {
	t.Helper()
	lines, err := cloud.Leaks()
	if err != nil {
		t.Fatal(err)
	}
	var got []fake.Kind
	for _, line := range lines {
		got = append(got, line.Kind)
	}
	slices.Sort(got)
	if !slices.Equal(got, kinds) {
		t.Errorf("leaks are %v, want %v", got, kinds)
	}
}

var whole = []fake.Kind{fake.KindAddress, fake.KindDisk, fake.KindInstance, fake.KindNIC}

// TestFaultsBeforeCreating: each returns its class and makes nothing, and the
// next call succeeds.
func TestFaultsBeforeCreating(t *testing.T) {
	for name, tc := range map[string]struct {
		fault fake.Fault
		class error
	}{
		"throttled":       {fake.Throttled(fake.OpCreate), provider.ErrUnavailable},
		"unauthenticated": {fake.Unauthenticated(fake.OpCreate), provider.ErrUnauthenticated},
		"quota":           {fake.Quota(), provider.ErrQuota},
		"no capacity":     {fake.NoCapacity(), provider.ErrCapacity},
		"any error":       {fake.Fail(fake.OpCreate, errors.New("?")), provider.ErrUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := newCloud(t, fake.Options{Faults: []fake.Fault{tc.fault}})
			instance, err := create(t.Context(), cloud, "k")
			if provider.Class(err) != tc.class || instance != nil {
				t.Errorf("got %v, %v, want class %v", instance, err, tc.class)
			}
			checkLeaks(t, cloud)
			mustCreate(t, cloud, "k")
			if n := cloud.Calls(fake.OpCreate); n != 2 {
				t.Errorf("%d calls counted, want 2", n)
			}
		})
	}
}

func TestLostReplyOfCreating(t *testing.T) {
	cloud := newCloud(t, fake.Options{Faults: []fake.Fault{fake.LostReply(fake.OpCreate)}})
	instance, err := create(t.Context(), cloud, "k")
	if !errors.Is(err, provider.ErrUnavailable) || instance != nil {
		t.Fatalf("got %v, %v", instance, err)
	}
	list, err := cloud.ListInstances(t.Context(), owner)
	if err != nil || len(list) != 1 || list[0].State != provider.StateRunning {
		t.Fatalf("list %v, %v, want the instance whose reply was lost", list, err)
	}
	if again := mustCreate(t, cloud, "k"); again.ID != list[0].ID {
		t.Errorf("the key gave %s, then %s", list[0].ID, again.ID)
	}
	checkLeaks(t, cloud, whole...)
}

func TestLostReplyOfDeleting(t *testing.T) {
	cloud := newCloud(t, fake.Options{Faults: []fake.Fault{fake.LostReply(fake.OpDelete)}})
	instance := mustCreate(t, cloud, "k")
	if err := cloud.DeleteInstance(t.Context(), instance.ID); !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
	checkLeaks(t, cloud)
	if err := cloud.DeleteInstance(t.Context(), instance.ID); err != nil {
		t.Error(err)
	}
}

func TestPartialCreate(t *testing.T) {
	cloud := newCloud(t, fake.Options{Faults: []fake.Fault{fake.PartialCreate().Repeated(2)}})
	half, err := create(t.Context(), cloud, "k")
	if err == nil || half == nil || half.ID == "" {
		t.Fatalf("got %v, %v, want an id with the error", half, err)
	}
	got, err := cloud.GetInstance(t.Context(), half.ID)
	if err != nil || got.State != provider.StatePending || got.Key != "k" {
		t.Errorf("got %+v, %v, want it pending", got, err)
	}
	checkLeaks(t, cloud, whole...)
	if err := cloud.DeleteInstance(t.Context(), half.ID); err != nil {
		t.Fatal(err)
	}
	checkLeaks(t, cloud)

	half, _ = create(t.Context(), cloud, "k")
	if finished := mustCreate(t, cloud, "k"); finished.ID != half.ID || finished.State != provider.StateRunning {
		t.Errorf("the next call gave %+v, want %s finished", finished, half.ID)
	}
	checkLeaks(t, cloud, whole...)
}

func TestPartialDelete(t *testing.T) {
	cloud := newCloud(t, fake.Options{Faults: []fake.Fault{fake.PartialDelete()}})
	instance := mustCreate(t, cloud, "k")
	if err := cloud.DeleteInstance(t.Context(), instance.ID); err == nil {
		t.Error("no error")
	}
	checkLeaks(t, cloud, fake.KindAddress, fake.KindDisk, fake.KindNIC)
	if err := cloud.DeleteInstance(t.Context(), instance.ID); err != nil {
		t.Error(err)
	}
	checkLeaks(t, cloud)
}

func TestScriptSkipsAndRepeats(t *testing.T) {
	cloud := newCloud(t, fake.Options{Faults: []fake.Fault{
		fake.Throttled(fake.OpVerify).Skipping(1).Repeated(2),
		fake.Unauthenticated(fake.OpVerify).Skipping(4),
	}})
	var got []error
	for range 7 {
		got = append(got, provider.Class(cloud.ConfigVerifier()))
	}
	want := []error{nil, provider.ErrUnavailable, provider.ErrUnavailable, nil, provider.ErrUnauthenticated, nil, nil}
	if !slices.Equal(got, want) {
		t.Errorf("classes %v, want %v", got, want)
	}
	if err := cloud.Reopen().ConfigVerifier(); err != nil {
		t.Errorf("a new process inherits the script: %v", err)
	}
}

func TestFaultsOfOtherCalls(t *testing.T) {
	cloud := newCloud(t, fake.Options{})
	instance := mustCreate(t, cloud, "k")
	for op, do := range map[fake.Op]func() error{
		fake.OpList:     func() error { _, err := cloud.ListInstances(t.Context(), owner); return err },
		fake.OpGet:      func() error { _, err := cloud.GetInstance(t.Context(), instance.ID); return err },
		fake.OpConsole:  func() error { _, err := cloud.Console(t.Context(), instance.ID, 1); return err },
		fake.OpPowerOff: func() error { return cloud.PowerOff(t.Context(), instance.ID) },
		fake.OpPowerOn:  func() error { return cloud.PowerOn(t.Context(), instance.ID) },
		fake.OpTypes:    func() error { _, err := cloud.InstanceTypes(t.Context()); return err },
		fake.OpVerify:   cloud.ConfigVerifier,
	} {
		for _, fault := range []fake.Fault{fake.Throttled(op), fake.LostReply(op)} {
			cloud.Inject(fault)
			if err := do(); !errors.Is(err, provider.ErrUnavailable) {
				t.Errorf("%s: error %v with fault %v", op, err, fault)
			}
			if err := do(); err != nil {
				t.Errorf("%s: error %v without a fault", op, err)
			}
		}
	}
}

func TestSlowEndsWithItsContext(t *testing.T) {
	cloud := newCloud(t, fake.Options{Faults: []fake.Fault{fake.Slow(fake.OpCreate, time.Hour)}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := create(ctx, cloud, "k")
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
	checkLeaks(t, cloud)
}

func TestGateHoldsACall(t *testing.T) {
	cloud := newCloud(t, fake.Options{})
	fault, gate := fake.Block(fake.OpDelete)
	cloud.Inject(fault)
	instance := mustCreate(t, cloud, "k")
	done := make(chan error, 1)
	go func() { done <- cloud.DeleteInstance(t.Context(), instance.ID) }()
	<-gate.Reached()
	checkLeaks(t, cloud, whole...)
	gate.Open()
	if err := <-done; err != nil {
		t.Error(err)
	}
	checkLeaks(t, cloud)
}

func TestEventualConsistency(t *testing.T) {
	cloud := newCloud(t, fake.Options{Eventual: fake.Eventual{Lists: 2, Gets: 1, Lingers: 1}})
	instance := mustCreate(t, cloud, "k")
	var shown []int
	count := func() {
		list, err := cloud.ListInstances(t.Context(), owner)
		if err != nil {
			t.Fatal(err)
		}
		shown = append(shown, len(list))
	}
	count()
	count()
	count()
	if _, err := cloud.GetInstance(t.Context(), instance.ID); !errors.Is(err, provider.ErrNotFound) {
		t.Errorf("first look-up: %v", err)
	}
	if _, err := cloud.GetInstance(t.Context(), instance.ID); err != nil {
		t.Errorf("second look-up: %v", err)
	}
	if err := cloud.DeleteInstance(t.Context(), instance.ID); err != nil {
		t.Fatal(err)
	}
	count()
	count()
	if want := []int{0, 0, 1, 1, 0}; !slices.Equal(shown, want) {
		t.Errorf("lists show %v, want %v", shown, want)
	}
	checkLeaks(t, cloud)
}

func TestCapacityAndAddresses(t *testing.T) {
	cloud := newCloud(t, fake.Options{Capacity: 2})
	first := mustCreate(t, cloud, "a")
	mustCreate(t, cloud, "b")
	if _, err := create(t.Context(), cloud, "c"); !errors.Is(err, provider.ErrCapacity) {
		t.Errorf("error %v", err)
	}
	mustCreate(t, cloud, "b")
	if err := cloud.DeleteInstance(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, cloud, "c")

	narrow := newCloud(t, fake.Options{Network: netip.MustParsePrefix("192.0.2.0/30")})
	mustCreate(t, narrow, "a")
	mustCreate(t, narrow, "b")
	if _, err := create(t.Context(), narrow, "c"); !errors.Is(err, provider.ErrCapacity) {
		t.Errorf("error %v", err)
	}
}

func TestKeyWithAnotherSpec(t *testing.T) {
	cloud := newCloud(t, fake.Options{Images: []string{"a", "b"}})
	mustCreate(t, cloud, "k")
	for _, spec := range []provider.InstanceTypeSpec{{Image: "b"}, {InstanceType: "fake.large"}} {
		if _, err := cloud.CreateInstance(t.Context(), "pod", "k", userData, spec); !errors.Is(err, provider.ErrAlreadyExists) {
			t.Errorf("%+v: error %v", spec, err)
		}
	}
}

func TestLedger(t *testing.T) {
	cloud := newCloud(t, fake.Options{DedicatedNIC: true})
	instance, err := cloud.CreateInstance(t.Context(), "pod", "k", userData, provider.InstanceTypeSpec{Tags: owner, MultiNic: true})
	if err != nil {
		t.Fatal(err)
	}
	checkLeaks(t, cloud, fake.KindAddress, fake.KindAddress, fake.KindDisk, fake.KindInstance, fake.KindNIC, fake.KindNIC, fake.KindNIC)
	if err := cloud.DeleteInstance(t.Context(), instance.ID); err != nil {
		t.Fatal(err)
	}
	lines, err := cloud.Ledger()
	if err != nil || len(lines) != 7 {
		t.Fatalf("%d lines, %v", len(lines), err)
	}
	for _, line := range lines {
		if line.Instance != instance.ID || line.Key != "k" || line.Tags[provider.TagCluster] != "c1" ||
			line.Made.IsZero() || line.Deleted.Before(line.Made) {
			t.Errorf("line %+v", line)
		}
	}
}

func TestUserDataAndConsole(t *testing.T) {
	cloud := newCloud(t, fake.Options{})
	instance := mustCreate(t, cloud, "k")
	if got, err := cloud.UserData(instance.ID); err != nil || got != string(userData) {
		t.Errorf("user-data %q, %v", got, err)
	}
	if err := cloud.WriteConsole(instance.ID, []byte("Kernel panic")); err != nil {
		t.Fatal(err)
	}
	if got, err := cloud.Console(t.Context(), instance.ID, 5); err != nil || string(got) != "panic" {
		t.Errorf("console %q, %v", got, err)
	}
	if _, err := cloud.UserData("x"); !errors.Is(err, provider.ErrNotFound) {
		t.Errorf("error %v", err)
	}
}

func TestAnswersAreCopies(t *testing.T) {
	cloud := newCloud(t, fake.Options{})
	instance := mustCreate(t, cloud, "k")
	instance.Tags[provider.TagCluster], instance.IPs[0] = "x", netip.Addr{}
	again := mustCreate(t, cloud, "k")
	if again.Tags[provider.TagCluster] != "c1" || !again.IPs[0].IsValid() {
		t.Errorf("the caller changed the cloud: %+v", again)
	}
}

func TestAfterTeardown(t *testing.T) {
	cloud := newCloud(t, fake.Options{})
	mustCreate(t, cloud, "k")
	if err := cloud.Teardown(); err != nil {
		t.Fatal(err)
	}
	if _, err := create(t.Context(), cloud, "k"); !errors.Is(err, provider.ErrInvalidArgument) {
		t.Errorf("error %v", err)
	}
	checkLeaks(t, cloud, whole...)
}

func TestNewRefuses(t *testing.T) {
	for want, options := range map[string]fake.Options{
		"default type": {DefaultType: "x"},
		"negative":     {Capacity: -1},
		"not be less":  {Disks: fake.DiskOptions{Unit: -1}},
	} {
		if _, err := fake.New(options); !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v", options, err)
		}
	}
}
