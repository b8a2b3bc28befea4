// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/provider/plugin"
	"github.com/outrigger/outrigger/provider/plugin/wire"
	"github.com/outrigger/outrigger/test/testplugin"
)

// serve serves the test's provider and returns how to end that.
func serve(t *testing.T, path string, configured provider.Provider) (stop func()) {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(wire.ServerOptions()...)
	half := wire.NewServer(wire.Options{Name: testplugin.Name, Version: "1", Cloud: config.New(testplugin.Name, testplugin.Open), Configured: configured})
	half.Register(server)
	go server.Serve(listener)
	return sync.OnceFunc(func() {
		server.Stop()
		half.Close()
	})
}

func socketEnv(path string) map[string]string {
	return map[string]string{plugin.EnableVariable: "1", plugin.PathVariable: "unix://" + path, "BAD_SIZE": "3"}
}

func TestSocketComesBack(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	path := filepath.Join(t.TempDir(), "p.sock")
	stop := serve(t, path, nil)
	defer func() { stop() }()
	loaded, _, err := load(t, "bad", socketEnv(path))
	if err != nil {
		t.Fatal(err)
	}
	defer loaded.Close()
	if loaded.Carrier != plugin.Socket || loaded.Path != "unix://"+path {
		t.Errorf("%+v", loaded)
	}
	p := open(t, loaded)
	mustCreate(t, p, "size 3 token ")
	for range 2 {
		stop()
		stop = serve(t, path, nil)
		// A call can meet the end of the old connection; the next cannot.
		if _, err := create(t.Context(), p, "web"); err != nil {
			mustFail(t, err, provider.ErrUnavailable, path)
		}
		mustCreate(t, p, "size 3 token ") // the new server was configured again
	}
}

func TestSocketConfiguredByOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.sock")
	configured, err := testplugin.Open(testplugin.Config{Size: 8})
	if err != nil {
		t.Fatal(err)
	}
	defer serve(t, path, configured)()
	loaded, _, err := load(t, "bad", socketEnv(path))
	if err != nil {
		t.Fatal(err)
	}
	if fields := loaded.Cloud.(config.Configurable).Schema().Fields; len(fields) > 0 {
		t.Errorf("it has settings: %v", fields)
	}
	mustCreate(t, open(t, loaded), "size 8 token ")
}

func TestSocketErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.sock")
	defer serve(t, path, nil)()
	_, _, err := load(t, "other", socketEnv(path))
	mustFail(t, err, provider.ErrInvalidArgument, `is the provider "bad" and not "other"`, path)
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	_, _, err = load(t, "bad", socketEnv(path))
	mustFail(t, err, provider.ErrPermissionDenied, "writable for everybody")
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() != 0 {
		t.Skip("changing the owner of a socket needs root: run the test as root")
	}
	if err := os.Chown(path, 12345, -1); err != nil {
		t.Fatal(err)
	}
	if _, _, err = load(t, "bad", socketEnv(path)); err != nil {
		mustFail(t, err, provider.ErrPermissionDenied, "belongs to uid 12345")
		return
	}
	t.Error("a socket of uid 12345 was taken")
}

// TestSocketCarriesDisks: the capabilities arrive at whoever loads the plugin, and so does
// the class of a disk that another instance has.
func TestSocketCarriesDisks(t *testing.T) {
	cloud, err := fake.New(fake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "p.sock")
	defer serve(t, path, cloud)()
	loaded, _, err := load(t, "bad", map[string]string{plugin.EnableVariable: "1", plugin.PathVariable: "unix://" + path})
	if err != nil {
		t.Fatal(err)
	}
	defer loaded.Close()
	p := open(t, loaded)
	disks, hasDisks := provider.As[provider.DiskController](p)
	snapshots, hasSnapshots := provider.As[provider.DiskSnapshotter](p)
	if !hasDisks || !hasSnapshots {
		t.Fatalf("capabilities %v", provider.Capabilities(p))
	}
	disk, err := disks.CreateDisk(t.Context(), "d", provider.DiskSpec{Bytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := snapshots.CreateSnapshot(t.Context(), "s", disk.ID, nil); err != nil {
		t.Error(err)
	}
	for i, class := range []error{nil, provider.ErrInUse} {
		made, err := p.CreateInstance(t.Context(), "pod", []string{"a", "b"}[i], nil, provider.InstanceTypeSpec{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := disks.AttachDisk(t.Context(), disk.ID, made.ID); provider.Class(err) != class {
			t.Errorf("instance %d: error %v, want class %v", i, err, class)
		}
	}
	if _, err := disks.ResizeDisk(t.Context(), disk.ID, 0); provider.Class(err) != provider.ErrInvalidArgument {
		t.Errorf("a size of nothing: %v", err)
	}
}
