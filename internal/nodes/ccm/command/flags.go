// SPDX-License-Identifier: Apache-2.0

package command

import (
	"github.com/spf13/pflag"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"

	"github.com/outrigger/outrigger/provider/config"
)

// standing returns settings that do not depend on arguments or environment.
func standing() *settings {
	s, err := newSettings()
	if err != nil {
		panic(err) // the library's own defaults
	}
	return s
}

// Settings returns the settings that other cloud controller managers do not have.
func Settings() *config.Settings { return standing().own }

// OtherDefaults returns the flags whose default differs from that of
// k8s.io/cloud-provider, each with that default and ours.
func OtherDefaults() [][3]string {
	o, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		panic(err) // as above
	}
	ours := standing()
	var all [][3]string
	sections := o.Flags(controllerNames(), app.ControllersDisabledByDefault.List(), names.CCMControllerAliases(), nil, nil)
	for _, section := range sections.Order {
		sections.FlagSets[section].VisitAll(func(f *pflag.Flag) {
			if our := ours.flags.Lookup(f.Name); our != nil && our.DefValue != f.DefValue {
				all = append(all, [3]string{f.Name, f.DefValue, our.DefValue})
			}
		})
	}
	return all
}
