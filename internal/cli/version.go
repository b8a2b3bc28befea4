// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/internal/cli/demoimage"
	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/version"
)

func (a *App) versionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "version", Short: "Tell the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if output == "json" {
				return program.WriteJSON(a.Stdout, map[string]string{
					"version": version.Version, "commit": version.Commit, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
				})
			}
			fmt.Fprintln(a.Stdout, "outrigger "+version.String())
			return nil
		},
	}
	commandline.Form(cmd, &output, "output", "form of the output", "text", "json")
	return cmd
}

func (a *App) demoImageCommand() *cobra.Command {
	var output, busybox string
	cmd := &cobra.Command{
		Use: "demo-image", Hidden: true, Args: cobra.NoArgs,
		Short: "Build the demo's container image from busybox-static",
		RunE: func(*cobra.Command, []string) error {
			if output == "" {
				return fmt.Errorf("--output is missing: the folder for the OCI layout")
			}
			return demoimage.Build(output, demoimage.Options{Busybox: busybox})
		},
	}
	cmd.Flags().StringVar(&output, "output", "", "folder for the OCI layout")
	cmd.Flags().StringVar(&busybox, "busybox", "", "static busybox (default /bin/busybox)")
	return cmd
}
