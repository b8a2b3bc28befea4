// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
)

// TestServe: the socket of a killed process is replaced, and a node has no controller service.
func TestServe(t *testing.T) {
	m := newMachine(t, Nowhere{})
	dir, err := os.MkdirTemp("", "csi") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "csi.sock")
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- m.Serve(ctx, "unix://"+socket) }()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	got, err := csi.NewIdentityClient(conn).Probe(t.Context(), &csi.ProbeRequest{}, grpc.WaitForReady(true))
	if err != nil || !got.GetReady().GetValue() {
		t.Errorf("%v, %v", got, err)
	}
	_, err = csi.NewControllerClient(conn).ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	wantCode(t, err, codes.Unimplemented, "")
	info, err := csi.NewNodeClient(conn).NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
	if err != nil || info.GetNodeId() != "i-1" || info.GetMaxVolumesPerNode() != 20 || info.GetAccessibleTopology().GetSegments()[TopologyKey] != "z1" {
		t.Errorf("%v, %v", info, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestSocketPath(t *testing.T) {
	for endpoint, want := range map[string]string{"unix:///csi/csi.sock": "/csi/csi.sock", "unix:/csi/csi.sock": "/csi/csi.sock", "/csi/csi.sock": "/csi/csi.sock", "tcp://127.0.0.1:1": "", "csi.sock": "", "": ""} {
		if got, err := SocketPath(endpoint); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", endpoint, got, err)
		}
	}
}
