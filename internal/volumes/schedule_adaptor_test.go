// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/outrigger/outrigger/internal/directvolume"
	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	"github.com/outrigger/outrigger/internal/peerpods/podnetwork"
	adaptorpb "github.com/outrigger/outrigger/internal/protocol/adaptor"
	hypervisorpb "github.com/outrigger/outrigger/internal/protocol/hypervisor"
	relaypb "github.com/outrigger/outrigger/internal/protocol/relay"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/test/adaptortest"
)

// vmAdaptor is a node's adaptor, and the next one when it has been killed. What it does when it is dead
// reaches nobody, and its journal is what it was.
type vmAdaptor struct {
	s       *schedule
	node    *nodeOf
	service *adaptor.Service
	fuse    *fuse
	// dead is closed when the fuse has burnt, and changed has an element when something has happened.
	dead, changed chan struct{}
}

func (s *schedule) newAdaptor(n *nodeOf, connect func() disks) *vmAdaptor {
	a := &vmAdaptor{s: s, node: n}
	for _, folder := range []string{"network", "relay"} {
		if err := os.MkdirAll(n.path(folder), 0o700); err != nil {
			s.Fatal(err)
		}
	}
	a.open(connect())
	return a
}

// open starts an adaptor on what the one before has left. It may be killed while it takes that over.
func (a *vmAdaptor) open(cloud disks) {
	for again := true; again; again = a.ended() {
		a.dead, a.changed = make(chan struct{}), make(chan struct{}, 1)
		dead := a.dead
		f := &fuse{s: a.s, left: -1, died: func() { a.keepJournal(); close(dead) }}
		a.fuse = f
		if a.service != nil {
			a.light()
		}
		var err error
		a.service, err = adaptor.New(adaptor.Options{
			Provider: &mortalVMs{mortalCloud{cloud, f}}, ProviderName: "fake", Cluster: &orchestrator{a.s, a.changed},
			Network: mortalNetwork{&adaptortest.Network{Dir: a.node.path("network")}, f}, Relay: mortalRelay{&adaptortest.Relay{Dir: a.node.path("relay")}, f},
			VNIs: &adaptortest.VNIs{Min: 1}, MinVNI: 1, TLS: adaptor.TLS{Issue: adaptortest.Issue}, PodsDir: a.node.path("adaptor"), DirectVolumes: a.node.path("records"),
			ClusterID: "c1", NodeName: a.node.id, ListSettle: time.Nanosecond, MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond, StopGrace: time.Minute,
			Log: slog.New(slog.DiscardHandler), Hook: func(p adaptor.Point) { f.step(p.String()) },
		})
		if err != nil {
			a.s.Fatal(err)
		}
		if err := a.service.Recover(a.s.Context()); err != nil && !f.burnt() {
			a.s.Fatal(err)
		}
		a.settle()
	}
}

func (a *vmAdaptor) keepJournal() {
	for {
		err := errors.Join(os.RemoveAll(a.node.path("then")), os.CopyFS(a.node.path("then"), os.DirFS(a.node.path("adaptor"))))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it is forgetting a sandbox
		}
		if err != nil {
			a.s.Error(err)
		}
		return
	}
}

// light has the adaptor die at one of the places that matter most to disks, or anywhere.
func (a *vmAdaptor) light() {
	if !a.s.faults || a.s.dice(4) == 0 {
		return
	}
	if a.s.dice(3) == 0 {
		a.fuse.left = a.s.dice(45)
		return
	}
	name := adaptorDies[a.s.dice(len(adaptorDies))]
	a.fuse.at = name[a.s.dice(2)]
}

// adaptorDies are places, each with the one behind it.
var adaptorDies = [][2]string{
	{"before-do/choose-zone", "after-do/choose-zone"}, {"before-do/create-instance", "after-do/create-instance"}, {"before CreateInstance", "after CreateInstance"},
	{"before-do/attach-disks", "after-do/attach-disks"}, {"before AttachDisk", "after AttachDisk"}, {"before-do/ready", "after-do/ready"},
	{"before-record/stopping", "after-record/stopping"}, {"before DeleteInstance", "after DeleteInstance"}, {"before-undo/create-instance", "after-undo/create-instance"},
}

// settle returns when what is being removed is gone, or the adaptor is dead.
func (a *vmAdaptor) settle() {
	for a.service.States()[adaptor.StateStopping] > 0 {
		select {
		case <-a.changed:
		case <-a.dead:
			return
		case <-time.After(time.Minute):
			a.s.Fatalf("what an adaptor removes is not gone: %v", a.s.story)
		}
	}
}

// ended reports whether the adaptor was killed; then another may be opened.
func (a *vmAdaptor) ended() bool {
	if !a.fuse.burnt() {
		return false
	}
	a.close()
	a.s.died[a.fuse.where]++
	if err := errors.Join(os.RemoveAll(a.node.path("adaptor")), os.Rename(a.node.path("then"), a.node.path("adaptor"))); err != nil {
		a.s.Fatal(err)
	}
	return true
}

func (a *vmAdaptor) close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := a.service.Close(ctx); err != nil {
		a.s.Error(err)
	}
}

// do has the adaptor do something, at which it may be killed.
func (a *vmAdaptor) do(what string, call func(context.Context) error) error {
	a.light()
	ctx, cancel := context.WithCancel(a.s.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-a.dead:
			cancel()
			a.close()
		case <-ctx.Done():
		}
	}()
	err := call(ctx)
	a.settle()
	cancel()
	<-watched
	a.s.story = append(a.s.story, fmt.Sprintf("%s: %v, dead: %v %s", what, err, a.fuse.burnt(), a.fuse.where))
	if !a.ended() {
		a.fuse.left, a.fuse.at = -1, ""
		return err
	}
	a.open(a.s.cloud)
	return errDead
}

// start runs a sandbox, as a shim does.
func (a *vmAdaptor) start(sandbox string, p *podOf) error {
	return a.do("start "+sandbox, func(ctx context.Context) error {
		if _, err := a.service.CreateVM(ctx, &hypervisorpb.CreateVMRequest{Id: sandbox, NetworkNamespacePath: a.node.path("netns"),
			Annotations: map[string]string{"io.kubernetes.cri.sandbox-name": p.name, "io.kubernetes.cri.sandbox-namespace": "ns"}}); err != nil {
			return err
		}
		if a.s.holder(p.claim) != "" { // it would be waited for, for minutes
			a.s.died["never: disk awaited"]++
			var cancel func()
			ctx, cancel = context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
		}
		_, err := a.service.StartVM(ctx, &hypervisorpb.StartVMRequest{Id: sandbox})
		return err
	})
}

// forgotten reports whether nobody will stop a sandbox that did not start: its shim is gone, and an adaptor that knows
// that it did start keeps it for who comes back.
func (a *vmAdaptor) forgotten(sandbox string) bool {
	list, err := a.service.ListSandboxes(a.s.Context(), &adaptorpb.ListSandboxesRequest{})
	if err != nil {
		a.s.Fatal(err)
	}
	return a.s.dice(2) == 0 && !slices.ContainsFunc(list.GetSandboxes(), func(sb *adaptorpb.Sandbox) bool {
		return sb.GetId() == sandbox && sb.GetState() != string(adaptor.StateStarting)
	})
}

func (a *vmAdaptor) stop(sandbox string) error {
	return a.do("stop "+sandbox, func(ctx context.Context) error {
		_, err := a.service.StopVM(ctx, &hypervisorpb.StopVMRequest{Id: sandbox})
		return err
	})
}

// attached returns the volumes that the relay finds for a sandbox.
func (a *vmAdaptor) attached(sandbox string) []directvolume.Attached {
	list, err := directvolume.ReadAttached(a.node.path("adaptor", sandbox))
	if err != nil {
		a.s.Fatal(err)
	}
	return list
}

// left returns what there is of sandboxes.
func (a *vmAdaptor) left() (left []string) {
	for _, folder := range []string{"adaptor", "network", "relay"} {
		entries, err := os.ReadDir(a.node.path(folder))
		if err != nil {
			a.s.Error(err)
		}
		for _, e := range entries {
			left = append(left, folder+"/"+e.Name())
		}
	}
	return left
}

// orchestrator is what an adaptor knows of the pods.
type orchestrator struct {
	s       *schedule
	changed chan struct{}
}

func (o *orchestrator) Observe(adaptor.Change) {
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

// Pod has no answer now and then.
func (o *orchestrator) Pod(_ context.Context, _, name string) (adaptor.Pod, error) {
	i := slices.IndexFunc(o.s.pods, func(p *podOf) bool { return p.name == name })
	if i < 0 || o.s.faults && o.s.dice(4) == 0 {
		return adaptor.Pod{}, errors.New("the API server does not answer")
	}
	return adaptor.Pod{UID: o.s.pods[i].uid}, nil
}

func (*orchestrator) Claim(context.Context, adaptor.Record)         {}
func (*orchestrator) Release(context.Context, adaptor.Record) error { return nil }
func (*orchestrator) TakeVM(context.Context, adaptor.Record) (*adaptor.PoolVM, error) {
	return nil, nil
}
func (*orchestrator) DropVM(context.Context, adaptor.Record, error) error { return nil }
func (*orchestrator) PullSecrets(context.Context, adaptor.Record, int) []adaptor.RegistryAuth {
	return nil
}

// mortalVMs is the cloud as an adaptor sees it.
type mortalVMs struct{ mortalCloud }

func (c *mortalVMs) CreateInstance(ctx context.Context, name, key string, data cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (i *provider.Instance, err error) {
	err = c.call("CreateInstance", func() (err error) { i, err = c.disks.CreateInstance(ctx, name, key, data, spec); return err })
	if err != nil {
		return nil, err
	}
	return i, nil
}

func (c *mortalVMs) DeleteInstance(ctx context.Context, id string) error {
	return c.call("DeleteInstance", func() error { return c.disks.DeleteInstance(ctx, id) })
}

func (c *mortalVMs) ListInstances(ctx context.Context, match map[string]string) (list []provider.Instance, err error) {
	err = c.call("ListInstances", func() (err error) { list, err = c.disks.ListInstances(ctx, match); return err })
	return list, err
}

type mortalNetwork struct {
	*adaptortest.Network
	fuse *fuse
}

func (n mortalNetwork) Setup(ctx context.Context, netns string, cfg *podnetwork.Config, vm netip.Addr) error {
	return n.fuse.around("Setup", func() error { return n.Network.Setup(ctx, netns, cfg, vm) })
}

func (n mortalNetwork) Teardown(ctx context.Context, netns string, cfg *podnetwork.Config, vm netip.Addr) error {
	return n.fuse.around("Teardown", func() error { return n.Network.Teardown(ctx, netns, cfg, vm) })
}

type mortalRelay struct {
	*adaptortest.Relay
	fuse *fuse
}

func (r mortalRelay) Serve(ctx context.Context, req *relaypb.ServeRequest) error {
	return r.fuse.around("Serve", func() error { return r.Relay.Serve(ctx, req) })
}

func (r mortalRelay) Stop(ctx context.Context, id string) error {
	return r.fuse.around("Stop", func() error { return r.Relay.Stop(ctx, id) })
}
