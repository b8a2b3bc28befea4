// SPDX-License-Identifier: Apache-2.0

package vsphere

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/nfc"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/ovf"
	"github.com/vmware/govmomi/task"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/names"
	"github.com/outrigger/outrigger/provider/kit/parts"
)

// ImportPrivileges are those of who imports images, besides reading (vSphere
// Web Services API, "Required Privileges" of each method).
var ImportPrivileges = []Privilege{
	{"the resource pools", "VApp.Import", "ImportVApp"},
	{"the folder", "VirtualMachine.Inventory.CreateNew", "ImportVApp"},
	{"the folder", "VirtualMachine.Config.AddNewDisk", "ImportVApp"},
	{"the datastore", "Datastore.AllocateSpace", "ImportVApp"},
	{"the network", "Network.Assign", "ImportVApp"},
	{"the folder", "VirtualMachine.State.CreateSnapshot", "CreateSnapshot_Task"},
	{"the folder", "VirtualMachine.Inventory.Delete", "Destroy_Task"},
}

// ImportImage implements provider.ImageImporter: it makes a VM of an OVA, in
// -deploy-folder, which -template can name. With -vsphere-snapshot it gets that
// snapshot, to which clones are linked.
func (p *Provider) ImportImage(ctx context.Context, source provider.ImageSource, progress func(provider.ImageProgress)) (made string, err error) {
	defer explain(&err, "import image %s", source.Name)
	description, err := importable(source)
	if err != nil {
		return "", err
	}
	if progress == nil {
		progress = func(provider.ImageProgress) {}
	}
	err = p.locked(ctx, source.Name, func(w *watcher) error {
		i := &imageImport{Provider: p, w: w, source: source, description: description, tell: progress}
		made, err = i.run(ctx)
		return err
	})
	return made, err
}

// maxVMName is how long a name in the inventory may be.
const maxVMName = 80

// importable returns the description in an OVA that can be imported.
func importable(source provider.ImageSource) (string, error) {
	switch {
	case source.Format != provider.FormatOVA:
		return "", fmt.Errorf("%w: format %q: vCenter takes an OVA, which podvm-image --format ova makes", provider.ErrInvalidArgument, source.Format)
	case !filepath.IsAbs(source.Location):
		return "", fmt.Errorf("%w: location %q: want a file's absolute path", provider.ErrInvalidArgument, source.Location)
	case source.Arch != "amd64":
		return "", fmt.Errorf("%w: architecture %q: vSphere has amd64", provider.ErrInvalidArgument, source.Arch)
	case source.Name == "" || len(source.Name) > maxVMName || strings.ContainsAny(source.Name, `/\%`):
		return "", fmt.Errorf("%w: name %q: want 1 to %d characters without / \\ %%", provider.ErrInvalidArgument, source.Name, maxVMName)
	case names.IsUUID(strings.TrimPrefix(source.Name, vmName(""))):
		return "", fmt.Errorf("%w: name %q: such names are those of instances", provider.ErrInvalidArgument, source.Name)
	}
	if err := source.CheckFile(); err != nil {
		return "", err
	}
	return readDescription(source.Location)
}

// readDescription returns the text of an OVA's description.
func readDescription(file string) (string, error) {
	var text []byte
	err := member(file, "*.ovf", func(r io.Reader, _ int64) (err error) {
		text, err = io.ReadAll(io.LimitReader(r, 1<<20))
		return err
	})
	if err == nil {
		_, err = ovf.Unmarshal(bytes.NewReader(text))
	}
	if err != nil {
		return "", fmt.Errorf("%w: %s is not an OVA: %w", provider.ErrInvalidArgument, file, err)
	}
	return string(text), nil
}

// member reads one file of an archive.
func member(archive, pattern string, read func(io.Reader, int64) error) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	for r := tar.NewReader(file); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("there is no %s in it", pattern)
		}
		if err != nil {
			return err
		}
		if matched, _ := path.Match(pattern, path.Base(header.Name)); matched {
			return read(r, header.Size)
		}
	}
}

// imageImport is a VM that is being made of an OVA.
type imageImport struct {
	*Provider
	w           *watcher
	source      provider.ImageSource
	description string
	tell        func(provider.ImageProgress)

	folder, pool, datastore object.Reference
	host                    *object.HostSystem
	network                 object.NetworkReference
}

func (i *imageImport) run(ctx context.Context) (string, error) {
	if err := i.lookUp(ctx); err != nil {
		return "", err
	}
	lease, info, err := i.begin(ctx)
	if err != nil {
		return "", err
	}
	err = i.transfer(ctx, lease, info)
	if err == nil && i.cfg.Snapshot != "" {
		err = i.snapshot(ctx, info.Entity)
	}
	made := ""
	if err == nil {
		made, err = find.InventoryPath(ctx, i.w.client, info.Entity)
	}
	if err != nil {
		return "", i.undo(ctx, lease, info.Entity, err)
	}
	return made, nil
}

// lookUp finds the places, and that the name is free.
func (i *imageImport) lookUp(ctx context.Context) error {
	c := i.w.client
	f, err := i.finder(ctx, c)
	if err != nil {
		return err
	}
	folder, err := i.findFolder(ctx, f)
	if err != nil {
		return err
	}
	i.folder = object.NewFolder(c, folder)
	res, err := methods.FindChild(ctx, c, &types.FindChild{This: *c.ServiceContent.SearchIndex, Entity: folder, Name: i.source.Name})
	if err != nil {
		return err
	}
	if res.Returnval != nil {
		return fmt.Errorf("%w: the folder has a VM of this name", provider.ErrAlreadyExists)
	}
	s := &site{}
	if err := errors.Join(i.findPools(ctx, f, s), i.findRest(ctx, f, s)); err != nil {
		return err
	}
	i.pool, i.network = object.NewResourcePool(c, s.pools[0].ref), s.network
	if s.host != nil {
		i.host = object.NewHostSystem(c, *s.host)
	}
	if s.datastore != nil {
		i.datastore = s.datastore
		return nil
	}
	i.datastore, err = f.DatastoreOrDefault(ctx, "")
	return settingError("data-store", err)
}

// begin makes the VM, whose disk is then to be written.
func (i *imageImport) begin(ctx context.Context) (*nfc.Lease, *nfc.LeaseInfo, error) {
	params := types.OvfCreateImportSpecParams{EntityName: i.source.Name, DiskProvisioning: string(types.OvfCreateImportSpecParamsDiskProvisioningTypeThin)}
	params.Locale = "US"
	if i.network != nil {
		for _, name := range i.networks() {
			params.NetworkMapping = append(params.NetworkMapping, types.OvfNetworkMapping{Name: name, Network: i.network.Reference()})
		}
	}
	spec, err := ovf.NewManager(i.w.client).CreateImportSpec(ctx, i.description, i.pool, i.datastore, &params)
	if err != nil {
		return nil, nil, err
	}
	if len(spec.Error) > 0 {
		return nil, nil, fmt.Errorf("vCenter does not take the OVA: %w", &task.Error{LocalizedMethodFault: &spec.Error[0]})
	}
	pool, folder := object.NewResourcePool(i.w.client, i.pool.Reference()), object.NewFolder(i.w.client, i.folder.Reference())
	lease, err := pool.ImportVApp(ctx, spec.ImportSpec, folder, i.host)
	if err != nil {
		return nil, nil, err
	}
	info, err := lease.Wait(ctx, spec.FileItem)
	if err != nil {
		abort(ctx, lease)
		return nil, nil, err
	}
	return lease, info, nil
}

// networks returns the networks that the description names.
func (i *imageImport) networks() []string {
	envelope, err := ovf.Unmarshal(strings.NewReader(i.description))
	if err != nil || envelope.Network == nil {
		return nil
	}
	var names []string
	for _, network := range envelope.Network.Networks {
		names = append(names, network.Name)
	}
	return names
}

// keepAlive is how often vCenter wants to hear of a lease, which it gives up
// after five minutes.
const keepAlive = 30 * time.Second

// transfer writes the disks and ends the lease.
func (i *imageImport) transfer(ctx context.Context, lease *nfc.Lease, info *nfc.LeaseInfo) error {
	alive, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		for tick := time.NewTicker(keepAlive); ; {
			select {
			case <-tick.C:
				_ = lease.Progress(alive, 50) // the transfer tells what is wrong
			case <-alive.Done():
				tick.Stop()
				return
			}
		}
	}()
	for _, item := range info.Items {
		if err := i.upload(ctx, item); err != nil {
			return fmt.Errorf("write %s: %w", item.Path, err)
		}
	}
	i.tell(provider.ImageProgress{Step: "waiting for the cloud"})
	return lease.Complete(ctx)
}

// snapshot makes the snapshot on which linked clones are based.
func (i *imageImport) snapshot(ctx context.Context, ref types.ManagedObjectReference) error {
	i.tell(provider.ImageProgress{Step: "making the snapshot"})
	vm := object.NewVirtualMachine(i.w.client, ref)
	return i.w.run(ctx, func() (*object.Task, error) {
		return vm.CreateSnapshot(ctx, i.cfg.Snapshot, "image of pod VMs", false, false)
	})
}

func abort(ctx context.Context, lease *nfc.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), destroyWait)
	defer cancel()
	if err := lease.Abort(ctx, nil); err != nil {
		logger().Debug("a lease could not be given up; vCenter does it after some minutes", "error", err)
	}
}

// undo removes the VM: giving the lease up does so too, unless it has ended.
func (i *imageImport) undo(ctx context.Context, lease *nfc.Lease, ref types.ManagedObjectReference, cause error) error {
	abort(ctx, lease)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoWait)
	defer cancel()
	if err := i.destroy(ctx, i.w, ref, false); err != nil {
		return fmt.Errorf("%w; VM %s is left and must be deleted: %v", classify(cause), i.source.Name, err)
	}
	return cause
}

// upload writes a file of the OVA where the lease says: mostly to the ESXi host
// itself, whose certificate vCenter has told.
func (i *imageImport) upload(ctx context.Context, item nfc.FileItem) error {
	transport := i.w.client.DefaultTransport().Clone()
	if item.Thumbprint != "" {
		transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, VerifyConnection: pin(item.Thumbprint)}
	}
	defer transport.CloseIdleConnections()
	return member(i.source.Location, path.Base(item.Path), func(r io.Reader, size int64) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, item.URL.String(), &parts.Reader{From: r, Total: size, Tell: i.tell})
		if err != nil {
			return err
		}
		request.ContentLength = size
		request.Header.Set("Content-Type", "application/x-vnd.vmware-streamVmdk")
		if item.Create { // no disk, as ovftool does it
			request.Method = http.MethodPut
			request.Header.Set("Overwrite", "t")
		}
		response, err := (&http.Client{Transport: transport}).Do(request)
		if failed := (&url.Error{}); errors.As(err, &failed) {
			failed.URL = item.URL.Host // whoever knows all of it can write the disk
		}
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode >= http.StatusMultipleChoices {
			return fmt.Errorf("%w: %s answers %s", provider.ErrUnavailable, item.URL.Host, response.Status)
		}
		return nil
	})
}
