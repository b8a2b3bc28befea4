// SPDX-License-Identifier: Apache-2.0

// Package volumes is the CSI driver csi.outrigger.dev over any provider that has disks.
//
// A volume of an ordinary pod is a disk of its Node's instance, and mounted on the node. A volume
// of a pod in a VM is a disk of that VM: the node only gets a record of it, see package
// directvolume, with which the VM's own daemons attach the disk and mount it inside.
package volumes

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/outrigger/outrigger/internal/directvolume"
	"github.com/outrigger/outrigger/internal/version"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/keylock"
)

// Name is the driver's, in CSIDriver, StorageClass and PersistentVolume.
const Name = directvolume.Driver

// TopologyKey is the zone of a Node, of a disk and of what a StorageClass allows.
const TopologyKey = "topology." + Name + "/zone"

// anyZone is the value of [TopologyKey] where the cloud has no zones: sidecars and scheduler want
// a value of every Node.
const anyZone = "any"

// Options say which of the two services the driver has, and over what.
type Options struct {
	// Provider is the cloud; nil without the controller service.
	Provider provider.Provider
	// Cluster is the identity of the cluster in owner tags.
	Cluster string
	// Wrapped, if any, is the driver that has all volumes but those of pods in VMs.
	Wrapped *Wrapped
	// Node is nil without the node service.
	Node *NodeOptions
	// Workloads says where volumes belong; [Nowhere] unless set.
	Workloads Workloads
	// CallTimeout bounds the calls to the cloud for one request: 5 minutes.
	CallTimeout time.Duration
	// Observe, if any, is called after every request.
	Observe func(Request)
	Log     *slog.Logger
	Now     func() time.Time
}

// Driver returns the name of the driver whose volumes these are.
func (o *Options) Driver() string {
	if o.Wrapped != nil {
		return o.Wrapped.Name
	}
	return Name
}

// Driver has the services that its options ask for.
type Driver struct {
	csi.UnimplementedIdentityServer
	controller *controller
	node       *node
	options    Options
	locks      keylock.Locks
}

// New returns the driver. A provider without disks is [provider.ErrUnimplemented].
func New(o Options) (*Driver, error) {
	if o.Workloads == nil {
		o.Workloads = Nowhere{}
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = 5 * time.Minute
	}
	if o.Observe == nil {
		o.Observe = func(Request) {}
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	d := &Driver{options: o}
	if o.Node != nil {
		d.node = &node{NodeOptions: *o.Node, workloads: o.Workloads, log: o.Log}
	}
	if o.Provider == nil {
		return d, nil
	}
	disks, ok := provider.As[provider.DiskController](o.Provider)
	if !ok {
		return nil, fmt.Errorf("%w: the provider has no disks (capability DiskController; it has %q)", provider.ErrUnimplemented, provider.Capabilities(o.Provider))
	}
	if o.Cluster == "" && o.Wrapped == nil {
		return nil, fmt.Errorf("%w: without the cluster's identity its disks cannot be told from those of others", provider.ErrInvalidArgument)
	}
	d.controller = &controller{options: &d.options, disks: disks}
	d.controller.snapshots, _ = provider.As[provider.DiskSnapshotter](o.Provider)
	return d, nil
}

// Register adds the services to a server that has the driver's [Driver.Intercept].
func (d *Driver) Register(s *grpc.Server) {
	csi.RegisterIdentityServer(s, d)
	if d.controller != nil {
		csi.RegisterControllerServer(s, d.controller)
	}
	if d.node != nil {
		csi.RegisterNodeServer(s, d.node)
	}
}

// GetPluginInfo implements [csi.IdentityServer].
func (d *Driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: Name, VendorVersion: version.Version}, nil
}

// Probe implements [csi.IdentityServer]: the driver serves when it is ready.
func (d *Driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

// GetPluginCapabilities implements [csi.IdentityServer].
func (d *Driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	all := []*csi.PluginCapability{{Type: &csi.PluginCapability_VolumeExpansion_{
		VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: csi.PluginCapability_VolumeExpansion_ONLINE},
	}}}
	services := []csi.PluginCapability_Service_Type{csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS}
	if d.controller != nil {
		services = append(services, csi.PluginCapability_Service_CONTROLLER_SERVICE)
	}
	for _, s := range services {
		all = append(all, &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: s}}})
	}
	return &csi.GetPluginCapabilitiesResponse{Capabilities: all}, nil
}
