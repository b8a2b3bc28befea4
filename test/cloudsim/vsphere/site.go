// SPDX-License-Identifier: Apache-2.0

package vsphere

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// Site is one test's part of the vCenter.
type Site struct {
	World *cloudsim.World
	// URL is the vCenter's, CAFile what signed its certificate.
	URL, CAFile string
	// Folder is the inventory path of the test's VMs.
	Folder string
	Server *cloudsim.Server

	center *center
	folder *object.Folder

	tasks sync.Mutex // see inOrder
	mu    sync.Mutex
	// toolless guests have no VMware tools, and tell their address themselves.
	toolless bool
	denied   []string
	clones   map[string]types.ManagedObjectReference // tasks, by the name of the clone
	// disks is of the next two, and is held while VMs are locked: mu must not be, since who has locked a VM takes it.
	disks sync.Mutex
	// contents are those of disks, by file; copies those that clones begin with, by VM and the disk's key.
	contents map[string][]byte
	copies   map[string]map[int32][]byte
}

var sites atomic.Int64

// Start makes a folder and a front until the test ends.
func Start(t testing.TB) *Site {
	t.Helper()
	c, err := theCenter()
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("pods-%d", sites.Add(1))
	folder, err := c.folder.CreateFolder(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	s := &Site{
		World: cloudsim.NewWorld(), Folder: "/" + Datacenter + "/vm/" + name, center: c, folder: folder,
		clones: map[string]types.ManagedObjectReference{}, contents: map[string][]byte{}, copies: map[string]map[int32][]byte{},
	}
	c.mu.Lock()
	c.sites[folder.Reference()] = s
	c.mu.Unlock()
	s.Server = cloudsim.Serve(t, s.World.Handler(http.HandlerFunc(s.serve), action, s.refuse))
	s.URL, s.CAFile = s.Server.URL+"/sdk", s.Server.CAFile
	t.Cleanup(s.end)
	return s
}

// ReplaceFolder makes another folder with the name of the test's, which must be empty.
func (s *Site) ReplaceFolder(t testing.TB) {
	t.Helper()
	s.end()
	folder, err := s.center.folder.CreateFolder(t.Context(), path.Base(s.Folder))
	if err != nil {
		t.Fatal(err)
	}
	s.center.mu.Lock()
	defer s.center.mu.Unlock()
	s.folder = folder
	s.center.sites[folder.Reference()] = s
}

// end takes the folder away, so that the inventory does not grow from test to
// test. What a test has left it has reported.
func (s *Site) end() {
	s.center.mu.Lock()
	delete(s.center.sites, s.folder.Reference())
	s.center.mu.Unlock()
	ctx := context.Background()
	if task, err := s.folder.Destroy(ctx); err == nil {
		_ = task.Wait(ctx)
	}
}

// Deny takes privileges from the user, as HasPrivilegeOnEntities tells.
func (s *Site) Deny(privileges ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied = privileges
}

// WithoutTools takes VMware's tools from the guests of VMs that start from now
// on: they write their address into the guest information.
func (s *Site) WithoutTools() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.toolless = true
}

func (s *Site) hasTools() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.toolless
}

// kinds are the provider's entries in extraConfig, and what they make of a VM.
var kinds = map[string]string{"outrigger.instance": cloudsim.KindInstance, "outrigger.volume": cloudsim.KindDisk}

// recordOf returns the provider's record, or nil.
func recordOf(v *mo.VirtualMachine) (kind string, tags map[string]string) {
	for _, option := range v.Config.ExtraConfig {
		value := option.GetOptionValue()
		text, _ := value.Value.(string)
		if kinds[value.Key] == "" || text == "" {
			continue
		}
		var record struct{ Tags map[string]string }
		if err := json.Unmarshal([]byte(text), &record); err != nil {
			record.Tags = map[string]string{}
		}
		return kinds[value.Key], record.Tags
	}
	return "", nil
}

// add books a VM once it has a record.
func (s *Site) add(v *mo.VirtualMachine) bool {
	kind, tags := recordOf(v)
	if kind == "" {
		return false
	}
	s.World.Add(kind, v.Self.Value, tags)
	return true
}

func (s *Site) remove(ref types.ManagedObjectReference) {
	for _, kind := range kinds {
		s.World.Remove(kind, ref.Value)
	}
}

// AddForeign makes somebody else's VM in the folder; extra is its extraConfig.
func (s *Site) AddForeign(t testing.TB, name string, tags map[string]string, extra ...types.BaseOptionValue) {
	t.Helper()
	ref, err := s.addVM(name, extra)
	if err != nil {
		t.Fatal(err)
	}
	s.World.AddForeign(cloudsim.KindInstance, ref.Value, tags)
}

func (s *Site) addVM(name string, extra []types.BaseOptionValue) (ref types.ManagedObjectReference, err error) {
	spec := types.VirtualMachineConfigSpec{
		Name: name, GuestId: string(types.VirtualMachineGuestOsIdentifierOtherGuest), ExtraConfig: extra,
		Files: &types.VirtualMachineFileInfo{VmPathName: "[" + Datastore + "]"},
	}
	ctx := context.Background()
	pool, err := object.NewSearchIndex(s.center.client).FindByInventoryPath(ctx, "/"+Datacenter+"/host/"+Cluster+"/Resources")
	if err != nil {
		return ref, err
	}
	task, err := s.folder.CreateVM(ctx, spec, pool.(*object.ResourcePool), nil)
	if err != nil {
		return ref, err
	}
	info, err := task.WaitForResult(ctx)
	if err != nil {
		return ref, err
	}
	return info.Result.(types.ManagedObjectReference), nil
}

// UserData returns what the guest of a VM reads.
func (s *Site) UserData(name string) (string, error) {
	v := s.vm(name)
	if v == nil {
		return "", fmt.Errorf("no VM %s", name)
	}
	values := map[string]string{}
	for _, option := range v.Config.ExtraConfig {
		values[option.GetOptionValue().Key], _ = option.GetOptionValue().Value.(string)
	}
	if encoding := values["guestinfo.userdata.encoding"]; encoding != "gzip+base64" {
		return "", fmt.Errorf("encoding %q", encoding)
	}
	packed, err := base64.StdEncoding.DecodeString(values["guestinfo.userdata"])
	if err != nil {
		return "", err
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(z)
	return string(text), err
}

// VM returns the configuration of the test's VM of that name, or nil.
func (s *Site) VM(name string) *types.VirtualMachineConfigInfo {
	if v := s.vm(name); v != nil {
		return v.Config
	}
	return nil
}

func (s *Site) vm(name string) *simulator.VirtualMachine {
	for _, entity := range s.center.model.Map().All("VirtualMachine") {
		v, ok := entity.(*simulator.VirtualMachine)
		if ok && v.Name == name && v.Parent != nil && *v.Parent == s.folder.Reference() {
			return v
		}
	}
	return nil
}

// Leaks returns what the test has left.
func (s *Site) Leaks() ([]string, error) {
	var left []string
	for _, r := range s.World.Own() {
		left = append(left, r.String())
	}
	return left, nil
}
