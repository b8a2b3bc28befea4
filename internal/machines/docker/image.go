// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

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
