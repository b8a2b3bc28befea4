// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/outrigger/outrigger/provider"
)

// validateImage completes what --import and the flags with it say.
func (c *command) validateImage(asked bool) error {
	i := &c.image
	switch {
	case !asked && (i.Name != "" || i.Format != "" || i.Arch != ""):
		return errors.New("--import-name, --import-format and --import-arch go with --import")
	case !asked:
		return nil
	case i.Location == "":
		return errors.New("--import is empty: give it a file or a URL")
	case i.Name == "":
		return errors.New("--import needs --import-name")
	}
	if !i.IsURL() {
		path, err := filepath.Abs(i.Location)
		if err != nil {
			return err
		}
		i.Location = path
	}
	if i.Format == "" {
		var err error
		if i.Format, err = provider.ImageFormat(i.Location); err != nil {
			return fmt.Errorf("%w; say it with --import-format", err)
		}
	}
	i.Arch = cmp.Or(i.Arch, "amd64")
	if err := i.Check(); err != nil {
		return fmt.Errorf("--import: %w", err)
	}
	return nil
}

// importer opens the provider. One that can do with fewer settings than those
// of instances says so (package config).
func (c *command) importer(ctx context.Context) (provider.Provider, error) {
	m, ok := c.Cloud.(interface {
		NewImporter(context.Context) (provider.Provider, error)
	})
	if !ok {
		return c.open(ctx)
	}
	defer c.endWith(ctx)()
	return m.NewImporter(ctx)
}

// importImage writes the id of the new image to standard output and what goes
// on to standard error.
func (c *command) importImage() error {
	if err := c.image.CheckFile(); err != nil {
		return fmt.Errorf("--import: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), endings()...)
	defer stop()
	none := fmt.Errorf("%w: provider %s imports no images; how to bring one in is on its page, docs/providers/%[2]s.md", provider.ErrUnimplemented, c.Name)
	p, err := c.importer(ctx)
	if errors.Is(err, provider.ErrUnimplemented) {
		return none
	}
	if err != nil {
		return err
	}
	importer, ok := provider.As[provider.ImageImporter](p)
	if !ok {
		return errors.Join(none, provider.Teardown(ctx, p))
	}
	id, err := importer.ImportImage(ctx, c.image, progressTo(c.Stderr))
	if err = errors.Join(err, provider.Teardown(ctx, p)); err != nil {
		return err
	}
	fmt.Fprintln(c.Stdout, id)
	return nil
}

// endings returns the signals after which an import removes what it has made. They
// include that of a closed terminal, unless nohup ignores it.
func endings() []os.Signal {
	list := []os.Signal{syscall.SIGTERM, os.Interrupt}
	if !signal.Ignored(syscall.SIGHUP) {
		list = append(list, syscall.SIGHUP)
	}
	return list
}

// progressTo writes a line for each step and for each tenth of one. An upload
// that was refused may still be read for a moment by who sends it.
func progressTo(out io.Writer) func(provider.ImageProgress) {
	var mu sync.Mutex
	var last string
	return func(now provider.ImageProgress) {
		mu.Lock()
		defer mu.Unlock()
		line := now.Step
		if now.Total > 0 {
			line = fmt.Sprintf("%s: %d %%", now.Step, now.Done*10/now.Total*10)
		}
		if line != last {
			last = line
			fmt.Fprintln(out, line)
		}
	}
}
