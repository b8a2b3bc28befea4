// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/outrigger/outrigger/internal/redact"
	"github.com/outrigger/outrigger/provider"
)

// Names of a disk's containers are its id and one of these: a container that holds it for an instance is there once, and
// so is one that makes or copies it.
const (
	suffixHeld = "-attached"
	suffixWork = "-work"
)

// loopDevices is what a container may do with block devices: all with loop devices (Documentation/admin-guide/devices.txt of Linux).
var loopDevices = []string{"b 7:* rwm"}

// worker is a container that works on a disk: its program is internal/guest/loopdisk, in the pod VM's image.
type worker struct {
	of, source     *disk
	name, instance string
	args           []string
}

// Exit codes of the program, when it has not ended as it should.
const (
	workerInUse = 3
	workerFull  = 4
)

// killed reports whether something else has ended a worker: it may have held the disk until then.
func killed(c *container.InspectResponse) bool {
	return c.State.Status == container.StateExited && (c.State.ExitCode == 2 || c.State.ExitCode > workerFull) // Go's runtime ends with 2
}

// makeWorker makes the container, which does not run yet. A volume that was deleted meanwhile would be made again with it, as a disk
// that is not complete.
func (p *Provider) makeWorker(ctx context.Context, w worker) (id string, err error) {
	labels := map[string]string{labelDisk: w.of.id}
	if w.instance != "" {
		labels[labelInstance] = w.instance
	}
	mounts := []mount.Mount{{Type: mount.TypeVolume, Source: w.of.id, Target: "/disk", VolumeOptions: &mount.VolumeOptions{NoCopy: true, Labels: w.of.labels}}}
	if w.source != nil {
		mounts = append(mounts, mount.Mount{Type: mount.TypeVolume, Source: w.source.id, Target: "/source", ReadOnly: true,
			VolumeOptions: &mount.VolumeOptions{NoCopy: true, Labels: w.source.labels}})
	}
	ctx, cancel := outlast(ctx)
	defer cancel()
	made, err := p.engine.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name: w.name,
		// The output of a terminal comes as it is. An image without the program ends, as it gets no user-data.
		Config: &container.Config{Image: p.cfg.Image, Entrypoint: []string{"/init", "--disk"}, Cmd: w.args, Labels: labels, Tty: true, Env: []string{"container=docker"}},
		HostConfig: &container.HostConfig{
			NetworkMode: "none", Mounts: mounts, LogConfig: container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "1m", "max-file": "1"}},
			Resources: container.Resources{
				Devices:           []container.DeviceMapping{{PathOnHost: "/dev/loop-control", PathInContainer: "/dev/loop-control", CgroupPermissions: "rw"}},
				DeviceCgroupRules: loopDevices,
			},
		},
	})
	switch {
	case errdefs.IsConflict(err): // somebody else has made it
		return "", nil
	case errdefs.IsNotFound(err):
		err = fmt.Errorf("%w: the engine must have image %q (DOCKER_PODVM_IMAGE), which has the program for disks: %w", provider.ErrUnavailable, p.cfg.Image, err)
	}
	return made.ID, err
}

// work runs a worker to its end and returns the last line of its output. One that another process has made is waited for, and so is one of an earlier
// attempt: then it is done again.
func (p *Provider) work(ctx context.Context, w worker) (line string, err error) {
	mine := ""
	err = p.wait.Until(ctx, func() (bool, error) {
		c, err := p.inspect(ctx, w.name)
		switch {
		case err != nil:
			return true, err
		case c == nil:
			mine, err = p.makeWorker(ctx, w)
			return false, err
		case c.State.Running:
			return false, nil
		case c.ID != mine:
			return false, p.remove(ctx, c.ID)
		case c.State.Status == container.StateCreated:
			return false, p.startWorker(ctx, c.ID)
		}
		line, err = p.outcome(ctx, c)
		return true, errors.Join(err, p.remove(ctx, c.ID))
	})
	return line, err
}

// startWorker starts one that somebody may have removed.
func (p *Provider) startWorker(ctx context.Context, id string) error {
	_, err := p.engine.ContainerStart(ctx, id, client.ContainerStartOptions{})
	if err == nil || errdefs.IsNotFound(err) {
		return nil
	}
	return p.discardUnstarted(ctx, id, err)
}

// outcome returns the last line of a worker that has ended, and why it has not done its work.
func (p *Provider) outcome(ctx context.Context, c *container.InspectResponse) (line string, err error) {
	line, err = p.lastLine(ctx, c)
	class := provider.ErrUnavailable
	switch c.State.ExitCode {
	case 0:
		return line, err
	case workerInUse:
		class = provider.ErrInUse
	case workerFull:
		class = provider.ErrCapacity
	}
	if err != nil {
		line = err.Error()
	}
	return "", fmt.Errorf("%w: the container for it has ended with code %d: %s", class, c.State.ExitCode, redact.Line(line))
}

// lastLine returns the end of what a worker has said; of one that runs, since it was last killed.
func (p *Provider) lastLine(ctx context.Context, c *container.InspectResponse) (string, error) {
	logs, err := p.engine.ContainerLogs(ctx, c.ID, client.ContainerLogsOptions{ShowStdout: true, Tail: "1", Timestamps: true})
	if err != nil {
		return "", unlessAbsent(err)
	}
	defer logs.Close()
	line, err := io.ReadAll(io.LimitReader(logs, 4096))
	at, text, _ := strings.Cut(string(line), " ")
	said, _ := time.Parse(time.RFC3339Nano, at)
	ended, _ := time.Parse(time.RFC3339Nano, c.State.FinishedAt) // year 1, if it never has
	if c.State.Running && !said.After(ended) {
		text = ""
	}
	return strings.TrimSpace(text), err
}

// AttachDisk implements provider.DiskController: a container holds the disk for the instance.
func (p *Provider) AttachDisk(ctx context.Context, diskID, instanceID string) (made *provider.Attachment, err error) {
	defer explain(&err, "attach disk %s to instance %s", diskID, instanceID)
	unlock, err := p.lockDisk(ctx, diskID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	d, err := p.readyDisk(ctx, kindDisk, diskID)
	if err == nil && d.instance != instanceID {
		err = p.free(ctx, d)
	}
	if err != nil {
		return nil, err
	}
	i, err := p.GetInstance(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	if i.State == provider.StatePending || i.State == provider.StateDeleting {
		return nil, fmt.Errorf("%w: the instance is %s", provider.ErrUnavailable, i.State)
	}
	w := worker{of: d, name: diskID + suffixHeld, instance: instanceID, args: []string{"hold", d.serial, instanceID}}
	if err := p.wait.Until(ctx, func() (bool, error) { return p.attachStep(ctx, w) }); err != nil {
		return nil, err
	}
	return &provider.Attachment{Serial: d.serial}, nil
}

// attachStep reports whether the disk is held. A container that was killed, as all are when their engine is started again, is started again.
func (p *Provider) attachStep(ctx context.Context, w worker) (bool, error) {
	c, err := p.inspect(ctx, w.name)
	switch {
	case err != nil:
		return true, err
	case c == nil:
		_, err := p.makeWorker(ctx, w)
		return false, err
	case c.Config.Labels[labelInstance] != w.instance:
		return true, inUse(c.Config.Labels[labelInstance])
	case c.State.Status == container.StateCreated || killed(c):
		return false, p.startWorker(ctx, c.ID)
	case !c.State.Running:
		_, err := p.outcome(ctx, c)
		return false, errors.Join(err, p.remove(ctx, c.ID))
	}
	line, err := p.lastLine(ctx, c)
	if err == nil && line == "ending" {
		err = fmt.Errorf("%w: it is being detached from the instance, which has it mounted still", provider.ErrUnavailable)
	}
	return line == "ready", err
}

func inUse(instanceID string) error {
	return fmt.Errorf("%w: instance %s has it", provider.ErrInUse, instanceID)
}

// free is ErrInUse for a disk that an instance has. Of one that is gone, which others have removed, the disk is released.
func (p *Provider) free(ctx context.Context, d *disk) error {
	if d.holder == "" {
		return nil
	}
	_, err := p.GetInstance(ctx, d.instance)
	switch {
	case err == nil:
		return inUse(d.instance)
	case errors.Is(err, provider.ErrNotFound):
		return p.release(ctx, d.holder)
	}
	return err
}

// DetachDisk implements provider.DiskController. It waits until the guest has unmounted the disk.
func (p *Provider) DetachDisk(ctx context.Context, diskID, instanceID string) (err error) {
	defer explain(&err, "detach disk %s from instance %s", diskID, instanceID)
	unlock, err := p.lockDisk(ctx, diskID)
	if err != nil {
		return err
	}
	defer unlock()
	d, err := p.findDisk(ctx, diskID)
	if err != nil || d == nil || d.holder == "" || d.instance != instanceID {
		return err
	}
	if err = p.release(ctx, d.holder); ctx.Err() != nil {
		err = fmt.Errorf("the guest may have it mounted still: %w", err)
	}
	return err
}

// releaseDisks takes all disks from an instance that is gone.
func (p *Provider) releaseDisks(ctx context.Context, instanceID string) error {
	filter := client.Filters{}.Add("label", labelInstance+"="+instanceID)
	list, err := p.engine.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: filter})
	if err != nil {
		return err
	}
	for _, c := range list.Items {
		unlock, err := p.lockDisk(ctx, c.Labels[labelDisk])
		if err == nil {
			err = p.release(ctx, c.ID)
			unlock()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// release ends a container that holds a disk, and removes it when that says that no loop device is over the disk's file any more: one that
// was killed is started again to say so.
func (p *Provider) release(ctx context.Context, holder string) error {
	return p.wait.Until(ctx, func() (bool, error) {
		c, err := p.inspect(ctx, holder)
		switch {
		case err != nil || c == nil:
			return true, err
		case c.State.Running:
			_, err = p.engine.ContainerKill(ctx, holder, client.ContainerKillOptions{Signal: "SIGTERM"})
			if errdefs.IsConflict(err) { // it does not run any more
				err = nil
			}
			return false, unlessAbsent(err)
		case killed(c):
			return false, p.startWorker(ctx, holder)
		}
		return true, p.remove(ctx, holder)
	})
}
