// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"github.com/outrigger/outrigger/internal/dockerengine"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/kit/userdata"
)

// capabilities are what the guest's programs need to make the pod's network
// and run its containers; the engine's own defaults come on top. No --privileged:
// that takes every capability, and some machines cannot give them all. None that
// reaches beyond the container's namespaces where it can be helped: no SYS_TIME,
// no SYS_MODULE, no SYS_BOOT.
var capabilities = []string{
	"SYS_ADMIN",       // mounts, namespaces, cgroups
	"NET_ADMIN",       // the tunnel
	"SYS_PTRACE",      // runc reads /proc of what it runs
	"DAC_READ_SEARCH", // files of images by handle
}

// security lifts what would keep a container from running containers.
var security = []string{"seccomp=unconfined", "apparmor=unconfined"}

// nameOf returns the container's name. The engine accepts a name only once.
func nameOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "podvm-" + hex.EncodeToString(sum[:16])
}

// CreateInstance implements provider.Provider. A key that is taken returns its
// instance whatever the other arguments say.
func (p *Provider) CreateInstance(ctx context.Context, podName, sandboxID string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
	if err := refuse(spec); err != nil {
		return nil, fmt.Errorf("create instance: %w", err)
	}
	unlock, err := p.locks.Take(ctx, sandboxID)
	if err != nil {
		return nil, fmt.Errorf("create instance: %w: %w", provider.ErrUnavailable, err)
	}
	defer unlock()
	if err := p.negotiateVersion(ctx); err != nil {
		return nil, fmt.Errorf("create instance: %w", err)
	}
	r := request{podName, sandboxID, spec}
	made, err := p.findOrMake(ctx, r, cloudConfig)
	if err != nil {
		err = fmt.Errorf("create instance %s: %w", nameOf(sandboxID), classify(err))
	}
	return made, err
}

// lost looks whether a creation whose answer was lost has made a container
// anyway, so that the caller can delete it.
func (p *Provider) lost(ctx context.Context, r request, cause error) (*provider.Instance, error) {
	if !errors.Is(classify(cause), provider.ErrUnavailable) {
		return nil, cause
	}
	looking, cancel := context.WithTimeout(context.WithoutCancel(ctx), lostLimit)
	defer cancel()
	c, err := p.inspect(looking, nameOf(r.key))
	if err != nil || c == nil || !ours(c.Config.Labels) {
		return nil, cause // a list shows it, if there is one
	}
	return p.answer(c), cause
}

// lostLimit bounds that look, and the wait for an answer on its way: the caller's time
// is up.
const lostLimit = 2 * time.Second

// outlast returns a context that ends lostLimit after ctx does.
func outlast(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(lostLimit, cancel) })
	return longer, func() { stop(); cancel() }
}

// request is what an instance is made of.
type request struct {
	pod, key string
	spec     provider.InstanceTypeSpec
}

// findOrMake asks again when the name is taken and there is no container to see:
// somebody else makes or removes it.
func (p *Provider) findOrMake(ctx context.Context, r request, cloudConfig cloudinit.CloudConfigGenerator) (answer *provider.Instance, err error) {
	err = p.wait.Until(ctx, func() (bool, error) {
		id, err := p.find(ctx, r.key)
		if err != nil {
			return true, err
		}
		if id == "" {
			if id, err = p.make(ctx, r); errdefs.IsConflict(err) {
				return false, nil
			}
		}
		if err != nil {
			answer, err = p.lost(ctx, r, err)
			return true, err
		}
		answer, err = p.start(ctx, id, r, cloudConfig)
		return true, err
	})
	return answer, err
}

// find returns the id of a key's container, or nothing; one that is being
// removed is gone then.
func (p *Provider) find(ctx context.Context, key string) (string, error) {
	c, err := p.inspect(ctx, nameOf(key))
	switch {
	case err != nil || c == nil:
		return "", err
	case !ours(c.Config.Labels):
		return "", fmt.Errorf("%w: container %s is somebody else's", provider.ErrAlreadyExists, nameOf(key))
	case stateOf(c.State.Status) == provider.StateDeleting:
		return "", p.remove(ctx, c.ID)
	}
	return c.ID, nil
}

// make makes the container, which does not run yet. The engine finishes what it has been
// asked for, so that a container that nobody would look for appears after the caller is gone
// unless somebody waits for the answer.
func (p *Provider) make(ctx context.Context, r request) (string, error) {
	image := cmp.Or(r.spec.Image, p.cfg.Image)
	resources, err := p.resources(ctx, r.spec, image)
	if err != nil {
		return "", err
	}
	name := provider.InstanceName(r.pod, nameOf(r.key)[len("podvm-"):])
	labels := map[string]string{labelOurs: "1", labelName: name}
	for tag, value := range r.spec.Tags {
		labels[tagPrefix+tag] = value
	}
	labels[tagPrefix+provider.TagKey] = r.key
	ctx, cancel := outlast(ctx)
	defer cancel()
	made, err := p.engine.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name: nameOf(r.key),
		// A terminal is /dev/console, whose output the engine keeps.
		Config: &container.Config{Image: image, Hostname: name, Labels: labels, Tty: true, Env: []string{"container=docker"}},
		HostConfig: &container.HostConfig{
			NetworkMode: container.NetworkMode(p.cfg.Network), CapAdd: capabilities, SecurityOpt: security,
			Sysctls:      map[string]string{"net.ipv4.ip_forward": "0"}, // as in a VM; the host's would be inherited, and /proc/sys stays read-only
			CgroupnsMode: container.CgroupnsModePrivate, Tmpfs: map[string]string{"/run": "exec,mode=755", "/tmp": "exec,mode=1777"},
			Resources: resources, LogConfig: container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "4m", "max-file": "1"}},
		},
		NetworkingConfig: &network.NetworkingConfig{EndpointsConfig: map[string]*network.EndpointSettings{p.cfg.Network: {}}},
	})
	if err != nil {
		return "", err
	}
	return made.ID, nil
}

// refuse names what a container cannot have.
func refuse(spec provider.InstanceTypeSpec) error {
	switch {
	case spec.InstanceType != "":
		return fmt.Errorf("%w: instance type %q: containers have none; ask for CPUs and memory", provider.ErrInvalidArgument, spec.InstanceType)
	case spec.GPUs > 0 || spec.GPU != "":
		return fmt.Errorf("%w: GPUs are not given to containers", provider.ErrInvalidArgument)
	case spec.MultiNic:
		return fmt.Errorf("%w: a second interface cannot be had", provider.ErrInvalidArgument)
	case spec.Zone != "":
		return fmt.Errorf("%w: zone %q: this provider has no zones", provider.ErrInvalidArgument, spec.Zone)
	case len(spec.Volumes) > 0:
		return fmt.Errorf("%w: volumes cannot be attached", provider.ErrInvalidArgument)
	}
	return nil
}

// resources returns the limits, which the machine must have.
func (p *Provider) resources(ctx context.Context, spec provider.InstanceTypeSpec, image string) (container.Resources, error) {
	var none container.Resources
	there, err := p.engine.ImageInspect(ctx, image)
	if errdefs.IsNotFound(err) {
		return none, fmt.Errorf("%w: the engine has no image %q: bring it in with docker load or docker pull", provider.ErrNotFound, image)
	}
	if err != nil {
		return none, err
	}
	if spec.Arch != "" && there.Architecture != spec.Arch {
		return none, fmt.Errorf("%w: image %q is for %s and the pod wants %s", provider.ErrInvalidArgument, image, there.Architecture, spec.Arch)
	}
	return p.limits(ctx, cmp.Or(spec.VCPUs, p.cfg.CPUs), cmp.Or(spec.Memory, p.cfg.Memory))
}

func (p *Provider) limits(ctx context.Context, cpus, memory int64) (container.Resources, error) {
	info, err := p.engine.Info(ctx, client.InfoOptions{})
	if err != nil {
		return container.Resources{}, err
	}
	if cpus > int64(info.Info.NCPU) || memory > info.Info.MemTotal>>20 {
		return container.Resources{}, fmt.Errorf("%w: %d CPUs and %d MiB are asked for and the engine's machine has %d and %d",
			provider.ErrCapacity, cpus, memory, info.Info.NCPU, info.Info.MemTotal>>20)
	}
	return container.Resources{NanoCPUs: cpus * 1e9, Memory: memory << 20, DeviceCgroupRules: loopDevices}, nil
}

// start hands a container its user-data and starts it, also one that an earlier
// attempt left. One that has ended is an error: it has no address.
func (p *Provider) start(ctx context.Context, id string, r request, cloudConfig cloudinit.CloudConfigGenerator) (*provider.Instance, error) {
	c, err := p.inspect(ctx, id)
	if err == nil && c == nil {
		err = fmt.Errorf("%w: it was deleted while it was being made", provider.ErrUnavailable)
	}
	if err == nil && c.State.Status == container.StateCreated {
		if err = p.seed(ctx, id, r, cloudConfig); err == nil {
			_, err = p.engine.ContainerStart(ctx, id, client.ContainerStartOptions{})
		}
	}
	if err != nil {
		return p.abandon(ctx, id, err)
	}
	var answer *provider.Instance
	err = p.wait.Until(ctx, func() (bool, error) {
		c, err := p.inspect(ctx, id)
		if err == nil && c == nil {
			err = fmt.Errorf("%w: it was deleted while it was being made", provider.ErrUnavailable)
		}
		if err != nil {
			return true, err
		}
		answer = p.answer(c)
		if answer.State == provider.StateStopped {
			return true, fmt.Errorf("%w: the container has ended with code %d; docker logs %.12s says more", provider.ErrUnavailable, c.State.ExitCode, id)
		}
		return len(answer.IPs) > 0, nil
	})
	if err != nil {
		return &provider.Instance{ID: id}, err
	}
	return answer, nil
}

// abandonLimit bounds the removal of a container that could not be started.
const abandonLimit = 30 * time.Second

// abandon removes what cannot become an instance, unless the caller only has no
// more time: then it may come again. What runs by now, since another process
// has started it, stays: the engine removes it only by force.
func (p *Provider) abandon(ctx context.Context, id string, cause error) (*provider.Instance, error) {
	left := &provider.Instance{ID: id}
	if ctx.Err() != nil {
		return left, fmt.Errorf("%w: %w", provider.ErrUnavailable, cause)
	}
	removing, cancel := context.WithTimeout(ctx, abandonLimit)
	defer cancel()
	_, err := p.engine.ContainerRemove(removing, id, client.ContainerRemoveOptions{RemoveVolumes: true})
	if err != nil && !errdefs.IsNotFound(err) {
		return left, fmt.Errorf("%w; and the container is left: %v", cause, err)
	}
	return nil, cause
}

// seedDir is where podvm-init mounts the NoCloud seed in a real VM.
const seedDir = "/media/cidata"

// seed copies the user-data into the container.
func (p *Provider) seed(ctx context.Context, id string, r request, cloudConfig cloudinit.CloudConfigGenerator) error {
	text, err := userdata.Generate(cloudConfig)
	if err != nil {
		return err
	}
	if len(text) > cloudinit.MaxSize {
		return fmt.Errorf("%w: the user-data has %d bytes and may have %d", provider.ErrInvalidArgument, len(text), cloudinit.MaxSize)
	}
	meta := fmt.Sprintf("instance-id: %s\nlocal-hostname: %s\n", nameOf(r.key), provider.InstanceName(r.pod, nameOf(r.key)[len("podvm-"):]))
	// The key of the pod's certificate is in it.
	return dockerengine.CopyIn(ctx, p.engine, id,
		dockerengine.File{Name: "/media/", Mode: 0o755}, dockerengine.File{Name: seedDir + "/", Mode: 0o755},
		dockerengine.File{Name: seedDir + "/user-data", Mode: 0o600, Data: []byte(text)}, dockerengine.File{Name: seedDir + "/meta-data", Mode: 0o600, Data: []byte(meta)})
}
