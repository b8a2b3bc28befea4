// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
	"github.com/outrigger/outrigger/internal/nodes/operator/bundles"
	"github.com/outrigger/outrigger/internal/program"
)

func bundleCommand() *cobra.Command {
	cmd := commandline.Group(&cobra.Command{
		Use: "bundle", Short: "List, show and verify bundles",
		Long: `A bundle is what a cloud's controller manager is made of: a folder with bundle.yaml
and manifests. The built-in ones are read and verified as your own are.`,
	})
	cmd.AddCommand(listCommand(), showCommand(), verifyCommand())
	return cmd
}

type listed struct {
	Name      string          `json:"name"`
	Platform  string          `json:"platform"`
	CloudName string          `json:"cloudName,omitempty"`
	Provider  string          `json:"provider"`
	Flavors   []bundle.Flavor `json:"flavors"`
	Images    []string        `json:"images"`
	Secrets   []string        `json:"secrets"`
	Bootstrap bool            `json:"bootstrap"`
	Files     []string        `json:"files"`
}

func describe(b *bundle.Bundle) listed {
	return listed{
		Name: b.Name, Platform: b.Platform, CloudName: b.CloudName, Provider: b.Provider, Flavors: b.Flavors,
		Images: b.ImageKeys(), Secrets: append([]string{}, b.SecretNames()...), Bootstrap: b.HasBootstrap(), Files: b.Files(),
	}
}

func listCommand() *cobra.Command {
	var output string
	var folders []string
	cmd := &cobra.Command{
		Use: "list", Short: "List the bundles that are built in", Args: commandline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			set, err := knownBundles(folders)
			if err != nil {
				return err
			}
			all := []listed{}
			for _, b := range set {
				all = append(all, describe(b))
			}
			if output == "json" {
				return program.WriteJSON(cmd.OutOrStdout(), all)
			}
			return writeTable(cmd.OutOrStdout(), all)
		},
	}
	commandline.Form(cmd, &output, "output", "form of the output", "table", "json")
	bundleDirFlag(cmd.Flags(), &folders)
	return cmd
}

func writeTable(out io.Writer, all []listed) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NAME\tPLATFORM\tPROVIDER\tCLUSTERS\tBOOTSTRAP\tIMAGES")
	for _, b := range all {
		var flavors []string
		for _, f := range b.Flavors {
			flavors = append(flavors, string(f))
		}
		bootstrap := "-"
		if b.Bootstrap {
			bootstrap = "static pods"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", b.Name, b.Platform, b.Provider, strings.Join(flavors, ","), bootstrap, strings.Join(b.Images, ","))
	}
	return w.Flush()
}

func showCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "show BUNDLE|BASE", Short: "Show the files of a built-in bundle, or a base that manifests add to",
		Long: `Show the files of a built-in bundle as they are, each after a line with its name: a
bundle of your own begins well as a copy of one. A base is the manifest that an
annotation ccm.outrigger.dev/base names; there are
` + strings.Join(bundle.Bases(), ", ") + `.`,
		Example: `  ccm-operator bundle show openstack
  ccm-operator bundle show cloud-controller-manager`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return program.Usagef("name one bundle or base; ccm-operator bundle list has the bundles")
			}
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, part string) ([]string, cobra.ShellCompDirective) {
			names, directive := bundleNames(cmd, args, part)
			return append(names, bundle.Bases()...), directive
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := show(args[0])
			if err != nil {
				return program.UsageError(err)
			}
			if output == "json" {
				return program.WriteJSON(cmd.OutOrStdout(), files)
			}
			for _, f := range files {
				fmt.Fprintf(cmd.OutOrStdout(), "# %s\n%s\n", f.Name, strings.TrimSpace(f.Text)+"\n")
			}
			return nil
		},
	}
	commandline.Form(cmd, &output, "output", "form of the output", "text", "json")
	return cmd
}

type shown struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

func show(name string) ([]shown, error) {
	if slices.Contains(bundle.Bases(), name) {
		text, err := bundle.Base(name)
		return []shown{{name + ".yaml.tmpl", text}}, err
	}
	set, err := bundles.Set()
	if err != nil {
		return nil, err
	}
	b, err := set.Named(name)
	if err != nil {
		return nil, fmt.Errorf("%w; bases are %s", err, strings.Join(bundle.Bases(), ", "))
	}
	var files []shown
	for _, file := range append([]string{bundle.MetadataFile}, b.Files()...) {
		file = path.Join(b.Name, file)
		text, err := fs.ReadFile(bundles.Folders(), file)
		if err != nil {
			return nil, err
		}
		files = append(files, shown{file, string(text)})
	}
	return files, nil
}

func bundleDirFlag(f *pflag.FlagSet, into *[]string) {
	f.StringArrayVar(into, "bundle-dir", nil, "`folder` of a bundle that is used in place of the built-in one of the same platform; may be given several times")
}

// knownBundles returns the built-in bundles; those in the folders replace them.
func knownBundles(folders []string) (bundle.Set, error) {
	set, err := bundles.Set()
	if err != nil {
		return nil, err
	}
	for _, folder := range folders {
		b, err := loadFolder(folder)
		if err != nil {
			return nil, fmt.Errorf("--bundle-dir: %w", err)
		}
		set = set.With(b)
	}
	return set, nil
}

// loadFolder reads a folder of this machine as a bundle of its name.
func loadFolder(folder string) (*bundle.Bundle, error) {
	path, err := filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s: not a folder", folder)
	}
	return bundle.Load(filepath.Base(path), os.DirFS(path))
}

func bundleNames(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	set, err := bundles.Set()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return set.Names(), cobra.ShellCompDirectiveNoFileComp
}
