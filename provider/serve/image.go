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
	"slices"
	"strings"
	"syscall"

	"github.com/outrigger/outrigger/provider"
)

var (
	imageFormats = []string{provider.FormatQcow2, provider.FormatRaw, provider.FormatVHD, provider.FormatGCP, provider.FormatOVA}
	imageArchs   = []string{"amd64", "arm64", "s390x"}
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
	if !strings.Contains(i.Location, "://") {
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
	i.Arch = cmp.Or(i.Arch, imageArchs[0])
	switch {
	case !slices.Contains(imageFormats, i.Format):
		return fmt.Errorf("--import-format %q is none of %s", i.Format, strings.Join(imageFormats, ", "))
	case !slices.Contains(imageArchs, i.Arch):
		return fmt.Errorf("--import-arch %q is none of %s", i.Arch, strings.Join(imageArchs, ", "))
	}
	return nil
}

// importImage writes the id of the new image to standard output and what goes
// on to standard error.
func (c *command) importImage() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	p, err := c.open(ctx)
	if err != nil {
		return err
	}
	importer, ok := provider.As[provider.ImageImporter](p)
	if !ok {
		err := fmt.Errorf("%w: provider %s imports no images: its page says how to do it by hand", provider.ErrUnimplemented, c.Name)
		return errors.Join(err, p.Teardown())
	}
	id, err := importer.ImportImage(ctx, c.image, progressTo(c.Stderr))
	if err = errors.Join(err, p.Teardown()); err != nil {
		return err
	}
	fmt.Fprintln(c.Stdout, id)
	return nil
}

// progressTo writes a line for each step and for each tenth of one.
func progressTo(out io.Writer) func(provider.ImageProgress) {
	var last string
	return func(now provider.ImageProgress) {
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
