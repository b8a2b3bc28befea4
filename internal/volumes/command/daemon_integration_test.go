// SPDX-License-Identifier: Apache-2.0

//go:build integration

package command_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/volumes/command"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/stand"
)

const namespace = "confidential-containers-system"

// objects are a Node whose instance is NODE, a volume DISK of claim data, and a pod in a VM that uses it.
const objects = `
{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {topology.kubernetes.io/zone: fake-zone}}, spec: {providerID: "fake://NODE"}}
---
{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {name: n1}, spec: {drivers: [{name: csi.outrigger.dev, nodeID: NODE, topologyKeys: [topology.csi.outrigger.dev/zone]}]}}
---
{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: vms}, handler: kata-remote}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv-1}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  csi: {driver: csi.outrigger.dev, volumeHandle: DISK}
  claimRef: {namespace: default, name: data}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  nodeName: n1
  runtimeClassName: vms
  containers: [{name: web, image: busybox}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
`

// TestDaemon: with the permissions of its manifest, the driver decides by the API server whose a
// volume is.
func TestDaemon(t *testing.T) {
	cloud, err := fake.New(fake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	node, err := cloud.CreateInstance(t.Context(), "n1", "n1", nil, provider.InstanceTypeSpec{})
	if err != nil {
		t.Fatal(err)
	}
	disk, err := cloud.CreateDisk(t.Context(), "static", provider.DiskSpec{Bytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	provider.AddCloudProvider("fake", config.New("fake", func(struct{}) (provider.Provider, error) { return cloud, nil }))
	plane := cluster.StartControlPlane(t, cluster.ControlPlaneOptions{})
	plane.Kubectl(t, "create", "namespace", namespace)
	plane.Kubectl(t, "apply", "-k", filepath.Join(stand.Root(), "deploy/csi"))
	plane.Apply(t, strings.NewReplacer("NODE", node.ID, "DISK", disk.ID).Replace(objects))
	conn := start(t, plane.ServiceAccount(t, namespace, "outrigger-csi-controller").Kubeconfig)

	info, err := csi.NewNodeClient(conn).NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{}, grpc.WaitForReady(true))
	if err != nil || info.GetNodeId() != node.ID {
		t.Fatalf("%v, %v", info, err)
	}
	publish := func() (map[string]string, error) {
		got, err := csi.NewControllerClient(conn).ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{
			VolumeId: disk.ID, NodeId: node.ID, VolumeCapability: &csi.VolumeCapability{
				AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
				AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			},
		})
		return got.GetPublishContext(), err
	}
	if got, err := publish(); err != nil || got["outrigger.dev/placement"] != "vm" {
		t.Errorf("%v, %v", got, err)
	}
	if d, err := cloud.GetDisk(t.Context(), disk.ID); err != nil || d.InstanceID != "" {
		t.Errorf("the node has the disk: %+v, %v", d, err)
	}
	plane.Kubectl(t, "delete", "pod", "web", "--force", "--grace-period=0")
	if _, err := publish(); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "no pod of claim default/data is on node n1") {
		t.Error(err)
	}
	if _, err := csi.NewControllerClient(conn).ListVolumes(t.Context(), &csi.ListVolumesRequest{}); err != nil {
		t.Error(err)
	}
}

// ofEBS is a driver that makes no volumes and attaches all.
type ofEBS struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
}

func (*ofEBS) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: "ebs.csi.aws.com"}, nil
}

func (*ofEBS) ControllerPublishVolume(context.Context, *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{"devicePath": "/dev/xvdaa"}}, nil
}

func (*ofEBS) ControllerUnpublishVolume(context.Context, *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// TestWrapper: with the role that the patches give the accounts of a driver, the wrapper decides by the API server
// whose a volume of that driver is.
func TestWrapper(t *testing.T) {
	cloud, err := fake.New(fake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	node, err := cloud.CreateInstance(t.Context(), "n1", "n1", nil, provider.InstanceTypeSpec{})
	if err != nil {
		t.Fatal(err)
	}
	disk, err := cloud.CreateDisk(t.Context(), "static", provider.DiskSpec{Bytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	provider.AddCloudProvider("aws", config.New("aws", func(struct{}) (provider.Provider, error) { return cloud, nil }))
	plane := cluster.StartControlPlane(t, cluster.ControlPlaneOptions{})
	for _, file := range []string{"container/rbac.yaml", "aws/rbac.yaml"} {
		plane.Kubectl(t, "apply", "-f", filepath.Join(stand.Root(), "deploy/csi/wrap", file))
	}
	plane.Kubectl(t, "create", "serviceaccount", "ebs-csi-controller-sa", "-n", "kube-system")
	plane.Apply(t, strings.NewReplacer("NODE", node.ID, "DISK", disk.ID, "csi.outrigger.dev", "ebs.csi.aws.com", "fake://", "aws:///z1/").Replace(objects))

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
	csi.RegisterIdentityServer(server, &ofEBS{})
	csi.RegisterControllerServer(server, &ofEBS{})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	conn := start(t, plane.ServiceAccount(t, "kube-system", "ebs-csi-controller-sa").Kubeconfig, "-mode", "controller", "-cloud-provider", "aws", "-wrap", listener.Addr().String())
	publish := func() (map[string]string, error) {
		got, err := csi.NewControllerClient(conn).ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{
			VolumeId: disk.ID, NodeId: node.ID, VolumeCapability: &csi.VolumeCapability{
				AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
				AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			},
		}, grpc.WaitForReady(true))
		return got.GetPublishContext(), err
	}
	if got, err := publish(); err != nil || got["outrigger.dev/placement"] != "vm" || got["outrigger.dev/disk"] != disk.ID {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := cloud.AttachDisk(t.Context(), disk.ID, node.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := publish(); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "still attached to a node") {
		t.Error(err)
	}
	plane.Kubectl(t, "delete", "pod", "web", "--force", "--grace-period=0")
	plane.Apply(t, strings.NewReplacer("  runtimeClassName: vms\n", "").Replace(objects[strings.LastIndex(objects, "---"):]))
	if got, err := publish(); err != nil || got["devicePath"] == "" {
		t.Errorf("%v, %v", got, err)
	}
}

// start runs the program until the test ends.
func start(t *testing.T, kubeconfig string, more ...string) *grpc.ClientConn {
	t.Helper()
	dir, err := os.MkdirTemp("", "csi") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	endpoint := "unix://" + filepath.Join(dir, "csi.sock")
	done := make(chan int, 1)
	go func() {
		c := &command.Command{Stdout: os.Stdout, Stderr: os.Stderr, Getenv: func(string) string { return "" }}
		done <- c.Run(append([]string{"-cloud-provider", "fake", "-node-name", "n1", "-endpoint", endpoint, "-kubeconfig", kubeconfig, "-metrics-bind-address", "0", "-health-probe-bind-address", "0"}, more...))
	}()
	t.Cleanup(func() {
		syscall.Kill(os.Getpid(), syscall.SIGTERM)
		select {
		case code := <-done:
			if code != 0 {
				t.Errorf("exit code %d", code)
			}
		case <-time.After(time.Minute):
			t.Error("it does not end")
		}
	})
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}
