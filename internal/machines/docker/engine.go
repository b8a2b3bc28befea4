// SPDX-License-Identifier: Apache-2.0

// Package docker is the backend of the kinds DockerCluster and DockerMachine: a
// Docker Engine, used only through its API, so that it may be on another host.
//
// A cluster has a network of its own and, unless that is switched off, a
// container that balances connections to its control plane. A machine is a
// container with a volume at /var. Addresses are fixed: the engine chooses a
// subnet once, and each container is given its address in it, which it keeps
// when the engine or its host starts again. Everything carries labels that say
// whose it is, and is found by them.
//
// A machine's first process is package nodeagent: it does the bootstrap, and
// the manager reads its journal. A machine is complete when that is done.
package docker

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/outrigger/outrigger/internal/dockerengine"
	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/keylock"
)

// Backend makes clusters and machines on one engine. It keeps nothing in memory
// but what is going on.
type Backend struct {
	cfg    Config
	engine *client.Client
	// locks are taken by the key of a cluster while something is given one of
	// its addresses, or its load balancer is changed.
	locks keylock.Locks
	tasks *tasks
	// nodeAgent is the program that is copied into machines whose image has no node agent:
	// the manager's own, which knows by its name there what it is to be.
	nodeAgent string

	// Templates, if any, reads those of load balancers.
	Templates TemplateReader

	clusters, machines reconciler.Enqueuer
}

// New checks cfg. An engine that is unreachable must not keep the manager from
// starting: conditions report that.
func New(cfg Config, log *slog.Logger) (*Backend, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	engine, err := client.New(dockerengine.Options(cfg.Host, cfg.APIVersion, cfg.TLSVerify, cfg.CertPath)...)
	if err != nil {
		return nil, fmt.Errorf("%w: --docker-host (DOCKER_HOST) and --docker-cert-path (DOCKER_CERT_PATH): %w", provider.ErrInvalidArgument, err)
	}
	for _, warning := range cfg.warnings() {
		log.Warn(warning)
	}
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return &Backend{cfg: cfg, engine: engine, tasks: newTasks(), nodeAgent: own}, nil
}

// Close ends what goes on in the background, and connections.
func (b *Backend) Close() error {
	b.tasks.close()
	return b.engine.Close()
}

// filter selects by labels: names and values.
func filter(pairs ...string) client.Filters {
	f := client.Filters{}
	for i := 0; i+1 < len(pairs); i += 2 {
		f = f.Add("label", pairs[i]+"="+pairs[i+1])
	}
	return f
}

// containers lists those with labels, also those that do not run.
func (b *Backend) containers(ctx context.Context, pairs ...string) ([]container.Summary, error) {
	result, err := b.engine.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: filter(pairs...)})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	var list []container.Summary
	for _, c := range result.Items {
		if has(c.Labels, pairs...) {
			list = append(list, c)
		}
	}
	return list, nil
}

func (b *Backend) containerWith(ctx context.Context, pairs ...string) (*container.InspectResponse, error) {
	list, err := b.containers(ctx, pairs...)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return b.inspect(ctx, list[0].ID)
}

// inspect returns nil for what does not exist.
func (b *Backend) inspect(ctx context.Context, id string) (*container.InspectResponse, error) {
	return dockerengine.Inspect(ctx, b.engine, id)
}

func nameOf(c *container.InspectResponse) string { return strings.TrimPrefix(c.Name, "/") }

// remove removes a container and the volumes that only it knows.
func (b *Backend) remove(ctx context.Context, id string) error {
	_, err := b.engine.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err == nil || errdefs.IsNotFound(err) || errdefs.IsConflict(err) { // a conflict: it is being removed
		return nil
	}
	return fmt.Errorf("remove a container: %w", err)
}

// removeVolumes removes those with labels and returns how many there were.
func (b *Backend) removeVolumes(ctx context.Context, pairs ...string) (int, error) {
	volumes, err := b.engine.VolumeList(ctx, client.VolumeListOptions{Filters: filter(pairs...)})
	if err != nil {
		return 0, fmt.Errorf("list volumes: %w", err)
	}
	count := 0
	for _, v := range volumes.Items {
		if !has(v.Labels, pairs...) {
			continue
		}
		count++
		if err := b.removeVolume(ctx, v.Name); err != nil {
			return count, err
		}
	}
	return count, nil
}

func (b *Backend) removeVolume(ctx context.Context, name string) error {
	_, err := b.engine.VolumeRemove(ctx, name, client.VolumeRemoveOptions{})
	switch {
	case err == nil, errdefs.IsNotFound(err):
		return nil
	case errdefs.IsConflict(err): // its container is still being removed
		return because(ReasonVolumeInUse, provider.ErrUnavailable, "remove volume %s: %w", name, err)
	}
	return fmt.Errorf("remove volume %s: %w", name, err)
}

func (b *Backend) copyIn(ctx context.Context, id string, files ...dockerengine.File) error {
	if err := dockerengine.CopyIn(ctx, b.engine, id, files...); err != nil {
		return fmt.Errorf("copy files into the container: %w", err)
	}
	return nil
}

// maxRead bounds the files that are read from containers.
const maxRead = 1 << 20

// read returns a file of a container, nil if there is none.
func (b *Backend) read(ctx context.Context, id, name string) ([]byte, error) {
	answer, err := b.engine.CopyFromContainer(ctx, id, client.CopyFromContainerOptions{SourcePath: name})
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s of the container: %w", name, err)
	}
	defer answer.Content.Close()
	r := tar.NewReader(answer.Content)
	if _, err := r.Next(); err != nil {
		return nil, fmt.Errorf("read %s of the container: %w", name, err)
	}
	return io.ReadAll(io.LimitReader(r, maxRead))
}
