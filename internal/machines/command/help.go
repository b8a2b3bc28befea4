// SPDX-License-Identifier: Apache-2.0

package command

import (
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

// about returns what the program is for.
func about() string {
	names := provider.List()
	if len(names) == 0 {
		return introduction
	}
	return introduction + "Providers that are built in: " + strings.Join(names, ", ") + ". Others are plugins.\n"
}
