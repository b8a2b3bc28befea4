// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
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
		Use: "pull [flags] IMAGE", Short: "Bring an image of a registry to this host",
		Long: `Bring an image to this host, from which outrigger run serves it to its VMs: its registry
is not asked again. Without it the guest of each VM pulls its image itself.

Images are kept in an OCI layout, see --image-cache. Layers are shared, and have their
place when their digest was checked; those of a pull that was ended are not downloaded
again. Credentials are those of docker login, proxies those of HTTPS_PROXY.`,
		Example: "  outrigger pull docker.io/library/busybox\n  outrigger run --pull never docker.io/library/busybox -- uname -a",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.pull(cmd.Context(), args[0], platform, quiet)
		},
	}
	cmd.Flags().StringVar(&platform, "platform", "", "platform of the image, linux/ARCH (default: this machine's)")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print no progress")
	return cmd
}

func (a *App) pull(ctx context.Context, image, platform string, quiet bool) error {
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	p := a.newProgress(quiet)
	store, err := a.store(p)
	if err != nil {
		return err
	}
	img, fresh, err := store.Pull(ctx, image, platform, showPull(p))
	p.done()
	if err != nil {
		return err
	}
	status := "this host has it already"
	if fresh {
		status = "pulled"
	}
	p.say("%s: %s, %s", img.Name, img.Digest, status)
	_, err = fmt.Fprintln(a.Stdout, img.Name)
	return err
}

// isNamed reports whether a pattern is of an image's name, with or without registry and tag.
func isNamed(img registry.Stored, pattern string) bool {
	repository, _ := splitTag(img.Name)
	return slices.ContainsFunc([]string{"", "docker.io/", "docker.io/library/"}, func(prefix string) bool {
		name, _ := filepath.Match(prefix+pattern, img.Name)
		anyTag, _ := filepath.Match(prefix+pattern, repository)
		return name || anyTag
	})
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
type imageRow struct{ ID, Repository, Tag, Digest, Platform, CreatedSince, Size string }

func newImageRow(img registry.Stored) imageRow {
	created := "N/A"
	if img.Created.Unix() > 0 { // images that can be built again have the zero of Unix or of Go
		created = duration.HumanDuration(time.Since(img.Created)) + " ago"
	}
	repository, tag := splitTag(img.Name)
	id := strings.TrimPrefix(img.Digest, "sha256:")[:12]
	return imageRow{id, repository, tag, img.Digest, img.Platform, created, humanSize(img.Size)}
}

func (a *App) imagesCommand() *cobra.Command {
	var output, format string
	var quiet bool
	cmd := &cobra.Command{
		Use: "images [flags] [REPOSITORY[:TAG]]", Short: "List the images that were pulled to this host", Args: cobra.MaximumNArgs(1),
		Long: `List the images that outrigger pull has brought to this host: all, or those whose name
matches a pattern. Sizes are those of the files, which are compressed; layers that images
share count for each.

--format takes json or a template of Go with .ID, .Repository, .Tag, .Digest, .Platform,
.CreatedSince and .Size.`,
		RunE: func(_ *cobra.Command, args []string) error {
			images, err := a.listImages()
			if err != nil {
				return err
			}
			if len(args) > 0 {
				images = slices.DeleteFunc(images, func(img registry.Stored) bool { return !isNamed(img, args[0]) })
			}
			if output == "json" {
				return program.WriteJSON(a.Stdout, images)
			}
			if quiet {
				format = "{{.ID}}"
			}
			rows := []imageRow{}
			for _, img := range images {
				rows = append(rows, newImageRow(img))
			}
			return printRows(a.Stdout, format, imageRow{"IMAGE ID", "REPOSITORY", "TAG", "DIGEST", "PLATFORM", "CREATED", "SIZE"}, rows)
		},
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "only ids")
	cmd.Flags().StringVar(&format, "format", `table {{.Repository}}\t{{.Tag}}\t{{.ID}}\t{{.CreatedSince}}\t{{.Size}}`, "json, or a template; one that begins with table has a head")
	commandline.Form(cmd, &output, "output", "form of the output", "table", "json")
	return cmd
}

func (a *App) listImages() ([]registry.Stored, error) {
	store, err := a.store(a.newProgress(true))
	if err != nil {
		return nil, err
	}
	return store.List()
}

func (a *App) rmiCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "rmi [flags] IMAGE...", Short: "Remove images from this host", Args: cobra.MinimumNArgs(1),
		Long: `Remove images that outrigger pull has brought to this host, by name or by id, which is all
names of an image, and the files that no other image needs. Pods that run have their image in
their VM. One that starts just now holds its image's files open and gets them nevertheless.`,
		Example: "  outrigger rmi docker.io/library/busybox\n  outrigger rmi -f $(outrigger images -q)",
		ValidArgsFunction: func(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
			images, _ := a.listImages()
			for _, img := range images {
				names = append(names, img.Name)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, names []string) error {
			store, err := a.store(a.newProgress(false))
			if err != nil {
				return err
			}
			gone, err := store.Remove(cmd.Context(), names, force)
			for _, image := range gone {
				fmt.Fprintln(a.Stdout, "Untagged:", image)
			}
			return err
		},
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "an image that is not there is not an error")
	return cmd
}
