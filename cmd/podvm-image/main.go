// SPDX-License-Identifier: Apache-2.0

// Command podvm-image builds the image that pod VMs boot.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/guest/image"
	"github.com/outrigger/outrigger/internal/program"
)

func main() {
	err := program.UntilSignal(func(ctx context.Context) error { return rootCommand().ExecuteContext(ctx) })
	os.Exit(program.Exit("podvm-image", os.Stderr, err))
}

func rootCommand() *cobra.Command {
	root := commandline.Root(&cobra.Command{Use: "podvm-image", Short: "Build the image that pod VMs boot"})
	root.AddCommand(buildCommand(), measureCommand())
	return root
}

func buildCommand() *cobra.Command {
	var opts image.Options
	var format string
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build the pod VM image from Debian packages and this module",
		Long: `Build the pod VM image from Debian's cloud kernel, its runc, and the guest
programs of this module. Run it in a checkout of the module, on Debian amd64.
Root is not needed. Equal inputs give byte-equal files; SOURCE_DATE_EPOCH sets
the time of the files in the image.`,
		Args: commandline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.Log = func(f string, a ...any) { fmt.Fprintf(cmd.ErrOrStderr(), f+"\n", a...) }
			summary, err := image.Build(cmd.Context(), opts)
			if err != nil {
				return err
			}
			return printSummary(cmd.OutOrStdout(), format, summary)
		},
		PreRunE: func(*cobra.Command, []string) error {
			for _, f := range opts.Formats {
				if !slices.Contains(image.Formats(), f) {
					return program.Usagef("--format %q: want one of %s", f, strings.Join(image.Formats(), ", "))
				}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.Output, "output", filepath.Join("bin", "podvm"), "folder for the image")
	f.StringVar(&opts.Cache, "cache", commandline.Cache("podvm"), "folder for downloaded packages")
	f.StringSliceVar(&opts.Formats, "format", []string{image.FormatInitramfs, image.FormatQcow2, image.FormatDocker}, "what to build: "+strings.Join(image.Formats(), ", ")+" (vhd is for Azure, gcp for Google Cloud, ova for vSphere, docker for docker load, uki for a measured boot by QEMU)")
	f.StringVar(&opts.KernelPackage, "kernel-package", "", "Debian kernel package (default: what linux-image-cloud-amd64 depends on)")
	f.StringVar(&opts.KernelDeb, "kernel-deb", "", "kernel package file, instead of --kernel-package")
	f.StringVar(&opts.Binaries, "binaries", "", "folder with the guest's programs, instead of building them")
	f.StringVar(&opts.Version, "guest-version", "", "version that the guest's programs report")
	f.StringVar(&opts.Cmdline, "cmdline", image.DefaultCmdline, "kernel command line in the disk image and podvm.efi")
	f.StringVar(&opts.SignKey, "sign-key", "", "key for Secure Boot, a PEM file: signs the EFI program")
	f.StringVar(&opts.SignCert, "sign-cert", "", "certificate of --sign-key, a PEM file")
	f.BoolVar(&opts.Confidential, "confidential", false, "add what enforces policies of pods and what attests (16 MB), and take a kernel that reports SEV-SNP and TDX")
	f.StringVar(&opts.Guest, "guest", image.GuestOutrigger, "whose agent is in the image: "+image.GuestOutrigger+" or "+image.GuestKata)
	f.StringVar(&opts.GuestBinaries, "guest-binaries", "", "folder with the programs of --guest kata: kata-agent, pause_bundle and, as needed, attestation-agent, confidential-data-hub, api-server-rest, default-policy.rego, lib64")
	f.BoolVar(&opts.Debug, "debug", false, "add busybox and a shell on the console")
	commandline.Form(cmd, &format, "out", "summary on standard output", "text", "json")
	cmd.MarkFlagsMutuallyExclusive("kernel-package", "kernel-deb")
	cmd.MarkFlagsMutuallyExclusive("confidential", "binaries")
	cmd.MarkFlagsRequiredTogether("sign-key", "sign-cert")
	return cmd
}

func printSummary(w io.Writer, format string, s *image.Summary) error {
	if format == "json" {
		return program.WriteJSON(w, s)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "kernel\t%s, %d modules\n", s.KernelVersion, s.Modules)
	for _, f := range s.Files {
		fmt.Fprintf(tw, "%s\t%.1f MB\tsha256:%s\n", f.Name, float64(f.Size)/1e6, f.SHA256)
	}
	return tw.Flush()
}
