// SPDX-License-Identifier: Apache-2.0

package command

import (
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/outrigger/outrigger/provider"
)

const introduction = `capi-manager makes machines for Cluster API: it reconciles

  DockerCluster, DockerMachine        containers of a Docker Engine, for trying out and for tests
  OutriggerCluster, OutriggerMachine  instances of any Outrigger provider

It runs beside Cluster API's own managers in a management cluster, where clusterctl
init puts it, and takes the same flags. To run it by hand against a cluster that has
Cluster API and the resources of config/crd:

  capi-manager --kubeconfig ~/.kube/config --webhook-port 0 --diagnostics-address 0

With machines in a cloud the provider's settings come from its variables:

  AWS_REGION=eu-central-1 … capi-manager --provider aws --webhook-port 0

Failure domains are settings of their own, in a file each:

  capi-manager --provider aws --failure-domain a=zone-a.env --failure-domain b=zone-b.env

Of several providers each cluster names its own, spec.provider of the OutriggerCluster;
the others have settings of their own, in a file or in the Secret provider-NAME of the
manager's namespace:

  capi-manager --provider aws --more-providers azure=azure.env,openstack

`

// help prints what the program is for, then its flags.
func (s *settings) help(w io.Writer) {
	fmt.Fprint(w, introduction)
	if names := provider.List(); len(names) > 0 {
		fmt.Fprintf(w, "Providers that are built in: %s. Others are plugins.\n\n", strings.Join(names, ", "))
	}
	fmt.Fprint(w, "Flags:\n")
	s.flags.VisitAll(func(f *flag.Flag) {
		placeholder, usage := flag.UnquoteUsage(f)
		name := f.Name
		if placeholder != "" {
			name += " " + placeholder
		}
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" {
			usage += fmt.Sprintf(" (default %s)", f.DefValue)
		}
		fmt.Fprintf(w, "  --%s\n        %s\n", name, usage)
	})
}

// Variables returns the environment variables of the program, without the provider's
// settings, each with its meaning.
func Variables() [][2]string {
	return [][2]string{
		{"CLOUD_PROVIDER", "the same as -provider"},
		{"KUBECONFIG", "the same as -kubeconfig"},
		{"POD_NAMESPACE", "the same as -leader-elect-namespace; the Secrets of -more-providers are in it"},
		{"DOCKER_HOST", "the same as -docker-host"},
		{"DOCKER_API_VERSION", "the same as -docker-api-version"},
		{"DOCKER_TLS_VERIFY", "anything: the same as -docker-tls-verify"},
		{"DOCKER_CERT_PATH", "the same as -docker-cert-path"},
	}
}
