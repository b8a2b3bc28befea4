// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/outrigger/outrigger/internal/cli/registry"
	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/program"
)

// imageCache returns the folder of the images of this host; empty if there is none. Root has one that does not depend
// on the environment, which sudo changes.
func (a *App) imageCache() (string, error) {
	switch _, err := os.UserCacheDir(); {
	case a.images != "":
		return filepath.Abs(a.images)
	case os.Geteuid() == 0:
		return "/var/cache/outrigger/images", nil
	case err != nil:
		return "", nil
	}
	return commandline.Cache("images"), nil
}

func (a *App) store(p progress) (registry.Store, error) {
	dir, err := a.imageCache()
	return registry.Store{Dir: dir, Wait: sayWaiting(p)}, err
}

func (a *App) pullCommand() *cobra.Command {
	var platform string
	var quiet bool
	cmd := &cobra.Command{
		Use: "pull [flags] IMAGE...", Short: "Bring images of registries to this host",
		Long: `Bring images to this host, from which outrigger run serves them to its VMs: their
registry is not asked again. Without it the guest of each VM pulls its image itself.

Images are kept in an OCI layout, see --image-cache. Layers are shared, and have their
place when their digest was checked; those of a pull that was ended are not downloaded
again. Credentials are those of docker login, proxies those of HTTPS_PROXY.`,
		Example: "  outrigger pull docker.io/library/busybox\n  outrigger run --pull never docker.io/library/busybox -- uname -a",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, images []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
			defer stop()
			for _, image := range images {
				if err := a.pull(ctx, image, platform, quiet); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&platform, "platform", "", "platform of the image, linux/ARCH (default: this machine's)")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print no progress")
	return cmd
}

func (a *App) pull(ctx context.Context, image, platform string, quiet bool) error {
	p := a.newProgress(quiet)
	defer p.done()
	store, err := a.store(p)
	if err != nil {
		return err
	}
	img, fresh, err := store.Pull(ctx, image, platform, showLayers(p))
	if err != nil {
		return err
	}
	p.done()
	status := "this host has it already"
	if fresh {
		status = "pulled, " + humanSize(img.Size)
	}
	p.say("%s: %s, %s", img.Name, img.Digest, status)
	_, err = fmt.Fprintln(a.Stdout, img.Name)
	return err
}

// imageMatchers say whether an image has the value of a filter of `images`.
var imageMatchers = map[string]func(img registry.Stored, value string) bool{
	"reference": isNamed,
	"label":     func(img registry.Stored, v string) bool { return hasLabel(img.Labels, v) },
}

// isNamed reports whether a pattern is of an image's name, with or without registry and tag.
func isNamed(img registry.Stored, pattern string) bool {
	repository, _ := splitTag(img.Name)
	for _, name := range []string{img.Name, repository} {
		for _, prefix := range []string{"", "docker.io/", "docker.io/library/"} {
			short, ok := strings.CutPrefix(name, prefix)
			if matched, _ := filepath.Match(pattern, short); ok && matched {
				return true
			}
		}
	}
	return false
}

// splitTag parts a name from its tag; one by digest has none.
func splitTag(name string) (repository, tag string) {
	name, _, digest := strings.Cut(name, "@")
	if at := strings.LastIndex(name, ":"); at >= 0 && !digest {
		return name[:at], name[at+1:]
	}
	return name, "<none>"
}

// imageRow is an image as templates for docker name its fields.
type imageRow struct{ ID, Repository, Tag, Digest, Platform, CreatedSince, CreatedAt, Size string }

var imageHead = imageRow{
	ID: "IMAGE ID", Repository: "REPOSITORY", Tag: "TAG", Digest: "DIGEST", Platform: "PLATFORM", CreatedSince: "CREATED", CreatedAt: "CREATED AT", Size: "SIZE",
}

func newImageRow(img registry.Stored, whole bool) imageRow {
	r := imageRow{ID: img.Digest, Digest: img.Digest, Platform: img.Platform, Size: humanSize(img.Size), CreatedSince: "N/A", CreatedAt: "N/A"}
	r.Repository, r.Tag = splitTag(img.Name)
	if !whole {
		r.ID = strings.TrimPrefix(img.Digest, "sha256:")[:12]
	}
	if img.Created.Unix() > 0 { // images that can be built again have the zero of Unix or of Go
		r.CreatedSince, r.CreatedAt = duration.HumanDuration(time.Since(img.Created))+" ago", img.Created.Local().Format("2006-01-02 15:04:05 -0700 MST")
	}
	return r
}

func (a *App) imagesCommand() *cobra.Command {
	var output, format string
	var quiet, digests, whole bool
	var filters []string
	cmd := &cobra.Command{
		Use: "images [flags] [REPOSITORY[:TAG]]", Short: "List the images that were pulled to this host", Args: cobra.MaximumNArgs(1),
		Long: `List the images that outrigger pull has brought to this host. Sizes are those of the files,
which are compressed; layers that images share count for each.

--filter takes reference=PATTERN and label=KEY[=VALUE]. --format takes json or a template of
Go with .ID, .Repository, .Tag, .Digest, .Platform, .CreatedSince, .CreatedAt and .Size.`,
		RunE: func(_ *cobra.Command, args []string) error {
			for _, arg := range args {
				filters = append(filters, "reference="+arg)
			}
			keep, _, err := parseFilters(filters, imageMatchers)
			if err != nil {
				return err
			}
			store, err := a.store(silent{})
			if err != nil {
				return err
			}
			images, err := store.List()
			if err != nil {
				return err
			}
			images = slices.DeleteFunc(images, func(img registry.Stored) bool { return !keep(img) })
			rows := []imageRow{}
			for _, img := range images {
				rows = append(rows, newImageRow(img, whole))
			}
			switch {
			case quiet:
				format = "{{.ID}}"
			case format == "" && output == "json":
				return program.WriteJSON(a.Stdout, images)
			case format == "" && digests:
				format = `table {{.Repository}}\t{{.Tag}}\t{{.Digest}}\t{{.ID}}\t{{.CreatedSince}}\t{{.Size}}`
			case format == "":
				format = `table {{.Repository}}\t{{.Tag}}\t{{.ID}}\t{{.CreatedSince}}\t{{.Size}}`
			}
			return printRows(a.Stdout, format, imageHead, rows)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&quiet, "quiet", "q", false, "only ids")
	flags.BoolVar(&digests, "digests", false, "digests as well")
	flags.BoolVar(&whole, "no-trunc", false, "whole ids")
	flags.StringArrayVarP(&filters, "filter", "f", nil, "KEY=VALUE: only such images")
	flags.StringVar(&format, "format", "", "json, or a template; one that begins with table has a head")
	commandline.Form(cmd, &output, "output", "form of the output", "table", "json")
	return cmd
}

func (a *App) rmiCommand() *cobra.Command {
	var force, all bool
	cmd := &cobra.Command{
		Use: "rmi [flags] IMAGE... | --all", Short: "Remove images from this host",
		Long: `Remove images that outrigger pull has brought to this host, by name or by the beginning of
their id, and the files that no other image needs. Pods that run have their image in their
VM. One that starts just now holds its image's files open and gets them nevertheless.`,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			names, _ := a.imageNames()
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, names []string) (err error) {
			if (len(names) == 0) == !all {
				return errors.New("rmi needs names of images, or --all")
			}
			if all {
				if names, err = a.imageNames(); err != nil || len(names) == 0 {
					return err
				}
			}
			store, err := a.store(a.newProgress(false))
			if err != nil {
				return err
			}
			gone, err := store.Remove(cmd.Context(), names, force || all)
			for _, image := range gone {
				fmt.Fprintln(a.Stdout, "Untagged:", image)
			}
			return err
		},
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "all names of an id; an image that is not there is not an error")
	cmd.Flags().BoolVar(&all, "all", false, "all images")
	return cmd
}

func (a *App) imageNames() (names []string, err error) {
	store, err := a.store(silent{})
	if err != nil {
		return nil, err
	}
	images, err := store.List()
	for _, img := range images {
		names = append(names, img.Name)
	}
	return names, err
}
