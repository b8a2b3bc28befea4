// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
)

const introduction = `cloud-controller-manager tells a cluster what its Nodes are in the cloud. Kubelets that
run with --cloud-provider=external give their Node a taint; this program finds the Node's
instance at the provider, writes providerID, addresses, zone, region and type, and takes
the taint away. It taints Nodes whose instance is stopped, and deletes those whose
instance is gone: never on an error, nor on an inventory that knows none of the Nodes.

The provider's settings are its environment variables, or lines VARIABLE=VALUE in the
file that --cloud-config names; none is a flag. By hand, against a cluster:

  LIBVIRT_URI=qemu:///system cloud-controller-manager --cloud-provider libvirt \
    --instance-tags outrigger-cluster=NAME --kubeconfig ~/.kube/config --leader-elect=false

While a cluster is bootstrapped only Nodes are initialized:

  cloud-controller-manager --cloud-provider libvirt --controllers cloud-node …

`

func (s *settings) help(w io.Writer) {
	fmt.Fprint(w, introduction)
	if built := provider.List(); len(built) > 0 {
		fmt.Fprintf(w, "Providers that are built in: %s. Others are plugins.\n", strings.Join(built, ", "))
	}
	cliflag.PrintSections(w, s.sections, 0)
	asked := s.options.KubeCloudShared.CloudProvider.Name
	if c, ok := provider.Get(asked).(config.Configurable); ok {
		fmt.Fprintf(w, "\nVariables of provider %s (its flags are other programs'):\n\n", asked)
		c.Schema().WriteHelp(w)
	}
}

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
