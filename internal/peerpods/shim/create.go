// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/containerd/containerd/api/events"
	taskapi "github.com/containerd/containerd/api/runtime/task/v2"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/outrigger/outrigger/internal/directvolume"
	"github.com/outrigger/outrigger/internal/peerpods/podclient"
	"github.com/outrigger/outrigger/internal/peerpods/shim/guestspec"
	"github.com/outrigger/outrigger/internal/peerpods/webhook/guestlimits"
	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// keyContainerName is the annotation that names a container within its pod.
const keyContainerName = "io.kubernetes.cri.container-name"

// undoTimeout bounds the clean-up after a Create that failed.
const undoTimeout = 2 * time.Minute

// Create makes a container; the pod's first one brings the VM up.
func (s *Service) Create(ctx context.Context, req *taskapi.CreateTaskRequest) (*taskapi.CreateTaskResponse, error) {
	if err := s.reserve(req.ID); err != nil {
		return nil, err
	}
	defer func() {
		s.mu.Lock()
		delete(s.coming, req.ID)
		s.mu.Unlock()
	}()
	began := time.Now()
	c, err := s.create(ctx, req)
	if err != nil {
		s.log.Error("the container was not created", "container", req.ID, "error", err)
		return nil, wire(err)
	}
	s.opts.Events.Publish(&events.TaskCreate{
		ContainerID: req.ID, Bundle: req.Bundle, Rootfs: req.Rootfs, Pid: pid(),
		IO: &events.TaskIO{Stdin: req.Stdin, Stdout: req.Stdout, Stderr: req.Stderr, Terminal: req.Terminal},
	})
	s.log.Info("container created", "container", c.id, "role", string(c.role), "took", time.Since(began).Round(time.Millisecond))
	return &taskapi.CreateTaskResponse{Pid: pid()}, nil
}

func (s *Service) reserve(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[id] != nil || s.coming[id] {
		return alreadyExists("container %s exists", id)
	}
	s.coming[id] = true
	return nil
}

func (s *Service) create(ctx context.Context, req *taskapi.CreateTaskRequest) (*container, error) {
	if req.Checkpoint != "" {
		return nil, unimplemented("restore")
	}
	b, err := readBundle(req.ID, req.Bundle)
	if err != nil {
		return nil, invalid(err)
	}
	vm, err := s.sandboxFor(ctx, b, req.Options)
	if err != nil {
		return nil, err
	}
	c := &container{
		bundle: b, vm: vm, execs: map[string]*process{},
		init: newProcess(req.ID, "", paths{stdin: req.Stdin, stdout: req.Stdout, stderr: req.Stderr, terminal: req.Terminal}),
	}
	if err := c.createInGuest(ctx, s); err != nil {
		if b.ownsVM() {
			undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
			defer cancel()
			err = errors.Join(err, vm.stop(undo))
		}
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[c.id] = c
	if c.ownsVM() {
		s.vm = c.vm
		go s.watch(c.vm)
	}
	return c, nil
}

// sandboxFor brings up the VM for the container that owns it, and finds it for
// the others.
func (s *Service) sandboxFor(ctx context.Context, b *bundle, options *anypb.Any) (*sandbox, error) {
	if b.ownsVM() {
		return s.bringUp(ctx, b, options)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.vm == nil || s.vm.pod.ID() != b.sandbox {
		return nil, notFound("sandbox %s is not running in this shim", b.sandbox)
	}
	return s.vm, nil
}

func configPath(options *anypb.Any) (string, error) {
	if options == nil {
		return "", nil
	}
	var parsed runtimeoptions.Options
	if options.TypeUrl != string(parsed.ProtoReflect().Descriptor().FullName()) {
		return "", fmt.Errorf("the runtime's options are of type %s, not %s: "+
			"runtime_type in containerd's configuration must not be one of runc's", options.TypeUrl, parsed.ProtoReflect().Descriptor().FullName())
	}
	err := (&anypb.Any{TypeUrl: "/" + options.TypeUrl, Value: options.Value}).UnmarshalTo(&parsed)
	return parsed.ConfigPath, err
}

// createInGuest brings mounts and image into the VM.
func (c *container) createInGuest(ctx context.Context, s *Service) error {
	req, mounts, err := c.request(ctx)
	if err != nil {
		return err
	}
	c.termination = mounts.termination
	if c.guest, err = c.vm.pod.CreateFrom(ctx, req, seconds(c.vm.config.Runtime.CreateTimeout)); err != nil {
		return err
	}
	c.volumes, err = refresh(s.log, c.vm.pod, mounts.volumes)
	if err != nil {
		// The container is there and right; only changes will not reach it.
		s.log.Warn("ConfigMaps and Secrets will not follow changes", "container", c.id, "error", err)
	}
	return nil
}

func (c *container) request(ctx context.Context) (*agent.CreateContainerRequest, *containerMounts, error) {
	if err := c.check(); err != nil {
		return nil, nil, invalid(err)
	}
	image, err := c.image()
	if err != nil {
		return nil, nil, invalid(err)
	}
	mounts, err := c.vm.config.placeMounts(ctx, c.vm.pod, c.bundle)
	if err != nil {
		return nil, nil, err
	}
	devices, disks, err := placeDevices(directvolume.Root, c.spec.Linux)
	if err != nil {
		return nil, nil, invalid(err)
	}
	limits, err := guestlimits.Of(c.vm.annotations, c.spec.Annotations[keyContainerName])
	if err != nil {
		return nil, nil, invalid(err)
	}
	rootfs := podclient.GuestRootfs(c.id)
	spec := guestspec.Convert(c.spec, guestspec.Options{
		Rootfs: rootfs, Mounts: mounts.mounts, Annotations: c.agentAnnotations(), NoSeccomp: c.vm.config.Runtime.DisableGuestSeccomp,
	})
	spec.Linux.Devices = devices
	if !c.ownsVM() && limits != (guestlimits.Limits{}) {
		guestspec.Limit(spec, limits)
	}
	return &agent.CreateContainerRequest{
		ContainerId: c.id, ExecId: c.id, OCI: spec, SandboxPidns: c.sharesPIDs(),
		Storages: append([]*agent.Storage{podclient.PullStorage(image, rootfs, maps.Clone(spec.Annotations))}, append(mounts.storages, disks...)...),
	}, mounts, nil
}

func (c *container) agentAnnotations() map[string]string {
	ann := map[string]string{
		"io.katacontainers.pkg.oci.bundle_path":    c.path,
		"io.katacontainers.pkg.oci.container_type": string(c.role),
	}
	if c.ownsVM() {
		ann["nerdctl/network-namespace"] = c.netns()
	}
	return ann
}

// check refuses devices and settings that a VM cannot have.
func (c *container) check() error {
	if c.spec.Process == nil {
		return errors.New("the OCI spec has no process")
	}
	return nil
}
