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

	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/machines/nodeimage"
	"github.com/outrigger/outrigger/internal/program"
)

func main() {
	err := program.UntilSignal(func(ctx context.Context) error { return rootCommand().ExecuteContext(ctx) })
	os.Exit(program.Exit("node-image", os.Stderr, err))
}

func rootCommand() *cobra.Command {
	root := commandline.Root(&cobra.Command{Use: "node-image", Short: "Build the image of machines that are containers"})
	root.AddCommand(buildCommand())
	return root
}

func buildCommand() *cobra.Command {
	var o nodeimage.Options
	var format string
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build the node image from Debian packages and Go modules",
		Long: `Build the image of machines that are containers of a Docker Engine: Debian with
containerd, runc and network plugins, kubelet and kubeadm, and the images that
kubeadm wants, as an archive for docker load. Run it in a checkout of the module,
on Debian. No registry is asked and root is not needed. SOURCE_DATE_EPOCH sets
the time of the files that are made.`,
		Args: commandline.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			if _, err := name.NewRepository(o.Repository); err != nil {
				return program.Usagef("--repository %q is not an image without a tag: %w", o.Repository, err)
			}
			if o.Kubernetes != "" && !nodeimage.ValidVersion(o.Kubernetes) {
				return program.Usagef("--kubernetes-version %q is not a version such as v1.35.8", o.Kubernetes)
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
			return printSummary(cmd.OutOrStdout(), format, summary, time.Since(began))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Output, "output", filepath.Join("bin", "node"), "folder for the image")
	f.StringVar(&o.Cache, "cache", commandline.Cache("node-image"), "folder for downloaded packages")
	f.StringVar(&o.Repository, "repository", "outrigger/node", "name of the image; the tag is the version of Kubernetes")
	f.StringVar(&o.Kubernetes, "kubernetes-version", "", "version of Kubernetes, such as v1.35.8, from Go's module proxy; without one that of images/node/kube")
	f.StringVar(&o.Version, "agent-version", "", "version that node-agent reports")
	commandline.Form(cmd, &format, "out", "summary on standard output", "text", "json")
	return cmd
}

func printSummary(w io.Writer, format string, s *nodeimage.Summary, took time.Duration) error {
	if format == "json" {
		return program.WriteJSON(w, s)
	}
	_, err := fmt.Fprintf(w, "%s: %.0f MB as %s, %.0f MB in an engine, %d packages, %d images, %.0f s\nload it: docker load -i %s\n",
		s.Image, float64(s.Size)/1e6, s.File, float64(s.Unpacked)/1e6, len(s.Packages), len(s.Images), took.Seconds(), s.File)
	return err
}
