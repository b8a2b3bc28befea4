// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"bytes"
	"context"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/volumes"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/poll"
	sim "github.com/outrigger/outrigger/test/cloudsim/aws"
)

// whose says for whom every volume is, and what is on record of it.
type whose struct {
	volumes.Nowhere
	placement, recorded volumes.Placement
	node                string
}

func (w *whose) Placement(context.Context, string, string) (volumes.Placement, error) {
	return w.placement, nil
}

func (w *whose) Attached(context.Context, string, string) (volumes.Placement, error) {
	return w.recorded, nil
}

func (w *whose) IsNode(_ context.Context, id string) (bool, error) { return id == w.node, nil }

// TestEBSDriver: a volume of the real driver goes to a VM and to an ordinary node, and back, with the wrapper before the
// driver's controller and the same cloud behind both.
func TestEBSDriver(t *testing.T) {
	program := os.Getenv("EBS_CSI_DRIVER")
	if program == "" {
		t.Skip("the module proxy has no module of the driver: build its cmd from its repository, and set EBS_CSI_DRIVER to the program")
	}
	s := newStandFor(t)
	p := s.open(t)
	node, vm := create(t, p, "node").ID, create(t, p, "vm").ID
	world := &whose{node: node}
	c := csi.NewControllerClient(wrapEBS(t, program, s, p, world))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	capability := &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
	zone := &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{"topology.ebs.csi.aws.com/zone": sim.Region + "a"}}}}
	made, err := c.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: "pvc-1", CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 30}, VolumeCapabilities: []*csi.VolumeCapability{capability}, AccessibilityRequirements: zone,
	}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	id := made.GetVolume().GetVolumeId()
	publish := func() (map[string]string, error) {
		got, err := c.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: node, VolumeCapability: capability, VolumeContext: made.GetVolume().GetVolumeContext()})
		return got.GetPublishContext(), err
	}
	unpublish := func() {
		t.Helper()
		if _, err := c.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: node}); err != nil {
			t.Error(err)
		}
	}
	holder := func(want string) {
		t.Helper()
		if d, err := p.GetDisk(ctx, id); err != nil || d.InstanceID != want {
			t.Errorf("%+v, %v; want it at %q", d, err, want)
		}
	}
	world.placement = volumes.InVM
	got, err := publish()
	if err != nil || got["outrigger.dev/disk"] != id {
		t.Fatalf("%v, %v", got, err)
	}
	world.recorded = volumes.InVM
	if _, err := p.AttachDisk(ctx, id, vm); err != nil {
		t.Fatal(err)
	}
	world.placement, world.recorded = volumes.OnNode, ""
	if _, err := publish(); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "a VM that is not a Node has disk "+id) {
		t.Error(err)
	}
	unpublish() // by the driver, which must not take it from the VM
	holder(vm)
	if err := p.DeleteInstance(ctx, vm); err != nil {
		t.Fatal(err)
	}
	for got, err = publish(); status.Code(err) == codes.FailedPrecondition; got, err = publish() { // as the attacher does, until the VM has let go
		if poll.Sleep(ctx, time.Millisecond) != nil {
			break
		}
	}
	if err != nil || got["devicePath"] == "" {
		t.Fatalf("%v, %v", got, err)
	}
	holder(node)
	world.placement = volumes.InVM // the ordinary pod was deleted before that was on record
	if _, err := publish(); err != nil {
		t.Error(err)
	}
	holder("")
	if _, err := c.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id}); err != nil {
		t.Error(err)
	}
	if _, err := p.GetDisk(ctx, id); provider.Class(err) != provider.ErrNotFound {
		t.Error(err)
	}
	t.Logf("the cloud was asked %v", s.World.Calls())
}

// newStandFor is a cloud without TLS, for others' calls as well.
func newStandFor(t *testing.T) *stand {
	t.Helper()
	s := newStand(t, lively)
	quiet := sim.New(t, lively)
	server := httptest.NewServer(quiet.Handler())
	t.Cleanup(server.Close)
	s.Cloud = quiet
	s.cfg.Endpoint, s.cfg.STSEndpoint, s.cfg.CABundle = server.URL, server.URL, ""
	s.cfg.BlocksEndpoint, s.cfg.QuotasEndpoint = server.URL, server.URL
	return s
}

// wrapEBS starts the driver's controller and the wrapper before it.
func wrapEBS(t *testing.T, program string, s *stand, p *Provider, world volumes.Workloads) *grpc.ClientConn {
	t.Helper()
	dir, err := os.MkdirTemp("", "csi") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := "unix://" + filepath.Join(dir, "driver.sock")
	cmd := exec.Command(program, "controller", "--endpoint="+socket)
	log := &bytes.Buffer{}
	cmd.Env = []string{"AWS_EC2_ENDPOINT=" + s.cfg.Endpoint, "AWS_REGION=" + sim.Region, "AWS_ACCESS_KEY_ID=" + sim.KeyID, "AWS_SECRET_ACCESS_KEY=" + sim.Secret}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the driver:\n%s", log)
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	wrapped, closeConn, err := volumes.Dial(ctx, socket, "aws", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	d, err := volumes.New(volumes.Options{Provider: p, Wrapped: wrapped, Workloads: world, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	endpoint, done := "unix://"+filepath.Join(dir, "csi.sock"), make(chan error, 1)
	go func() { done <- d.Serve(ctx, endpoint) }()
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := closeConn(); err != nil {
			t.Error(err)
		}
	})
	return conn
}
