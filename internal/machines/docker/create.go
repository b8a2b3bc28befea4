// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/outrigger/outrigger/internal/dockerengine"
	"github.com/outrigger/outrigger/internal/machines/docker/nodeagent"
	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/provider"
)

// capabilities are what kubelet, containerd and runc need; the engine's own
// defaults come on top. No --privileged: that takes every capability, which
// some machines cannot give, and all devices. None of these loads modules, sets
// the clock or boots the host.
var capabilities = []string{
	"SYS_ADMIN",       // mounts, namespaces, cgroups
	"NET_ADMIN",       // the pods' network
	"SYS_PTRACE",      // runc reads /proc of what it runs
	"IPC_LOCK",        // etcd and eBPF maps of network plugins
	"DAC_READ_SEARCH", // files of images by handle
}

// security turns off the profiles that keep a container from running containers.
var security = []string{"seccomp=unconfined", "apparmor=unconfined"}

func reasonIs(err error, reasons ...string) bool {
	var p *problem
	return errors.As(err, &p) && slices.Contains(reasons, p.reason)
}

func (b *Backend) create(ctx context.Context, m machine) (reconciler.MachineState, error) {
	state := waiting(stepCreate, ReasonWaitingForContainer, "the container is made")
	n, err := b.network(ctx, m.cluster)
	if err != nil {
		return state, err
	}
	if n == nil {
		return slowly(waiting(stepCreate, ReasonNoNetwork, "the cluster has no network at this engine yet, or any more")), nil
	}
	done, err := b.ensureImage(ctx, m.image, b.ownerOf(m.labels()))
	if err != nil || !done {
		return slowly(waiting(stepCreate, ReasonPullingImage, "the engine pulls "+m.image)), err
	}
	if m.entrypoint, err = b.entrypointOf(ctx, m.image); err != nil {
		return state, err
	}
	unlock, err := b.locks.Take(ctx, m.cluster)
	if err != nil {
		return state, err
	}
	defer unlock()
	taken, err := b.taken(ctx, n, m.cluster)
	if err != nil {
		return state, err
	}
	addr := n.reserved()
	if m.balanced || m.role != roleControlPlane || taken[addr] {
		if addr, err = n.free(taken); err != nil {
			return state, err
		}
	}
	at := n.at(addr)
	id, err := b.make(ctx, m, n, at)
	if err != nil {
		return state, err
	}
	state.Step = stepStart
	m.seed.NodeIPs = nodeIPs(at.labels(map[string]string{}, n.families))
	return state, b.seedAndStart(ctx, m, id)
}

func (b *Backend) make(ctx context.Context, m machine, n *clusterNetwork, addr addresses) (string, error) {
	resources, err := m.resources()
	if err != nil {
		return "", err
	}
	name := m.unique()
	// A volume without its container holds the journal of a bootstrap whose other
	// results are gone with that container.
	if _, err := b.removeVolumes(ctx, labelKey, m.key); err != nil {
		return "", err
	}
	_, err = b.engine.VolumeCreate(ctx, client.VolumeCreateOptions{Name: name + "-var", Labels: m.labels()})
	if err != nil {
		return "", fmt.Errorf("make volume %s-var: %w", name, err)
	}
	stop := "" // the image's
	if bringsNoAgent(m.entrypoint) {
		stop = stopSignal
	}
	made, err := b.engine.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name: name,
		// With a terminal there is a /dev/console, and the engine logs its output.
		Config: &container.Config{Image: m.image, Hostname: m.seed.Hostname, Tty: true, Env: []string{"container=docker"}, Entrypoint: m.entrypoint, StopSignal: stop,
			Labels: with(addr.labels(m.labels(), n.families), labelDomain, m.domain)},
		HostConfig: &container.HostConfig{
			NetworkMode: container.NetworkMode(n.id), RestartPolicy: restart,
			CapAdd: capabilities, SecurityOpt: security,
			// kubelet sets sysctls; these lists would otherwise hide or protect /proc/sys.
			MaskedPaths: []string{}, ReadonlyPaths: []string{},
			Sysctls:      n.sysctls(),
			CgroupnsMode: container.CgroupnsModePrivate,
			Tmpfs:        map[string]string{"/run": "exec,mode=755", "/tmp": "exec,mode=1777"},
			Mounts:       m.mounts(name + "-var"), Resources: resources, LogConfig: logConfig,
		},
		NetworkingConfig: n.endpoint(addr, m.seed.Hostname),
	})
	if err != nil {
		return "", b.explainConflict(ctx, name, m.cluster, fmt.Errorf("make container %s: %w", name, err))
	}
	return made.ID, nil
}

// sysctls returns what a machine needs to route its pods' packets. Engines switch IPv6 off
// for the interfaces that a container makes itself, even in networks with IPv6.
func (n *clusterNetwork) sysctls() map[string]string {
	sysctls := map[string]string{"net.ipv4.ip_forward": "1"}
	if n.subnet6.IsValid() {
		maps.Copy(sysctls, map[string]string{"net.ipv6.conf.all.disable_ipv6": "0", "net.ipv6.conf.default.disable_ipv6": "0", "net.ipv6.conf.all.forwarding": "1"})
	}
	return sysctls
}

// mounts returns the volume and the machine's extra mounts. If a path of the host is
// missing the engine returns an error and does not create it.
func (m machine) mounts(volume string) []mount.Mount {
	// The engine makes a volume that is missing, since another manager may have
	// removed it a moment ago.
	list := []mount.Mount{{Type: mount.TypeVolume, Source: volume, Target: "/var", VolumeOptions: &mount.VolumeOptions{Labels: m.labels()}}}
	for _, extra := range m.spec.ExtraMounts {
		list = append(list, mount.Mount{Type: mount.TypeBind, Source: extra.HostPath, Target: extra.ContainerPath, ReadOnly: extra.ReadOnly})
	}
	return list
}

func (m machine) resources() (container.Resources, error) {
	var r container.Resources
	if q := m.spec.Resources.CPU; q != nil {
		r.NanoCPUs = q.MilliValue() * 1e6
	}
	if q := m.spec.Resources.Memory; q != nil {
		r.Memory = q.Value()
	}
	if r.NanoCPUs < 0 || r.Memory < 0 {
		return r, fmt.Errorf("%w: spec.resources: a size is negative", provider.ErrInvalidArgument)
	}
	return r, nil
}

// seedAndStart copies the seed into a container that never ran and starts it.
func (b *Backend) seedAndStart(ctx context.Context, m machine, id string) error {
	seed, err := json.Marshal(m.seed)
	if err != nil {
		return err
	}
	if bringsNoAgent(m.entrypoint) {
		if err := b.copyAgent(ctx, id); err != nil {
			return err
		}
	}
	folder := func(name string, mode int64) dockerengine.File {
		return dockerengine.File{Name: name + "/", Mode: mode}
	}
	err = b.copyIn(ctx, id,
		folder("var", 0o755), folder("var/lib", 0o755), folder(nodeagent.Dir, 0o700), folder(imagesDir, 0o700),
		dockerengine.File{Name: path.Join(nodeagent.Dir, nodeagent.UserDataFile), Mode: 0o600, Data: m.data},
		dockerengine.File{Name: path.Join(nodeagent.Dir, nodeagent.SeedFile), Mode: 0o600, Data: seed})
	if err != nil {
		return err
	}
	_, err = b.engine.ContainerStart(ctx, id, client.ContainerStartOptions{})
	if err != nil && !errdefs.IsNotModified(err) {
		return fmt.Errorf("start container %s: %w", m.unique(), err)
	}
	return nil
}

// journal returns the node agent's journal; it is empty before the agent has begun.
func (b *Backend) journal(ctx context.Context, id string) (nodeagent.State, error) {
	var s nodeagent.State
	text, err := b.read(ctx, id, path.Join(nodeagent.Dir, nodeagent.StateFile))
	if err != nil || text == nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("%w: the journal of the machine's node agent: %w", provider.ErrUnknown, err)
	}
	return s, nil
}

// defaultTimeout is how long a bootstrap may take.
const defaultTimeout = 5 * time.Minute

// age returns how long ago a container was made. The clock of a remote engine may be
// wrong, so the age is at most the time since its creation began by our clock.
func (m machine) age(c *container.InspectResponse, now time.Time) time.Duration {
	made, err := time.Parse(time.RFC3339Nano, c.Created)
	if err != nil {
		return 0
	}
	if !m.began.IsZero() {
		return min(now.Sub(made), now.Sub(m.began))
	}
	return now.Sub(made)
}

func (m machine) judge(s nodeagent.State, c *container.InspectResponse, now time.Time) (reason, message string) {
	switch s.Phase {
	case nodeagent.PhaseDone:
		if len(s.Ignored) > 0 {
			message = fmt.Sprintf("not done, because a container has no use for it: %v", s.Ignored)
		}
		return ReasonBootstrapDone, message
	case nodeagent.PhaseFailed:
		return ReasonBootstrapFailed, s.Message + "; docker logs " + nameOf(c) + " says more"
	}
	limit := defaultTimeout
	if m.spec.BootstrapTimeout != nil && m.spec.BootstrapTimeout.Duration > 0 {
		limit = m.spec.BootstrapTimeout.Duration
	}
	where := "its node agent has not begun; does image " + m.image + " run one?"
	if s.Phase != "" {
		where = fmt.Sprintf("step %s, %d of %d", s.Step, s.Done+1, s.Total)
	}
	if m.age(c, now) > limit {
		return ReasonBootstrapTimeout, fmt.Sprintf("not done within %s: %s", limit, where)
	}
	if s.Phase == "" {
		return ReasonWaitingForAgent, where
	}
	return ReasonBootstrapRunning, where
}
