// SPDX-License-Identifier: Apache-2.0

//go:build !race

package vsphere

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/vsphere"
)

// ovaDescription is of a VM with a network card and a disk (DMTF DSP0243).
const ovaDescription = `<?xml version="1.0" encoding="UTF-8"?>
<Envelope xmlns="http://schemas.dmtf.org/ovf/envelope/1" xmlns:ovf="http://schemas.dmtf.org/ovf/envelope/1" xmlns:rasd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData" xmlns:vssd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_VirtualSystemSettingData">
  <References><File ovf:href="disk.vmdk" ovf:id="file1" ovf:size="%d"/></References>
  <DiskSection><Info>Disks</Info><Disk ovf:capacity="1048576" ovf:capacityAllocationUnits="byte" ovf:diskId="disk1" ovf:fileRef="file1" ovf:format="http://www.vmware.com/interfaces/specifications/vmdk.html#streamOptimized"/></DiskSection>
  <NetworkSection><Info>Networks</Info><Network ovf:name="podvm"><Description>podvm</Description></Network></NetworkSection>
  <VirtualSystem ovf:id="podvm"><Info>VM</Info><Name>podvm</Name>
    <OperatingSystemSection ovf:id="100"><Info>Linux</Info></OperatingSystemSection>
    <VirtualHardwareSection><Info>Hardware</Info>
      <System><vssd:ElementName>Virtual Hardware Family</vssd:ElementName><vssd:InstanceID>0</vssd:InstanceID><vssd:VirtualSystemIdentifier>podvm</vssd:VirtualSystemIdentifier><vssd:VirtualSystemType>vmx-15</vssd:VirtualSystemType></System>
      <Item><rasd:ElementName>CPUs</rasd:ElementName><rasd:InstanceID>1</rasd:InstanceID><rasd:ResourceType>3</rasd:ResourceType><rasd:VirtualQuantity>2</rasd:VirtualQuantity></Item>
      <Item><rasd:AllocationUnits>byte * 2^20</rasd:AllocationUnits><rasd:ElementName>Memory</rasd:ElementName><rasd:InstanceID>2</rasd:InstanceID><rasd:ResourceType>4</rasd:ResourceType><rasd:VirtualQuantity>2048</rasd:VirtualQuantity></Item>
      <Item><rasd:Address>0</rasd:Address><rasd:ElementName>SCSI</rasd:ElementName><rasd:InstanceID>3</rasd:InstanceID><rasd:ResourceSubType>VirtualSCSI</rasd:ResourceSubType><rasd:ResourceType>6</rasd:ResourceType></Item>
      <Item><rasd:AddressOnParent>0</rasd:AddressOnParent><rasd:ElementName>Disk</rasd:ElementName><rasd:HostResource>ovf:/disk/disk1</rasd:HostResource><rasd:InstanceID>4</rasd:InstanceID><rasd:Parent>3</rasd:Parent><rasd:ResourceType>17</rasd:ResourceType></Item>
      <Item><rasd:AddressOnParent>7</rasd:AddressOnParent><rasd:AutomaticAllocation>true</rasd:AutomaticAllocation><rasd:Connection>podvm</rasd:Connection><rasd:ElementName>Card</rasd:ElementName><rasd:InstanceID>5</rasd:InstanceID><rasd:ResourceSubType>VmxNet3</rasd:ResourceSubType><rasd:ResourceType>10</rasd:ResourceType></Item>
    </VirtualHardwareSection>
  </VirtualSystem>
</Envelope>`

const vmdkSize = 1 << 20

// imports gives each test a name of its own: vcsim has one datastore for all.
var imports atomic.Int64

func newName() string { return fmt.Sprintf("podvm-%d", imports.Add(1)) }

func ova(t testing.TB) provider.ImageSource {
	t.Helper()
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, f := range []struct {
		name string
		data []byte
	}{{"podvm.ovf", fmt.Appendf(nil, ovaDescription, vmdkSize)}, {"disk.vmdk", make([]byte, vmdkSize)}} {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Size: int64(len(f.data)), Mode: 0o644, Format: tar.FormatUSTAR}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(f.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "podvm.ova")
	if err := os.WriteFile(path, packed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return provider.ImageSource{Name: newName(), Location: path, Format: provider.FormatOVA, Arch: "amd64"}
}

func TestImportImage(t *testing.T) {
	s := sim.Start(t)
	p := mustOpen(t, simConfig(s, func(c *Config) { c.Datastore, c.Network, c.Snapshot = sim.Datastore, sim.Network, "base" }))
	var done []int64
	source := ova(t)
	name, err := p.ImportImage(t.Context(), source, func(at provider.ImageProgress) {
		if at.Total > 0 {
			done = append(done, at.Done)
		}
	})
	if err != nil || name != s.Folder+"/"+source.Name {
		t.Fatalf("%q, %v", name, err)
	}
	if !slices.IsSorted(done) || len(done) == 0 || done[len(done)-1] != vmdkSize {
		t.Errorf("progress %v", done)
	}
	if _, err := p.ImportImage(t.Context(), source, nil); !errors.Is(err, provider.ErrAlreadyExists) {
		t.Errorf("again: %v", err)
	}
	maker := mustOpen(t, simConfig(s, func(c *Config) { c.Template, c.Snapshot, c.Network = name, "base", sim.Network }))
	i, err := create(t.Context(), maker, "key")
	if err != nil {
		t.Fatal(err)
	}
	if list, err := maker.ListInstances(t.Context(), cloudsim.OwnerTags("key")); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	if err := maker.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Error(err)
	}
}

// TestFailedImports leave nothing.
func TestFailedImports(t *testing.T) {
	good := ova(t)
	for name, test := range map[string]struct {
		change func(*provider.ImageSource)
		config func(*Config)
		fault  cloudsim.Fault
		class  error
		word   string
	}{
		"format":   {change: func(s *provider.ImageSource) { s.Format = provider.FormatQcow2 }, class: provider.ErrInvalidArgument, word: "--format ova"},
		"URL":      {change: func(s *provider.ImageSource) { s.Location = "https://host/podvm.ova" }, class: provider.ErrInvalidArgument, word: "absolute path"},
		"no file":  {change: func(s *provider.ImageSource) { s.Location += "-gone" }, class: provider.ErrNotFound, word: "-gone"},
		"arch":     {change: func(s *provider.ImageSource) { s.Arch = "arm64" }, class: provider.ErrInvalidArgument, word: "arm64"},
		"name":     {change: func(s *provider.ImageSource) { s.Name = "a/b" }, class: provider.ErrInvalidArgument, word: "a/b"},
		"ours":     {change: func(s *provider.ImageSource) { s.Name = vmName(instanceID("x")) }, class: provider.ErrInvalidArgument, word: "instances"},
		"store":    {config: func(c *Config) { c.Datastore = "gone" }, class: provider.ErrNotFound, word: "GOVC_DATASTORE"},
		"network":  {config: func(c *Config) { c.Network = "gone" }, class: provider.ErrNotFound, word: "GOVC_NETWORK"},
		"denied":   {fault: cloudsim.Refused("ImportVApp", 500, "NoPermission"), class: provider.ErrPermissionDenied},
		"write":    {fault: cloudsim.Unreachable("nfc"), class: provider.ErrUnavailable},
		"snapshot": {config: func(c *Config) { c.Snapshot = "base" }, fault: cloudsim.Refused("CreateSnapshot_Task", 500, "NoPermission"), class: provider.ErrPermissionDenied},
	} {
		t.Run(name, func(t *testing.T) {
			s := sim.Start(t)
			source := good
			source.Name = newName()
			if test.change != nil {
				test.change(&source)
			}
			if test.fault.Action != "" {
				s.World.Script(test.fault)
			}
			p := mustOpen(t, simConfig(s, func(c *Config) { c.Datastore = sim.Datastore }, func(c *Config) {
				if test.config != nil {
					test.config(c)
				}
			}))
			id, err := p.ImportImage(t.Context(), source, nil)
			if id != "" || !errors.Is(err, test.class) || !strings.Contains(err.Error(), test.word) {
				t.Errorf("%q, %v", id, err)
			}
			if s.VM(source.Name) != nil {
				t.Error("the VM is left")
			}
		})
	}
}

// TestAnImportThatIsGivenUp leaves nothing either, and says what could not be
// removed.
func TestAnImportThatIsGivenUp(t *testing.T) {
	source := ova(t)
	for _, step := range []string{"uploading", "waiting for the cloud"} {
		s := sim.Start(t)
		source.Name = newName()
		p := mustOpen(t, simConfig(s, func(c *Config) { c.Datastore = sim.Datastore }))
		ctx, cancel := context.WithCancel(t.Context())
		_, err := p.ImportImage(ctx, source, func(at provider.ImageProgress) {
			if at.Step == step {
				cancel()
			}
		})
		if !errors.Is(err, provider.ErrUnavailable) {
			t.Errorf("%s: %v", step, err)
		}
		if s.VM(source.Name) != nil {
			t.Errorf("%s: the VM is left", step)
		}
		cancel()
	}
	s := sim.Start(t)
	source.Name = newName()
	s.World.Script(cloudsim.Unreachable("nfc"), cloudsim.Refused("Destroy_Task", 500, "NoPermission"))
	p := mustOpen(t, simConfig(s, func(c *Config) { c.Datastore = sim.Datastore }))
	if _, err := p.ImportImage(t.Context(), source, nil); !errors.Is(err, provider.ErrUnavailable) || !strings.Contains(err.Error(), "is left and must be deleted") {
		t.Error(err)
	}
}

// TestImportPrivileges keeps the documentation's table to the methods that
// imports call.
func TestImportPrivileges(t *testing.T) {
	s := sim.Start(t)
	p := mustOpen(t, simConfig(s, func(c *Config) { c.Datastore, c.Network, c.Snapshot = sim.Datastore, sim.Network, "base" }))
	s.World.Script(cloudsim.Unreachable("nfc"))
	for range 2 { // one fails and is removed
		source := ova(t)
		p.ImportImage(t.Context(), source, nil)
	}
	free := []string{"CreateFilter", "CreateImportSpec", "CreatePropertyCollector", "DestroyPropertyCollector", "DestroyPropertyFilter", "FindByInventoryPath", "FindChild", "HttpNfcLeaseAbort",
		"HttpNfcLeaseComplete", "Login", "Logout", "RetrieveProperties", "RetrievePropertiesEx", "RetrieveServiceContent", "WaitForUpdatesEx", "nfc", "CancelWaitForUpdates"}
	need := map[string]bool{}
	text := "| on | privilege | for |\n|---|---|---|\n"
	for _, row := range ImportPrivileges {
		need[row.Method] = true
		text += "| " + row.On + " | `" + row.ID + "` | " + row.Method + " |\n"
	}
	calls := s.World.Calls()
	for method := range calls {
		if !need[method] && !slices.Contains(free, method) {
			t.Errorf("%s is called, and nobody says which privilege it needs", method)
		}
	}
	for method := range need {
		if calls[method] == 0 {
			t.Errorf("a privilege is for %s, which is never called", method)
		}
	}
	cloudsim.CheckDoc(t, filepath.Join("..", "..", "docs", "providers", "vsphere.md"), "importing", text)
}
