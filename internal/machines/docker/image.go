// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	definition "github.com/outrigger/outrigger/images/node"
	"github.com/outrigger/outrigger/internal/dockerengine"
	"github.com/outrigger/outrigger/internal/machines/docker/nodeagent"
	"github.com/outrigger/outrigger/provider"
)

// ensureImage reports whether the engine has an image; if not, it is pulled in the
// background, and who asked is woken.
func (b *Backend) ensureImage(ctx context.Context, image string, who machineOwner) (done bool, err error) {
	_, err = b.engine.ImageInspect(ctx, image)
	switch {
	case err == nil:
		b.tasks.drop("pull/" + image) // if somebody removes it, it has to be pulled again
		return true, nil
	case !errdefs.IsNotFound(err):
		return false, fmt.Errorf("look for image %s: %w", image, err)
	case !b.cfg.Pull:
		return false, because(ReasonImageMissing, provider.ErrNotFound, "the engine has no image %s: load it there, or allow --docker-pull", image)
	}
	ended, err := b.tasks.do("pull/"+image, who, func(ctx context.Context) error { return b.pull(ctx, image) })
	if err != nil {
		return false, because(ReasonImageMissing, provider.ErrNotFound, "the engine has no image %s and cannot pull it: %w", image, err)
	}
	return ended, nil
}

func (b *Backend) pull(ctx context.Context, image string) error {
	answer, err := b.engine.ImagePull(ctx, image, client.ImagePullOptions{})
	if err != nil {
		return err
	}
	defer answer.Close()
	return answer.Wait(ctx)
}

// imagesDir is where the node agent looks for images.
const imagesDir = nodeagent.Dir + "/" + nodeagent.ImagesDir

// copyImages copies images of the engine into a machine, except those that it
// has. It has no time limit.
func (b *Backend) copyImages(ctx context.Context, id string, images []string) error {
	for i, image := range images {
		base := path.Join(imagesDir, strconv.Itoa(i))
		_, err := b.engine.ContainerStatPath(ctx, id, client.ContainerStatPathOptions{Path: base + ".ready"})
		if err == nil {
			continue
		}
		if !errdefs.IsNotFound(err) {
			return fmt.Errorf("look into the machine: %w", err)
		}
		if err := b.copyImage(ctx, id, image, base); err != nil {
			return fmt.Errorf("copy image %s into the machine: %w", image, err)
		}
	}
	return nil
}

// copyImage copies an image by way of a temporary file, since a tar archive
// needs the size before the content. The marker file comes last.
func (b *Backend) copyImage(ctx context.Context, id, image, base string) error {
	spool, err := os.CreateTemp("", "image-*")
	if err != nil {
		return err
	}
	defer spool.Close()
	defer os.Remove(spool.Name())
	if _, err := b.engine.ImageInspect(ctx, image); errdefs.IsNotFound(err) {
		return because(ReasonImageMissing, provider.ErrNotFound, "the engine has no image %s, which preLoadImages names: pull or load it there", image)
	}
	saved, err := b.engine.ImageSave(ctx, []string{image})
	if err != nil {
		return err
	}
	defer saved.Close()
	size, err := io.Copy(spool, saved)
	if err == nil {
		_, err = spool.Seek(0, io.SeekStart)
	}
	if err != nil {
		return err
	}
	return dockerengine.CopyIn(ctx, b.engine, id, dockerengine.File{Name: base + ".tar", Mode: 0o600, Content: spool, Size: size}, dockerengine.File{Name: base + ".ready", Mode: 0o600})
}

// kindsEntrypoint begins what kind's node images start with: a script, then systemd.
var kindsEntrypoint = []string{"/usr/local/bin/entrypoint", "/sbin/init"}

// entrypointOf returns what a machine with an image of kind's starts with: the node agent,
// which hands over to the image's own command. It is nil for other images, which start a
// node agent of their own.
func (b *Backend) entrypointOf(ctx context.Context, image string) ([]string, error) {
	result, err := b.engine.ImageInspect(ctx, image)
	if err != nil {
		return nil, fmt.Errorf("look at image %s: %w", image, err)
	}
	if result.Config == nil {
		return nil, nil
	}
	start := slices.Concat(result.Config.Entrypoint, result.Config.Cmd)
	if len(start) < len(kindsEntrypoint) || !slices.Equal(start[:len(kindsEntrypoint)], kindsEntrypoint) {
		return nil, nil
	}
	if result.Architecture != "" && result.Architecture != runtime.GOARCH {
		return nil, because(ReasonImageUnfit, provider.ErrInvalidArgument,
			"image %s is one of kind's, for %s: it needs the node agent of this manager, which is a program for %s; take one of `make node-image`, which has its own (docs/capi-docker.md, Node images)", image, result.Architecture, runtime.GOARCH)
	}
	return append([]string{nodeagent.Program, nodeagent.HandOver}, start...), nil
}

// stopSignal is what tells systemd as the first process to stop; on SIGTERM it starts itself again.
const stopSignal = "SIGRTMIN+3"

// bringsNoAgent reports whether a container's image is one of kind's, by what it starts with.
func bringsNoAgent(entrypoint []string) bool {
	return len(entrypoint) > 2 && slices.Equal(entrypoint[:2], []string{nodeagent.Program, nodeagent.HandOver})
}

func (b *Backend) copyAgent(ctx context.Context, id string) error {
	settings, err := settingsForKind()
	if err != nil {
		return err
	}
	program, err := os.Open(b.nodeAgent)
	if err != nil {
		return fmt.Errorf("the node agent for an image of kind's: %w", err)
	}
	defer program.Close()
	info, err := program.Stat()
	if err != nil {
		return err
	}
	if err := dockerengine.CopyIn(ctx, b.engine, id, agentFiles(settings, program, info.Size())...); err != nil {
		return fmt.Errorf("copy the node agent into the container: %w", err)
	}
	return nil
}

func agentFiles(settings []byte, program io.Reader, size int64) []dockerengine.File {
	return []dockerengine.File{
		{Name: nodeagent.ConfigDir + "/", Mode: 0o755},
		{Name: nodeagent.ConfigDir + "/settings.json", Mode: 0o644, Data: settings},
		{Name: nodeagent.Program, Mode: 0o755, Content: program, Size: size},
	}
}

// settingsForKind returns the agent's settings: those of our own image, except for where programs
// are and what a bootstrap waits for, which are other services there.
func settingsForKind() ([]byte, error) {
	text, err := definition.Files.ReadFile("files" + nodeagent.ConfigDir + "/settings.json")
	if err != nil {
		return nil, err
	}
	var s nodeagent.Settings
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	s.Needs = nil
	for _, command := range [][]string{s.ImportImage, s.Reset} {
		if len(command) > 0 {
			command[0] = command[0][strings.LastIndex(command[0], "/")+1:]
		}
	}
	return json.Marshal(s)
}
