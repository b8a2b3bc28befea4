// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/version"
)

// Versions are those of this program and of what is installed.
type Versions struct {
	Client     string      `json:"client"`
	Components []Component `json:"components,omitempty"`
}

func (a *App) versionCommand() *cobra.Command {
	var output string
	var client bool
	cmd := &cobra.Command{
		Use: "version", Short: "Show the versions of this program and of what is installed", Args: cobra.NoArgs,
		Long: `Show the versions of this program and of what is installed, which are the tags of
the images. Versions that differ in more than their patch are warned of.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := Versions{Client: version.String()}
			if !client {
				c, _, err := a.connect()
				if err == nil {
					v.Components, _, err = a.components(cmd.Context(), c)
				}
				if err != nil {
					fmt.Fprintln(a.Stdout, Program, v.Client)
					return err
				}
			}
			if w := skew(version.Version, v.Components); w.Detail != "" {
				fmt.Fprintf(a.Stderr, "warning: %s: %s\n", w.Detail, w.Fix)
			}
			return a.print(output, v, v.print)
		},
	}
	cmd.Flags().BoolVar(&client, "client", false, "only this program's; no cluster is asked")
	commandline.Form(cmd, &output, "output", "form of the output", "text", "json")
	return cmd
}

func (v Versions) print(w io.Writer) {
	fmt.Fprintln(w, Program, v.Client)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	printComponents(table, v.Components)
	table.Flush()
}
