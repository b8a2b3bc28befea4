// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlcluster "sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	"sigs.k8s.io/cluster-api/test/framework"
)

func has(names []string, name string) bool { return slices.Contains(names, name) }

// resilient looks at the objects of a cluster: owner references and finalizers come back
// when they are taken away, and nothing writes when nothing is to be done.
func resilient(family string, class bool) func(framework.ClusterProxy, string, string) {
	core := framework.CoreFinalizersAssertionWithLegacyClusters
	if class {
		core = framework.CoreFinalizersAssertionWithClassyClusters
	}
	return func(proxy framework.ClusterProxy, namespace, cluster string) {
		of := clusterctlcluster.FilterClusterObjectsWithNameFilter(cluster)
		owners := []map[string]func(types.NamespacedName, []metav1.OwnerReference) error{
			framework.CoreOwnerReferenceAssertion, framework.ExpOwnerReferenceAssertions, ourOwners(family, class),
			framework.KubeadmBootstrapOwnerReferenceAssertions, framework.KubeadmControlPlaneOwnerReferenceAssertions(class),
			framework.KubernetesReferenceAssertions,
		}
		By("owner references come back")
		framework.ValidateOwnerReferencesResilience(ctx, proxy, namespace, cluster, of, owners...)
		By("owner references are of the version that is stored")
		framework.ValidateOwnerReferencesOnUpdate(ctx, proxy, namespace, cluster, of, owners...)
		By("finalizers come back")
		framework.ValidateFinalizersResilience(ctx, proxy, namespace, cluster, of,
			core, framework.KubeadmControlPlaneFinalizersAssertion, framework.ExpFinalizersAssertion, ourFinalizers(family))
		stable(proxy, namespace, cluster)
	}
}

// stable looks whether anybody writes when nothing is to be done.
func stable(proxy framework.ClusterProxy, namespace, cluster string) {
	By("nothing is written")
	framework.ValidateResourceVersionStable(ctx, framework.ValidateResourceVersionStableInput{
		ClusterProxy: proxy, Namespace: namespace, OwnerGraphFilterFunction: clusterctlcluster.FilterClusterObjectsWithNameFilter(cluster),
		WaitToBecomeStable: config.GetIntervals("quick-start", "wait-resource-versions-become-stable"),
		WaitToRemainStable: config.GetIntervals("quick-start", "wait-resource-versions-remain-stable"),
	})
}

// The beginnings of the names of our kinds.
const (
	ofProviders = "Outrigger"
	ofDocker    = "Docker"
)

func ourFinalizers(family string) map[string]func(types.NamespacedName) []string {
	all := map[string]func(types.NamespacedName) []string{}
	for _, kind := range []string{family + "Cluster", family + "Machine"} {
		all[kind] = func(types.NamespacedName) []string {
			return []string{"infrastructure.outrigger.dev/" + strings.ToLower(kind)}
		}
	}
	return all
}

// ourOwners are what our kinds are owned by. A topology controls the infrastructure of its
// cluster; Cluster API's own controller is one of its owners.
func ourOwners(family string, class bool) map[string]func(types.NamespacedName, []metav1.OwnerReference) error {
	owner := func(kind string, controller bool) metav1.OwnerReference {
		o := metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: kind}
		if controller {
			o.Controller = ptr.To(true)
		}
		return o
	}
	exactly := func(either ...metav1.OwnerReference) func(types.NamespacedName, []metav1.OwnerReference) error {
		return func(_ types.NamespacedName, owners []metav1.OwnerReference) error {
			var alternatives [][]metav1.OwnerReference
			for _, one := range either {
				alternatives = append(alternatives, []metav1.OwnerReference{one})
			}
			return framework.HasOneOfExactOwners(owners, alternatives...)
		}
	}
	return map[string]func(types.NamespacedName, []metav1.OwnerReference) error{
		family + "Machine":             exactly(owner("Machine", true)),
		family + "MachineTemplate":     exactly(owner("Cluster", false), owner("ClusterClass", false)),
		family + "Cluster":             exactly(owner("Cluster", class)),
		family + "ClusterTemplate":     exactly(owner("ClusterClass", false)),
		family + "MachinePoolTemplate": exactly(owner("ClusterClass", false)),
	}
}
