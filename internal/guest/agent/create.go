// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/outrigger/outrigger/internal/guest/pull"
	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/outrigger/outrigger/internal/timeline/marks"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// cleanUpTime bounds cleaning up after a call whose context has ended.
const cleanUpTime = time.Minute

// Kata's annotation with the kind of a container: the pod's sandbox or another.
const (
	annotationType = "io.katacontainers.pkg.oci.container_type"
	typeSandbox    = "pod_sandbox"
	annotationName = "io.kubernetes.cri.container-name"
	pauseImage     = "pause"
)

// CreateContainer makes a container with everything it needs, image included;
// its process waits for StartContainer. When it fails nothing is left.
func (a *Agent) CreateContainer(ctx context.Context, req *agent.CreateContainerRequest) (*emptypb.Empty, error) {
	sb, err := a.theSandbox()
	if err != nil {
		return nil, err
	}
	c, err := a.reserveContainer(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	c.name = req.GetOCI().GetAnnotations()[annotationName]
	log := a.log.With("sandbox", sb.id, "container", c.id)
	if err := a.createContainer(ctx, c, sb, req); err != nil {
		log.Error("create container", "err", err)
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTime)
		defer cancel()
		return nil, fail(codes.Internal, errors.Join(err, a.discard(undo, c)))
	}
	c.state.CompareAndSwap(creating, created)
	log.Info("container created", "pause", c.pause)
	return &emptypb.Empty{}, nil
}

func (a *Agent) reserveContainer(id string) (*container, error) {
	if !validID(id) {
		return nil, status.Errorf(codes.InvalidArgument, "container id %q: letters, digits and _.+- are allowed", id)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, taken := a.containers[id]; taken {
		return nil, status.Errorf(codes.AlreadyExists, "there is a container %q already", id)
	}
	c := newContainer(id, a.cfg.StateDir)
	a.containers[id] = c
	return c, nil
}

func (a *Agent) createContainer(ctx context.Context, c *container, sb *sandbox, req *agent.CreateContainerRequest) error {
	if isPause(req) {
		c.pause = true
		c.init = newProcess(sb.pause, nil, nil, nil)
		c.init.exited = sb.pause.Done
		return a.setPodSysctls(sb, req.GetOCI().GetLinux().GetSysctl())
	}
	img, err := a.prepareStorages(ctx, c, sb, req.GetStorages())
	if err != nil {
		return err
	}
	c.sharedPID = req.GetSandboxPidns() || sb.sharedPID
	if err := os.MkdirAll(c.bundle, 0o700); err != nil {
		return err
	}
	defer c.unmountSources()
	spec, err := a.buildSpec(c, sb, req, img)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if err := a.unsealEnv(ctx, c, spec.Process.Env); err != nil {
		return fail(codes.FailedPrecondition, err)
	}
	c.noNewPrivileges = spec.Process.NoNewPrivileges
	if err := writeJSON(filepath.Join(c.bundle, "config.json"), spec); err != nil {
		return err
	}
	began := marks.Uptime()
	if c.init, err = a.launch(ctx, spec.Process, "create", "--bundle", c.bundle, c.id); err != nil {
		return err
	}
	a.cfg.Marks.Note("runtime-create", began, c.name)
	c.cgroup = cgroupOf(c.init.child.PID)
	c.stopOOM = a.watchOOM(c)
	go a.awaitEnd(c)
	return a.rememberContainer(c)
}

func isPause(req *agent.CreateContainerRequest) bool {
	if kind := req.GetOCI().GetAnnotations()[annotationType]; kind != "" {
		return kind == typeSandbox
	}
	return slices.ContainsFunc(req.GetStorages(), func(s *agent.Storage) bool {
		return s.GetDriver() == driverImage && s.GetSource() == pauseImage
	})
}

// prepareStorages makes the storages available in the guest. One of them may be an
// image, which is pulled and returned.
func (a *Agent) prepareStorages(ctx context.Context, c *container, sb *sandbox, storages []*agent.Storage) (*pull.Image, error) {
	var image *agent.Storage
	for _, storage := range storages {
		if storage.GetDriver() == driverImage {
			image = storage
			continue
		}
		if err := a.addStorage(sb, storage); err != nil {
			return nil, err
		}
	}
	if err := a.rememberSandbox(sb); err != nil || image == nil {
		return nil, err
	}
	if err := a.bringAuth(ctx); err != nil {
		return nil, err
	}
	progress := pull.NewProgress()
	c.pull.Store(progress)
	defer c.pull.Store(nil)
	img, err := a.images.Pull(ctx, image.GetSource(), progress)
	if err != nil {
		return nil, err
	}
	rootfs := a.local(image.GetMountPoint())
	a.copies.mu.Lock() // see addStorage
	defer a.copies.mu.Unlock()
	if err := a.checkMountPoint(rootfs); err != nil {
		return nil, err
	}
	c.rootfs = rootfs
	c.scratch = filepath.Join(a.cfg.Images.Dir, "containers", c.id)
	defer a.cfg.Marks.Note("mount-image", marks.Uptime(), c.name)
	return img, a.images.Mount(ctx, img, c.scratch, c.rootfs)
}

// awaitEnd publishes the exit status once the container has ended. An OOM kill
// is reported before that, and processes left in the container are killed.
func (a *Agent) awaitEnd(c *container) {
	<-c.init.child.Done
	c.checkOOM(a.oom)
	if c.sharedPID {
		if err := c.cgroup.killAll(); err != nil {
			a.log.Warn("end container", "container", c.id, "err", err)
		}
	}
	c.init.stdin.close()
	a.log.Info("container ended", "container", c.id, "code", c.init.child.Code())
	close(c.init.exited)
}

// StartContainer lets the container's process run.
func (a *Agent) StartContainer(ctx context.Context, req *agent.StartContainerRequest) (*emptypb.Empty, error) {
	c, err := a.find(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if !c.state.CompareAndSwap(created, started) {
		return nil, status.Errorf(codes.FailedPrecondition, "container %q has been started before", c.id)
	}
	if c.pause {
		return &emptypb.Empty{}, nil
	}
	began := marks.Uptime()
	if err := a.runtime.run(ctx, files{}, "start", c.id); err != nil {
		return nil, fail(codes.Internal, err)
	}
	a.cfg.Marks.Note(marks.RuntimeStart, began, c.name)
	return &emptypb.Empty{}, nil
}

// ExecProcess starts another process in a container.
func (a *Agent) ExecProcess(ctx context.Context, req *agent.ExecProcessRequest) (*emptypb.Empty, error) {
	c, err := a.find(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	switch {
	case c.pause:
		return nil, status.Error(codes.FailedPrecondition, "the pod's pause container holds nothing that could be executed")
	case c.init.child.Ended():
		return nil, status.Errorf(codes.FailedPrecondition, "container %q is not running", c.id)
	case !validID(req.GetExecId()):
		return nil, status.Errorf(codes.InvalidArgument, "exec id %q: letters, digits and _.+- are allowed", req.GetExecId())
	case !c.reserve(req.GetExecId()):
		return nil, status.Errorf(codes.AlreadyExists, "container %q has a process %q already", c.id, req.GetExecId())
	}
	p, err := a.exec(ctx, c, req)
	c.settle(req.GetExecId(), p)
	if err != nil {
		return nil, fail(codes.Internal, err)
	}
	return &emptypb.Empty{}, nil
}

func (a *Agent) exec(ctx context.Context, c *container, req *agent.ExecProcessRequest) (*process, error) {
	spec := &oci.Process{}
	if err := convert(req.GetProcess(), spec); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if err := a.fixProcess(spec, c.rootfs, req.GetStringUser(), nil); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if err := a.unsealEnv(ctx, c, spec.Env); err != nil {
		return nil, fail(codes.FailedPrecondition, err)
	}
	spec.ApparmorProfile, spec.SelinuxLabel = "", ""
	spec.NoNewPrivileges = spec.NoNewPrivileges || c.noNewPrivileges
	file := filepath.Join(c.bundle, fmt.Sprintf("exec%d", a.serial.Add(1)))
	defer os.Remove(file)
	if err := writeJSON(file, spec); err != nil {
		return nil, err
	}
	p, err := a.launch(ctx, spec, "exec", "--detach", "--process", file, c.id)
	if err != nil {
		return nil, err
	}
	go func() {
		<-p.child.Done
		p.stdin.close()
		close(p.exited)
	}()
	return p, nil
}
