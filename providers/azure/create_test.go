// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/test/cloudsim"
	azuresim "github.com/outrigger/outrigger/test/cloudsim/azure"
)

// TestOneCallMakesEverything counts calls: that is what a pod waits for.
func TestOneCallMakesEverything(t *testing.T) {
	s := newStand(t, azuresim.Options{}, func(c *Config) { c.UsePublicIP = true })
	i := s.mustCreate("key-1")
	calls := s.cloud.World.Calls()
	for action, want := range map[string]int{
		compute + "virtualMachines/write": 1, network + "networkInterfaces/read": 1, "token": 1, compute + "skus/read": 0,
	} {
		if calls[action] != want {
			t.Errorf("%d calls of %s, want %d", calls[action], action, want)
		}
	}
	if len(s.cloud.World.Own()) != 4 || !netip.MustParsePrefix("20.0.0.0/8").Contains(i.IPs[0]) {
		t.Errorf("%v with %v", s.cloud.World.Own(), i.IPs)
	}
	s.cloud.World.ResetCalls()
	s.mustDelete(i.ID)
	if diff := cmp.Diff(map[string]int{compute + "virtualMachines/delete": 1}, onlyMicrosoft(s.cloud.World.Calls())); diff != "" {
		t.Errorf("calls of a deletion: -want +got\n%s", diff)
	}
	s.wantNothing()
}

func onlyMicrosoft(calls map[string]int) map[string]int {
	for action := range calls {
		if !strings.HasPrefix(action, "Microsoft.") {
			delete(calls, action)
		}
	}
	return calls
}

// TestDoesNotWaitForTheGuest: the VM runs, and its guest never reports.
func TestDoesNotWaitForTheGuest(t *testing.T) {
	s := newStand(t, azuresim.Options{Stuck: azuresim.Running})
	i := s.mustCreate("key-1")
	got, err := s.GetInstance(t.Context(), i.ID)
	if err != nil || got.State != provider.StateRunning {
		t.Fatalf("%+v, %v", got, err)
	}
	if vm, err := s.getVM(t.Context(), s.ref(last(i.ID))); err != nil || provisioning(vm) != provisioningCreating {
		t.Errorf("the VM is %s already, %v", provisioning(vm), err)
	}
}

func TestInstanceTellsAboutItself(t *testing.T) {
	s := newStand(t, azuresim.Options{}, func(c *Config) { c.Zones, c.Tags = []string{"2"}, map[string]string{"team": "blue"} })
	made := s.mustCreate("key-1")
	got, err := s.GetInstance(t.Context(), made.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got.Zone != "2" || got.Region != azuresim.Region || got.Type != "Standard_DC2as_v5" || got.Key != "key-1" || got.Name != "podvm-web-key-1" || got.Tags["team"] != "blue" {
		t.Errorf("%+v", got)
	}
	for _, r := range s.cloud.World.Own() {
		if r.Tags["team"] != "blue" || r.Tags[provider.TagKey] != "key-1" {
			t.Errorf("%s has tags %v", r, r.Tags)
		}
	}
}

func TestConfidentialVM(t *testing.T) {
	s := newStand(t, azuresim.Options{}, func(c *Config) {
		c.EnableSecureBoot, c.DiskEncryption, c.RootVolumeSize = true, "DiskWithVMGuestState", 32
	})
	m := s.cloud.Model(s.mustCreate("key-1").ID).Properties
	if deref(m.SecurityProfile.SecurityType) != armcompute.SecurityTypesConfidentialVM || !deref(m.SecurityProfile.UefiSettings.SecureBootEnabled) || !deref(m.SecurityProfile.UefiSettings.VTpmEnabled) {
		t.Errorf("%+v", m.SecurityProfile)
	}
	disk := m.StorageProfile.OSDisk
	if deref(disk.ManagedDisk.SecurityProfile.SecurityEncryptionType) != armcompute.SecurityEncryptionTypesDiskWithVMGuestState || deref(disk.DiskSizeGB) != 32 {
		t.Errorf("%+v", disk)
	}
}

func TestTrustedLaunchAndSpot(t *testing.T) {
	s := newStand(t, azuresim.Options{}, func(c *Config) {
		c.DisableCVM, c.EnableSecureBoot, c.Size, c.Spot, c.SpotMaxPrice = true, true, "Standard_D2s_v5", true, 0.05
	})
	m := s.cloud.Model(s.mustCreate("key-1").ID).Properties
	if deref(m.SecurityProfile.SecurityType) != armcompute.SecurityTypesTrustedLaunch || m.StorageProfile.OSDisk.ManagedDisk.SecurityProfile != nil {
		t.Errorf("%+v", m.SecurityProfile)
	}
	if deref(m.Priority) != armcompute.VirtualMachinePriorityTypesSpot || deref(m.EvictionPolicy) != armcompute.VirtualMachineEvictionPolicyTypesDelete || deref(m.BillingProfile.MaxPrice) != 0.05 {
		t.Errorf("%v %v %v", deref(m.Priority), deref(m.EvictionPolicy), m.BillingProfile)
	}
}

func TestImages(t *testing.T) {
	s := newStand(t, azuresim.Options{})
	for _, id := range []string{azuresim.ImageID, azuresim.LatestImageID, azuresim.ManagedImageID, azuresim.CommunityImageID, azuresim.SharedImageID} {
		sp := spec("key-" + last(id))
		sp.Image = id
		i, err := s.create("key-"+last(id), sp)
		if err != nil {
			t.Errorf("%s: %v", id, err)
			continue
		}
		r := s.cloud.Model(i.ID).Properties.StorageProfile.ImageReference
		if got := deref(r.ID) + deref(r.CommunityGalleryImageID) + deref(r.SharedGalleryImageID); got != id {
			t.Errorf("%s became %s", id, got)
		}
		s.mustDelete(i.ID)
	}
	// The image of a pod is that pod's alone.
	if got := deref(s.cloud.Model(s.mustCreate("key-2").ID).Properties.StorageProfile.ImageReference.ID); got != azuresim.ImageID {
		t.Errorf("the next pod has image %s", got)
	}
}

func TestVolumes(t *testing.T) {
	s := newStand(t, azuresim.Options{})
	sp := spec("key-1")
	sp.Volumes = []provider.CloudVolume{{DiskID: azuresim.VolumeID}}
	i, err := s.create("key-1", sp)
	if err != nil || s.cloud.VolumeOwner() != i.ID {
		t.Fatalf("%v: the volume is %q's", err, s.cloud.VolumeOwner())
	}
	s.mustDelete(i.ID)
	s.wantNothing()
	if got := s.cloud.VolumeOwner(); got != "" {
		t.Errorf("the volume is still %s's", got)
	}
	for _, id := range []string{"data-1", azuresim.VolumeID + "-absent"} {
		sp := spec("key-2")
		sp.Volumes = []provider.CloudVolume{{DiskID: id}}
		if _, err := s.create("key-2", sp); provider.Retryable(err) || err == nil || !strings.Contains(err.Error(), id) {
			t.Errorf("volume %s: %v", id, err)
		}
	}
}

func TestSecondInterface(t *testing.T) {
	s := newStand(t, azuresim.Options{})
	sp := spec("key-1")
	sp.MultiNic = true
	i, err := s.create("key-1", sp)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, r := range s.cloud.World.Own() {
		kinds[r.Kind]++
	}
	if diff := cmp.Diff(map[string]int{cloudsim.KindInstance: 1, cloudsim.KindNIC: 2, cloudsim.KindAddress: 1, cloudsim.KindDisk: 1}, kinds); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if len(i.IPs) != 1 || !i.IPs[0].IsPrivate() {
		t.Errorf("addresses %v", i.IPs)
	}
	s.mustDelete(i.ID)
	s.wantNothing()
}

// TestFallsBack: capacity is refused at once or after the VM was accepted.
func TestFallsBack(t *testing.T) {
	for name, fault := range map[string]cloudsim.Fault{
		"at once": cloudsim.Refused(compute+"virtualMachines/write", 409, "SkuNotAvailable"),
		"late":    cloudsim.Refused("vm:allocate", 0, "ZonalAllocationFailed"),
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, azuresim.Options{}, func(c *Config) {
				c.Zones = []string{"2", "1"}
				c.Prices = prices{"Standard_DC4as_v5": 0.1, "Standard_DC8as_v5": 0.2, "Standard_DC2as_v5": 0.3}
			})
			// Standard_DC4as_v5 is the cheapest with 4 CPUs; Standard_DC8as_v5
			// is in zone 2 alone.
			s.cloud.World.Script(fault.Repeated(2))
			sp := spec("key-1")
			sp.VCPUs = 3
			i, err := s.create("key-1", sp)
			if err != nil {
				t.Fatal(err)
			}
			if i.Type != "Standard_DC8as_v5" || i.Zone != "2" {
				t.Errorf("%s in zone %s", i.Type, i.Zone)
			}
			s.mustDelete(i.ID)
			s.wantNothing()
		})
	}
}

func TestNoCapacityAnywhere(t *testing.T) {
	for _, fault := range []cloudsim.Fault{
		cloudsim.Refused(compute+"virtualMachines/write", 409, "SkuNotAvailable"),
		cloudsim.Refused("vm:allocate", 0, "AllocationFailed"),
	} {
		s := newStand(t, azuresim.Options{}, func(c *Config) { c.Zones = []string{"1", "2", "3"} })
		s.cloud.World.Script(fault.Repeated(-1))
		i, err := s.create("key-1", spec("key-1"))
		if !errors.Is(err, provider.ErrCapacity) || i != nil || !strings.Contains(err.Error(), "zone 3") {
			t.Errorf("%s: %+v, %v", fault.Code, i, err)
		}
		s.wantNothing()
		s.cloud.World.ClearFaults()
		s.mustCreate("key-1")
	}
}

func TestQuota(t *testing.T) {
	s := newStand(t, azuresim.Options{Cores: 3})
	s.mustCreate("key-1")
	i, err := s.create("key-2", spec("key-2"))
	if !errors.Is(err, provider.ErrQuota) || i != nil {
		t.Errorf("%+v, %v", i, err)
	}
}

// TestLostReply: the PUT is done and its answer lost; the SDK sends it again.
func TestLostReply(t *testing.T) {
	s := newStand(t, azuresim.Options{})
	s.cloud.World.Script(cloudsim.LostReply(compute + "virtualMachines/write"))
	i := s.mustCreate("key-1")
	again := s.mustCreate("key-1")
	if i.ID != again.ID || i.IPs[0] != again.IPs[0] || len(s.cloud.World.Own()) != 3 {
		t.Errorf("%+v and %+v: %v", i, again, s.cloud.World.Own())
	}
}

// TestOutcomeUnknown: nobody hears what came of the PUT, so the caller gets an
// id to delete.
func TestOutcomeUnknown(t *testing.T) {
	s := newStand(t, azuresim.Options{})
	s.cloud.World.Script(cloudsim.Unreachable(compute + "virtualMachines/write").Repeated(-1))
	i, err := s.create("key-1", spec("key-1"))
	if !errors.Is(err, provider.ErrUnavailable) || i == nil || i.ID == "" {
		t.Fatalf("%+v, %v", i, err)
	}
	s.mustDelete(i.ID)
	s.wantNothing()
}

func TestDeletionEndsCreation(t *testing.T) {
	s := newStand(t, azuresim.Options{Stuck: azuresim.Accepted})
	failed := make(chan error, 1)
	go func() {
		_, err := s.create("key-1", spec("key-1"))
		failed <- err
	}()
	s.eventually(func() bool { return len(s.cloud.World.Own()) > 0 }, func() any { return "no VM" })
	s.mustDelete(s.id(s.ref(vmName("schedules", "key-1"))))
	if err := <-failed; !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("the creation: %v", err)
	}
	s.wantNothing()
}

func TestDeletionByAnotherProcessEndsCreation(t *testing.T) {
	s := newStand(t, azuresim.Options{Stuck: azuresim.Accepted})
	failed := make(chan error, 1)
	go func() {
		_, err := s.create("key-1", spec("key-1"))
		failed <- err
	}()
	s.eventually(func() bool { return len(s.cloud.World.Own()) > 0 }, func() any { return "no VM" })
	reads := func() int { return s.cloud.World.Calls()[compute+"virtualMachines/read"] }
	// The creation has seen the VM when it reads for the second time from here.
	before := reads()
	s.eventually(func() bool { return reads() >= before+2 }, func() any { return "the creation does not look at the VM" })
	if err := s.reopen().DeleteInstance(t.Context(), s.id(s.ref(vmName("schedules", "key-1")))); err != nil {
		t.Error(err)
	}
	if err := <-failed; !errors.Is(err, errVanished) {
		t.Errorf("the creation: %v", err)
	}
	s.wantNothing()
}

// TestFailedVMOfSomebodyDead: a process made a VM that failed, and ended.
func TestFailedVMOfSomebodyDead(t *testing.T) {
	s := newStand(t, azuresim.Options{})
	s.cloud.World.Script(cloudsim.Refused("vm:allocate", 0, "AllocationFailed"))
	dead := s.reopen()
	c := &creation{Provider: dead, ref: dead.ref(vmName("schedules", "key-1")), key: "key-1", cluster: "schedules"}
	pl, err := dead.plan(t.Context(), "web", "key-1", cloudinit.Raw(""), spec("key-1"))
	if err == nil {
		err = c.put(t.Context(), dead.model(c.name, pl, pl.candidates[0]))
	}
	if err != nil {
		t.Fatal(err)
	}
	i := s.mustCreate("key-1")
	s.mustDelete(i.ID)
	s.wantNothing()
}

// TestFailed: a VM whose creation a deletion stopped, and whose deletion failed, is not waited for.
func TestFailed(t *testing.T) {
	for power, want := range map[string]bool{"": true, "PowerState/starting": true, "PowerState/running": false} {
		vm := &armcompute.VirtualMachine{Properties: &armcompute.VirtualMachineProperties{
			ProvisioningState: new("Failed"),
			InstanceView:      &armcompute.VirtualMachineInstanceView{Statuses: []*armcompute.InstanceViewStatus{{Code: &power}}},
		}}
		if got := failed(vm); got != want {
			t.Errorf("%q: %v", power, got)
		}
	}
}

func TestVMOfSomebodyElse(t *testing.T) {
	s := newStand(t, azuresim.Options{})
	s.cloud.AddForeign(vmName("schedules", "key-1"), map[string]string{"owner": "somebody"})
	i, err := s.create("key-1", spec("key-1"))
	if !errors.Is(err, provider.ErrAlreadyExists) || i != nil {
		t.Errorf("%+v, %v", i, err)
	}
}

// TestLeftovers: the VM goes and its parts stay; a list shows them as an
// instance, and its deletion removes them.
func TestLeftovers(t *testing.T) {
	s := newStand(t, azuresim.Options{}, func(c *Config) { c.UsePublicIP = true })
	s.cloud.AddForeign("somebodys-vm", map[string]string{"owner": "somebody"})
	s.cloud.World.Script(cloudsim.Refused("vm:cascade", 0, "broken"))
	made := s.mustCreate("key-1")
	s.mustDelete(made.ID)
	s.eventually(func() bool { return len(s.cloud.World.Own()) == 3 }, func() any { return s.cloud.World.Own() })
	list, err := s.ListInstances(t.Context(), map[string]string{provider.TagCluster: "schedules"})
	if err != nil || len(list) != 1 || list[0].ID != made.ID || list[0].Key != "key-1" || list[0].Name != made.Name || list[0].State != provider.StateDeleting {
		t.Fatalf("%+v, %v", list, err)
	}
	if other, err := s.ListInstances(t.Context(), map[string]string{provider.TagCluster: "another"}); err != nil || len(other) != 0 {
		t.Errorf("%+v, %v", other, err)
	}
	s.mustDelete(made.ID)
	s.wantNothing()
}

func TestDeletionThatFailsLate(t *testing.T) {
	s := newStand(t, azuresim.Options{})
	s.cloud.World.Script(cloudsim.Refused("vm:delete", 0, "InternalExecutionError"))
	made := s.mustCreate("key-1")
	s.mustDelete(made.ID)
	s.eventually(func() bool {
		vm, err := s.getVM(t.Context(), s.ref(last(made.ID)))
		return err == nil && vm != nil && provisioning(vm) != provisioningDeleting
	}, func() any { return "it is still being deleted" })
	if list, err := s.ListInstances(t.Context(), map[string]string{provider.TagKey: "key-1"}); err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	s.mustDelete(made.ID)
	s.wantNothing()
}

// TestBusyVM: while another operation has the VM a deletion tries again.
func TestBusyVM(t *testing.T) {
	s := newStand(t, azuresim.Options{})
	made := s.mustCreate("key-1")
	s.cloud.World.Script(cloudsim.Refused(compute+"virtualMachines/delete", 409, "AnotherOperationInProgress").Repeated(3))
	s.mustDelete(made.ID)
	s.wantNothing()
	s.cloud.World.Script(cloudsim.Refused(compute+"virtualMachines/delete", 409, "AnotherOperationInProgress").Repeated(-1))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if err := s.DeleteInstance(ctx, made.ID); !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

// TestNoResourceGroup: with the group everything in it has gone.
func TestNoResourceGroup(t *testing.T) {
	s := newStand(t, azuresim.Options{})
	s.mustDelete(s.id(ref{"gone", vmName("schedules", "key-1")}))
}

// TestRetryAfter: the cloud asks to wait a second between two looks at an
// operation, and gets it.
func TestRetryAfter(t *testing.T) {
	s := newStand(t, azuresim.Options{RetryAfter: 1})
	made := s.mustCreate("key-1")
	begin := time.Now()
	s.eventually(func() bool {
		vm, err := s.getVM(t.Context(), s.ref(last(made.ID)))
		return err == nil && provisioning(vm) == provisioningSucceeded
	}, func() any { return "the VM is not made" })
	if err := s.PowerOff(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took < time.Second {
		t.Errorf("asked again after %v", took)
	}
}

func TestThrottled(t *testing.T) {
	s := newStand(t, azuresim.Options{})
	s.cloud.World.Script(cloudsim.Refused(compute+"virtualMachines/*", 429, "TooManyRequests").Repeated(3))
	i := s.mustCreate("key-1")
	s.cloud.World.Script(cloudsim.Refused(compute+"virtualMachines/*", 429, "TooManyRequests").Repeated(-1))
	if err := s.DeleteInstance(t.Context(), i.ID); !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

func TestManyInstances(t *testing.T) {
	s := newStand(t, azuresim.Options{PageSize: 2})
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		s.mustCreate("key-" + key)
	}
	list, err := s.ListInstances(t.Context(), map[string]string{provider.TagCluster: "schedules"})
	if err != nil || len(list) != 5 {
		t.Errorf("%d instances, %v", len(list), err)
	}
}

func TestConsoleURLIsNoSecretThatLeaks(t *testing.T) {
	s := newStand(t, azuresim.Options{})
	made := s.mustCreate("key-1")
	text, err := s.Console(t.Context(), made.ID, 1000)
	if err != nil || !strings.Contains(string(text), "agent is listening") {
		t.Fatalf("%q, %v", text, err)
	}
	transport := s.transport.Clone()
	transport.DialContext = cloudsim.DialLoopback
	s.Provider.cloud.http.Transport = blobsFail{transport}
	if _, err := s.Console(t.Context(), made.ID, 1000); err == nil || strings.Contains(err.Error(), "sig=") {
		t.Errorf("%v", err)
	}
}
