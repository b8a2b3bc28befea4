// SPDX-License-Identifier: Apache-2.0

// Command node-image builds the image of machines that are containers of a
// Docker Engine.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/internal/machines/nodeimage"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/program/builder"
)

func main() {
	err := program.UntilSignal(func(ctx context.Context) error { return rootCommand().ExecuteContext(ctx) })
	os.Exit(program.Exit("node-image", os.Stderr, err))
}

func rootCommand() *cobra.Command {
	return builder.Root("node-image", "Build the image of machines that are containers", buildCommand())
}

func buildCommand() *cobra.Command {
	var o nodeimage.Options
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build the node image from Debian packages and Go modules",
		Long: `Build the image of machines that are containers of a Docker Engine: Debian with
containerd, runc and network plugins, kubelet and kubeadm, and the images that
kubeadm wants, as an archive for docker load. Run it in a checkout of the module,
on Debian. No registry is asked and root is not needed. SOURCE_DATE_EPOCH sets
the time of the files that are made.`,
		PreRunE: func(*cobra.Command, []string) error {
			if _, err := name.NewRepository(o.Repository); err != nil {
				return program.Usagef("--repository %q is not an image without a tag: %w", o.Repository, err)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			began := time.Now()
			o.Log = func(f string, a ...any) { fmt.Fprintf(cmd.ErrOrStderr(), "node-image: "+f+"\n", a...) }
			summary, err := nodeimage.Build(cmd.Context(), o)
			if err != nil {
				return err
			}
			took := time.Since(began)
			return builder.Print(cmd, summary, func(w io.Writer) error { return printSummary(w, summary, took) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Output, "output", filepath.Join("bin", "node"), "folder for the image")
	f.StringVar(&o.Cache, "cache", builder.Cache("node-image"), "folder for downloaded packages")
	f.StringVar(&o.Repository, "repository", "outrigger/node", "name of the image; the tag is the version of Kubernetes")
	f.StringVar(&o.Version, "agent-version", "", "version that node-agent reports")
	return cmd
}

func printSummary(w io.Writer, s *nodeimage.Summary, took time.Duration) error {
	_, err := fmt.Fprintf(w, "%s: %.0f MB as %s, %.0f MB in an engine, %d packages, %d images, %.0f s\nload it: docker load -i %s\n",
		s.Image, float64(s.Size)/1e6, s.File, float64(s.Unpacked)/1e6, len(s.Packages), len(s.Images), took.Seconds(), s.File)
	return err
}
