// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	lv "github.com/digitalocean/go-libvirt"

	"github.com/outrigger/outrigger/provider"
)

// ImportImage uploads a file into the storage pool, as a volume that
// -vol-name and a pod's image can name.
func (p *Provider) ImportImage(ctx context.Context, source provider.ImageSource, progress func(provider.ImageProgress)) (string, error) {
	if err := importable(source); err != nil {
		return "", err
	}
	file, err := os.Open(source.Location)
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("%w: %w", provider.ErrNotFound, err)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", provider.ErrInvalidArgument, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%w: %s is not a regular file", provider.ErrInvalidArgument, source.Location)
	}
	pool, err := p.poolNamed(ctx, p.cfg.Pool)
	if err != nil {
		return "", err
	}
	from := &counted{from: file, total: info.Size(), tell: progress}
	return source.Name, p.upload(ctx, pool.name, source.Name, from)
}

func importable(source provider.ImageSource) error {
	switch {
	case source.Format != provider.FormatQcow2 && source.Format != provider.FormatRaw:
		return fmt.Errorf("%w: format %q: volumes are qcow2 or raw", provider.ErrInvalidArgument, source.Format)
	case !filepath.IsAbs(source.Location):
		return fmt.Errorf("%w: location %q: want a file's absolute path", provider.ErrInvalidArgument, source.Location)
	case source.Name == "" || isOwnVolume(source.Name) || strings.ContainsAny(source.Name, "/\x00"):
		return fmt.Errorf("%w: %q cannot be an image's name here: no slash, and not %q in front, which is for instances", provider.ErrInvalidArgument, source.Name, volumePrefix)
	}
	return nil
}

// upload makes the volume and fills it; a volume that is not complete is
// removed again.
func (p *Provider) upload(ctx context.Context, pool, name string, from *counted) error {
	// The bytes of a qcow2 file are those of a raw volume until the pool has
	// looked at them.
	text, err := volumeXML(name, uint64(from.total), provider.FormatRaw, nil)
	if err != nil {
		return err
	}
	err = p.hv.createVolume(ctx, pool, text)
	if isCode(err, lv.ErrStorageVolExist) {
		return fmt.Errorf("%w: pool %s has a volume %s", provider.ErrAlreadyExists, pool, name)
	}
	if err != nil {
		return poolError(pool, err)
	}
	err = p.hv.upload(ctx, pool, name, from, from.total)
	if err == nil {
		err = whileBusy(ctx, func() error { return p.hv.refresh(ctx, pool) })
	}
	if err == nil {
		return nil
	}
	cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
	defer cancel()
	return errors.Join(poolError(pool, err), whileBusy(cleaning, func() error { return p.hv.deleteVolume(cleaning, pool, name) }))
}

// counted counts how much of a file has been read.
type counted struct {
	from        io.Reader
	done, total int64
	tell        func(provider.ImageProgress)
}

func (c *counted) Read(into []byte) (int, error) {
	n, err := c.from.Read(into)
	c.done += int64(n)
	if c.tell != nil && n > 0 {
		c.tell(provider.ImageProgress{Step: "uploading", Done: c.done, Total: c.total})
	}
	return n, err
}
