// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/outrigger/outrigger/internal/guest/pull"
	"github.com/outrigger/outrigger/internal/peerpods/podnetwork"
	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// rehearsal names what a rehearsal makes.
const rehearsal = "rehearsal"

const (
	// rehearsalTime bounds a rehearsal.
	rehearsalTime = time.Minute
	// prefetchTime bounds the pulls before it: both together are less than handover.BootLimit.
	prefetchTime = 5 * time.Minute
)

// rehearse sets up a pod's network, pulls an image, from a registry of its own, runs a container
// of it, and removes all of that. What a first time costs (programs and kernel are read, and
// without KVM translated) is then paid before there is a pod.
func (o *options) rehearse(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rehearsalTime)
	defer cancel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	image, err := newRehearsalImage()
	if err != nil {
		return err
	}
	server := &http.Server{Handler: image}
	defer server.Close()
	go server.Serve(listener)
	cfg := o.config
	cfg.Root, cfg.StateDir = filepath.Join(cfg.Root, rehearsal), filepath.Join(cfg.StateDir, rehearsal)
	cfg.PodNetNS = filepath.Join(cfg.StateDir, "netns")
	cfg.Images.InsecureRegistries = []string{listener.Addr().String()}
	cfg.Log, cfg.rehearses = slog.New(slog.DiscardHandler), true
	defer os.RemoveAll(cfg.Root)
	defer os.RemoveAll(cfg.StateDir)
	a, err := New(cfg)
	if err != nil {
		return err
	}
	go a.reaper.Run(context.WithoutCancel(ctx))
	err = errors.Join(podnetwork.RehearseGuest(ctx, cfg.PodNetNS), a.runOnce(ctx, listener.Addr().String()+"/"+rehearsal))
	undo, stop := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
	defer stop()
	_, undone := a.DestroySandbox(undo, nil)
	return errors.Join(err, undone)
}

// prefetchImages pulls images into the folder where the agent looks for them.
func (o *options) prefetchImages(ctx context.Context) error {
	if len(o.prefetch) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, prefetchTime)
	defer cancel()
	images, err := pull.New(o.config.puller())
	if err != nil {
		return err
	}
	for _, ref := range o.prefetch {
		_, pullErr := images.Pull(ctx, ref, nil)
		err = errors.Join(err, pullErr)
	}
	return err
}

func (a *Agent) runOnce(ctx context.Context, image string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if _, err := a.CreateSandbox(ctx, &agent.CreateSandboxRequest{SandboxId: rehearsal}); err != nil {
		return err
	}
	if _, err := a.CreateContainer(ctx, rehearsalContainer(image, self)); err != nil {
		return err
	}
	if _, err := a.StartContainer(ctx, &agent.StartContainerRequest{ContainerId: rehearsal}); err != nil {
		return err
	}
	end, err := a.WaitProcess(ctx, &agent.WaitProcessRequest{ContainerId: rehearsal})
	if err == nil && end.GetStatus() != 0 {
		err = fmt.Errorf("the container ended with %d", end.GetStatus())
	}
	return err
}

// rehearsalContainer returns the request for a container that runs program from this VM.
func rehearsalContainer(image, program string) *agent.CreateContainerRequest {
	rootfs := filepath.Join(requestRoot, rehearsal, "rootfs")
	mount := func(at, kind string, options ...string) *agent.Mount {
		return &agent.Mount{Destination: at, Type: kind, Source: kind, Options: append(options, "nosuid")}
	}
	return &agent.CreateContainerRequest{
		ContainerId: rehearsal,
		Storages:    []*agent.Storage{{Driver: driverImage, Source: image, MountPoint: rootfs}},
		OCI: &agent.Spec{
			Version: "1.0.2", Root: &agent.Root{Path: rootfs},
			Process: &agent.Process{Args: []string{"/program", "-version"}, Cwd: "/", Env: os.Environ(), NoNewPrivileges: true},
			Mounts: []*agent.Mount{
				mount("/proc", "proc"), mount("/dev", "tmpfs", "mode=755"), mount("/dev/pts", "devpts", "newinstance", "ptmxmode=0666", "mode=0620"),
				mount("/dev/shm", "tmpfs", "mode=1777"), mount("/dev/mqueue", "mqueue"), mount("/sys", "sysfs", "ro"),
				{Destination: "/program", Type: "bind", Source: program, Options: []string{"bind", "ro"}},
			},
			Linux: &agent.Linux{
				Namespaces:  []*agent.LinuxNamespace{{Type: "mount"}, {Type: "ipc"}, {Type: "uts"}, {Type: "pid"}},
				MaskedPaths: []string{"/proc/kcore", "/proc/keys"},
			},
		},
	}
}

// rehearsalImage answers as a registry that has one image. Paths are of the OCI distribution specification.
type rehearsalImage map[string]document

type document struct {
	kind types.MediaType
	body []byte
}

func (i rehearsalImage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	doc, ok := i[filepath.Base(r.URL.Path)]
	if !ok && r.URL.Path != "/v2/" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", string(doc.kind))
	w.Write(doc.body)
}

func newRehearsalImage() (rehearsalImage, error) {
	layer, err := rehearsalLayer()
	if err != nil {
		return nil, err
	}
	image := rehearsalImage{}
	add := func(kind types.MediaType, body []byte) v1.Descriptor {
		digest, size, _ := v1.SHA256(bytes.NewReader(body)) // reading from memory does not fail
		image[digest.String()] = document{kind, body}
		return v1.Descriptor{MediaType: kind, Digest: digest, Size: size}
	}
	config, err := json.Marshal(v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: add(types.OCIConfigJSON, config), Layers: []v1.Descriptor{add(types.OCILayer, layer)},
	})
	if err != nil {
		return nil, err
	}
	image["latest"] = document{types.OCIManifestSchema1, manifest}
	return image, nil
}

// rehearsalLayer returns some files, which compress somewhat.
func rehearsalLayer() ([]byte, error) {
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	archive := tar.NewWriter(compressed)
	content := make([]byte, 32<<10)
	for i := range content {
		content[i] = byte(i*i>>7) ^ byte(i>>3)
	}
	var errs []error
	for _, name := range []string{"etc/a", "etc/b", "lib/c", "lib/d"} {
		errs = append(errs, archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content))}))
		_, err := archive.Write(content)
		errs = append(errs, err)
	}
	errs = append(errs, archive.Close(), compressed.Close())
	return out.Bytes(), errors.Join(errs...)
}
