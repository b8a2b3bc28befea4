// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
	"github.com/outrigger/outrigger/internal/nodes/operator/bundles"
)

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
