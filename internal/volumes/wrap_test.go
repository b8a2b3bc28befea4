// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/outrigger/outrigger/internal/directvolume"
	"github.com/outrigger/outrigger/provider"
)

// connect serves until the test ends.
func connect(t testing.TB, server *grpc.Server) *grpc.ClientConn {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return conn
}

// wrappedDriver is a driver of ordinary pods alone, with the same options.
func wrappedDriver(t testing.TB, o Options) *Wrapped {
	t.Helper()
	o.Workloads, o.Wrapped = Nowhere{}, nil
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return &Wrapped{Name: "ebs.csi.aws.com", Conn: connect(t, d.server())}
}

// someDriver is one whose every reply the test sees.
type someDriver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer
	name  string
	calls []string
	err   error
	// deadline and values are those of the last call.
	deadline time.Time
	values   metadata.MD
	list     *csi.ListVolumesResponse
}

func (d *someDriver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.name}, nil
}

func (d *someDriver) note(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	d.calls = append(d.calls, filepath.Base(info.FullMethod))
	d.deadline, _ = ctx.Deadline()
	d.values, _ = metadata.FromIncomingContext(ctx)
	_ = grpc.SetHeader(ctx, metadata.Pairs("a-header", "h"))
	_ = grpc.SetTrailer(ctx, metadata.Pairs("a-trailer", "t"))
	if d.err != nil {
		return nil, d.err
	}
	return handle(ctx, request)
}

func (d *someDriver) CreateVolume(_ context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: r.GetName()}}, nil
}

func (d *someDriver) ControllerPublishVolume(context.Context, *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{"devicePath": "/dev/xvdaa"}}, nil
}

func (d *someDriver) ControllerUnpublishVolume(context.Context, *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

func (d *someDriver) ListVolumes(context.Context, *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	return d.list, nil
}

func (d *someDriver) NodeStageVolume(context.Context, *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	return &csi.NodeStageVolumeResponse{}, nil
}

func (d *someDriver) NodePublishVolume(context.Context, *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	return &csi.NodePublishVolumeResponse{}, nil
}

func (d *someDriver) NodeUnpublishVolume(context.Context, *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

func (d *someDriver) NodeGetVolumeStats(context.Context, *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	return &csi.NodeGetVolumeStatsResponse{}, nil
}

func (d *someDriver) NodeExpandVolume(context.Context, *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	return &csi.NodeExpandVolumeResponse{CapacityBytes: 1}, nil
}

// wantCalls says what the wrapped driver was asked since the last time.
func (d *someDriver) wantCalls(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(d.calls, want) {
		t.Errorf("the wrapped driver was asked %q, and not %q", d.calls, want)
	}
	d.calls = nil
}

func (d *someDriver) serve(t testing.TB) *Wrapped {
	s := grpc.NewServer(grpc.UnaryInterceptor(d.note))
	csi.RegisterIdentityServer(s, d)
	csi.RegisterControllerServer(s, d)
	csi.RegisterNodeServer(s, d)
	return &Wrapped{Name: "ebs.csi.aws.com", Conn: connect(t, s)}
}

// wrapper is the driver with one of others behind it, over a cloud with two instances, of which n1 is a Node.
type wrapper struct {
	*world
	behind  *someDriver
	machine *machine
	conn    *grpc.ClientConn
	csi.ControllerClient
	node csi.NodeClient
}

func newWrapper(t *testing.T, p *placed) *wrapper {
	w := &wrapper{world: newWorld(t, nil), behind: &someDriver{}, machine: newMachine(t, p)}
	p.node = w.n1
	d, err := New(Options{Provider: w.cloud, Node: w.machine.options(), Workloads: p, Wrapped: w.behind.serve(t), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	w.conn = connect(t, d.server())
	w.ControllerClient, w.node = csi.NewControllerClient(w.conn), csi.NewNodeClient(w.conn)
	return w
}

// TestWrappedDriverGetsTheRest: what is not ours comes through as it is, also what nobody here has heard of.
func TestWrappedDriverGetsTheRest(t *testing.T) {
	w := newWrapper(t, &placed{})
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "a-key", "v"), time.Hour)
	defer cancel()
	header, trailer := metadata.MD{}, metadata.MD{}
	got, err := w.CreateVolume(ctx, &csi.CreateVolumeRequest{Name: "pvc-1"}, grpc.Header(&header), grpc.Trailer(&trailer))
	if err != nil || got.GetVolume().GetVolumeId() != "pvc-1" {
		t.Errorf("%v, %v", got, err)
	}
	if fmt.Sprint(header["a-header"], trailer["a-trailer"], w.behind.values["a-key"]) != "[h] [t] [v]" {
		t.Errorf("header %v, trailer %v, metadata %v", header, trailer, w.behind.values)
	}
	if left := time.Until(w.behind.deadline); left < 50*time.Minute || left > time.Hour {
		t.Errorf("the deadline is in %v", left)
	}
	w.behind.wantCalls(t, "CreateVolume")

	detailed, err := status.New(codes.Aborted, "an operation is under way").WithDetails(durationpb.New(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	w.behind.err = detailed.Err()
	for name, ask := range map[string]func() error{
		"forwarded": func() error { _, err := w.CreateVolume(ctx, &csi.CreateVolumeRequest{}); return err },
		"decided": func() error {
			_, err := w.node.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: "vol-1"})
			return err
		},
	} {
		if s := status.Convert(ask()); s.Code() != codes.Aborted || s.Message() != "an operation is under way" || len(s.Details()) != 1 {
			t.Errorf("%s: %v, %v", name, s, s.Details())
		}
	}
	err = w.conn.Invoke(ctx, "/csi.v9.Future/Do", wrapperspb.String("x"), &wrapperspb.StringValue{})
	wantCode(t, err, codes.Unimplemented, "csi.v9.Future")
	large := strings.Repeat("x", 8<<20)
	w.behind.err = nil
	_, err = w.CreateVolume(ctx, &csi.CreateVolumeRequest{Name: large})
	wantCode(t, err, codes.ResourceExhausted, "") // by the driver, whose limit it is
}

func (w *wrapper) toNode(volume string, change ...func(*csi.ControllerPublishVolumeRequest)) (map[string]string, error) {
	r := &csi.ControllerPublishVolumeRequest{VolumeId: volume, NodeId: w.n1, VolumeCapability: mountCapability("ext4")}
	for _, c := range change {
		c(r)
	}
	got, err := w.ControllerPublishVolume(w.Context(), r)
	return got.GetPublishContext(), err
}

// TestWrappedPublish: the wrapped driver attaches for ordinary pods, when no VM has the disk, and for pods in VMs
// it has let go of the disk.
func TestWrappedPublish(t *testing.T) {
	p := &placed{placement: OnNode}
	w := newWrapper(t, p)
	v := w.mustCreate("pvc-1").GetVolumeId()
	attach := func(instance string) {
		t.Helper()
		if _, err := w.cloud.AttachDisk(t.Context(), v, instance); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := w.toNode(v); err != nil || len(got) != 1 || got["devicePath"] == "" {
		t.Errorf("%v, %v", got, err)
	}
	w.behind.wantCalls(t, "ControllerPublishVolume")
	attach(w.n2) // a VM
	_, err := w.toNode(v)
	wantCode(t, err, codes.FailedPrecondition, "a VM that is not a Node has disk "+v)
	w.behind.wantCalls(t)

	p.placement = InVM // the VM before it is not gone: the adaptor waits
	got, err := w.toNode(v)
	if err != nil || len(got) != 2 || got[keyPlacement] != "vm" || got[keyDisk] != v {
		t.Errorf("%v, %v", got, err)
	}
	w.behind.wantCalls(t, "ControllerUnpublishVolume")
	p.attached = InVM
	if _, err := w.toNode(v); err != nil {
		t.Error(err)
	}
	if _, err := w.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: v, NodeId: w.n1}); err != nil || w.holder(v) != w.n2 {
		t.Errorf("%v, at %q", err, w.holder(v))
	}
	w.behind.wantCalls(t)

	if err := w.cloud.DetachDisk(t.Context(), v, w.n2); err != nil {
		t.Fatal(err)
	}
	attach(w.n1) // the driver says that it has detached it, and it has not
	p.attached = ""
	_, err = w.toNode(v)
	wantCode(t, err, codes.FailedPrecondition, "still attached to a node")
	w.behind.wantCalls(t, "ControllerUnpublishVolume")
	p.attached = OnNode
	_, err = w.toNode(v)
	wantCode(t, err, codes.FailedPrecondition, "still attached to a node")
	if _, err := w.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: v, NodeId: w.n1}); err != nil {
		t.Error(err)
	}
	w.behind.wantCalls(t, "ControllerUnpublishVolume")

	p.err = fmt.Errorf("%w %s", errNoVolume, v) // one of a plugin in Kubernetes itself
	if _, err := w.toNode(v); err != nil {
		t.Error(err)
	}
	p.err = nil
	p.placement = OnNode
	if _, err := w.toNode("a disk that is away"); err != nil { // the driver says so
		t.Error(err)
	}
	w.behind.wantCalls(t, "ControllerPublishVolume", "ControllerPublishVolume")
	p.placement = InVM
	p.attached = ""
	_, err = w.toNode("a disk that is away")
	wantCode(t, err, codes.NotFound, "a disk that is away")
}

// TestWrappedRefusals: what a guest cannot do is refused by name, of volumes of pods in VMs alone.
func TestWrappedRefusals(t *testing.T) {
	p := &placed{}
	w := newWrapper(t, p)
	v := w.mustCreate("pvc-1").GetVolumeId()
	attribute := func(name, value string) func(*csi.ControllerPublishVolumeRequest) {
		return func(r *csi.ControllerPublishVolumeRequest) { r.VolumeContext = map[string]string{name: value} }
	}
	for want, change := range map[string]func(*csi.ControllerPublishVolumeRequest){
		`file system "xfs"`:                func(r *csi.ControllerPublishVolumeRequest) { r.VolumeCapability = mountCapability("xfs") },
		`file system "btrfs"`:              attribute("fsType", "btrfs"),
		`volume attribute partition="1"`:   attribute("partition", "1"),
		`volume attribute blockSize="1k"`:  attribute("blockSize", "1k"),
		`volume attribute mkfsOptions="x"`: attribute("mkfsOptions", "x"),
		"readonly":                         func(r *csi.ControllerPublishVolumeRequest) { r.Readonly = true },
		"MULTI_NODE_MULTI_WRITER": func(r *csi.ControllerPublishVolumeRequest) {
			r.VolumeCapability.AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
		},
		"raw block volumes": func(r *csi.ControllerPublishVolumeRequest) {
			r.VolumeCapability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		},
	} {
		p.placement = InVM
		_, err := w.toNode(v, change)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, and not %s", err, want)
		}
		w.behind.wantCalls(t)
		p.placement = OnNode
		if _, err := w.toNode(v, change); err != nil {
			t.Errorf("%s, of an ordinary pod: %v", want, err)
		}
		w.behind.wantCalls(t, "ControllerPublishVolume")
	}
	p.placement = InVM
	if _, err := w.toNode(v, attribute("fstype", "ext4"), func(r *csi.ControllerPublishVolumeRequest) { r.VolumeContext["partition"] = "" }); err != nil {
		t.Error(err)
	}
}

// TestWrappedList: nodes of pods in VMs are where the attacher looks for them, if the driver has such a list.
func TestWrappedList(t *testing.T) {
	p := &placed{}
	w := newWrapper(t, p)
	entry := func(id string, nodes ...string) *csi.ListVolumesResponse_Entry {
		return &csi.ListVolumesResponse_Entry{Volume: &csi.Volume{VolumeId: id}, Status: &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: nodes}}
	}
	without := &csi.ListVolumesResponse_Entry{Volume: &csi.Volume{VolumeId: "vol-1"}}
	w.behind.list = &csi.ListVolumesResponse{NextToken: "3", Entries: []*csi.ListVolumesResponse_Entry{entry("vol-1", "i-vm"), entry("vol-2", "n2"), without}}
	for _, p.inVMs = range []map[string][]string{nil, {"vol-1": {"n1"}}} {
		got, err := w.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
		if err != nil || len(got.GetEntries()) != 3 || got.GetNextToken() != "3" {
			t.Fatalf("%v, %v", got, err)
		}
		want := "[i-vm] [n2] []"
		if p.inVMs != nil {
			want = "[n1] [n2] []"
		}
		var nodes []string
		for _, e := range got.GetEntries() {
			nodes = append(nodes, fmt.Sprint(e.GetStatus().GetPublishedNodeIds()))
		}
		if got := strings.Join(nodes, " "); got != want {
			t.Errorf("%s, and not %s", got, want)
		}
	}
}

// TestWrappedNode: a pod in a VM has a record until the volume is unpublished, and the wrapped driver hears nothing of it.
func TestWrappedNode(t *testing.T) {
	p := &placed{pod: Pod{Placement: InVM}}
	w := newWrapper(t, p)
	m := w.machine
	target, staging := m.path("pods/u1/volumes/kubernetes.io~csi/pv-1/mount"), m.path("staging")
	ofPod := map[string]string{sidecarPrefix + "pod.namespace": "ns", sidecarPrefix + "pod.name": "web", sidecarPrefix + "pod.uid": "u1"}
	inVM := map[string]string{keyPlacement: string(InVM), keyDisk: "disk-1"}
	stage := func(publishContext, secrets map[string]string) error {
		_, err := w.node.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{VolumeId: "vol-1", StagingTargetPath: staging, VolumeCapability: mountCapability(""), PublishContext: publishContext, Secrets: secrets})
		return err
	}
	publish := func(publishContext, volumeContext map[string]string) error {
		_, err := w.node.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{
			VolumeId: "vol-1", StagingTargetPath: staging, TargetPath: target, VolumeCapability: mountCapability(""), PublishContext: publishContext, VolumeContext: volumeContext,
		})
		return err
	}
	others := func() (errs []error) {
		_, err := w.node.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: "vol-1", VolumePath: target})
		errs = append(errs, err)
		_, err = w.node.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{VolumeId: "vol-1", VolumePath: target})
		errs = append(errs, err)
		_, err = w.node.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: "vol-1", TargetPath: target})
		return append(errs, err)
	}
	for _, publishContext := range []map[string]string{inVM, nil} { // asked for, and not ignored for ordinary pods either
		_, err := w.node.NodeStageVolume(t.Context(), &csi.NodeStageVolumeRequest{VolumeId: "vol-1", StagingTargetPath: staging, VolumeCapability: mountCapability(""), PublishContext: publishContext, VolumeContext: map[string]string{attributeEncrypted: "true"}})
		wantCode(t, err, codes.InvalidArgument, "encrypted by their own parameters")
	}
	wantCode(t, stage(inVM, map[string]string{"passphrase": "s"}), codes.InvalidArgument, "a VM gets none")
	wantCode(t, stage(inVM, nil), codes.OK, "")
	wantCode(t, publish(inVM, ofPod), codes.OK, "")
	records, err := directvolume.OfPod(m.path("records"), "u1")
	if err != nil || len(records) != 1 || records[target].Disk() != "disk-1" || records[target].Device != "disk-1" {
		t.Errorf("%v, %v", records, err)
	}
	if _, err := os.Stat(target); err != nil {
		t.Error(err)
	}
	errs := others()
	wantCode(t, errs[0], codes.FailedPrecondition, "mounted in the pod's VM")
	if errs[1] != nil || errs[2] != nil {
		t.Error(errs)
	}
	w.behind.wantCalls(t)
	if records, err := directvolume.OfPod(m.path("records"), "u1"); err != nil || len(records) > 0 {
		t.Errorf("%v, %v", records, err)
	}

	p.pod.Placement = OnNode
	wantCode(t, publish(inVM, ofPod), codes.FailedPrecondition, "attached for pods in VMs and this pod does not run in one")
	ordinary := map[string]string{"devicePath": "/dev/xvdaa"}
	for _, err := range append([]error{stage(ordinary, map[string]string{"passphrase": "s"}), publish(ordinary, ofPod), publish(ordinary, nil)}, others()...) {
		if err != nil {
			t.Error(err)
		}
	}
	w.behind.wantCalls(t, "NodeStageVolume", "NodePublishVolume", "NodePublishVolume", "NodeGetVolumeStats", "NodeExpandVolume", "NodeUnpublishVolume")
	p.pod.Placement = InVM
	wantCode(t, publish(ordinary, ofPod), codes.FailedPrecondition, "attached for ordinary pods and this pod runs in a VM")
	w.behind.wantCalls(t)
}

// TestForeignRecords: what another driver has left to Kata is that driver's.
func TestForeignRecords(t *testing.T) {
	w := newWrapper(t, &placed{})
	target := w.machine.path("target")
	if err := directvolume.Write(w.machine.path("records"), target, &directvolume.Info{Device: "/dev/vdb"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.node.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: "vol-1", TargetPath: target}); err != nil {
		t.Error(err)
	}
	w.behind.wantCalls(t, "NodeUnpublishVolume")
}

// wantSameAccess: sidecars of another user, who may use the wrapped driver's socket, may use ours.
func wantSameAccess(t *testing.T, wrapped *Wrapped, socket string) {
	t.Helper()
	if err := os.Chmod(wrapped.Socket, 0o723); err != nil {
		t.Fatal(err)
	}
	d, err := New(Options{Wrapped: wrapped, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- d.Serve(ctx, socket) }()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, err := csi.NewIdentityClient(conn).GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true)); err != nil || got.GetName() != wrapped.Name {
		t.Errorf("%v, %v", got, err)
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o723 {
		t.Errorf("%v, %v", info, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	wrapped.Socket = filepath.Join(filepath.Dir(socket), "away")
	if err := d.Serve(t.Context(), socket); err == nil || !strings.Contains(err.Error(), "away: no such file") {
		t.Error(err)
	}
}

// TestDial: a driver that is not known, or is of another cloud, ends the start by name.
func TestDial(t *testing.T) {
	for name, want := range map[string]string{
		"ebs.csi.aws.com": "", "disk.csi.azure.com": "disks of provider azure, and the provider is aws", "nfs.csi.k8s.io": `driver "nfs.csi.k8s.io" cannot be wrapped`, "": "cannot be wrapped",
	} {
		dir, err := os.MkdirTemp("", "csi") // the path of a socket is short
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		listener, err := net.Listen("unix", filepath.Join(dir, "csi.sock"))
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer()
		csi.RegisterIdentityServer(server, &someDriver{name: name})
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(server.Stop)
		w, closeConn, err := Dial(t.Context(), "unix://"+listener.Addr().String(), "aws", slog.New(slog.DiscardHandler))
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v", name, err)
			}
			continue
		}
		if err != nil || w.Name != name {
			t.Fatalf("%q: %v, %v", name, w, err)
		}
		wantSameAccess(t, w, filepath.Join(dir, "own.sock"))
		if err := closeConn(); err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Dial(ctx, "unix:///nowhere/csi.sock", "aws", slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "the wrapped driver at unix:///nowhere/csi.sock") {
		t.Error(err)
	}
	if _, err := New(Options{Provider: struct{ provider.Provider }{}, Wrapped: &Wrapped{}}); err == nil || !strings.Contains(err.Error(), "no disks") {
		t.Error(err)
	}
}
