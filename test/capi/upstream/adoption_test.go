// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"fmt"
	"maps"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/test/e2e"
	"sigs.k8s.io/cluster-api/test/framework"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("adoption of a control plane", Label("kcp-adoption"), func() {
	e2e.KCPAdoptionSpec(ctx, func() e2e.KCPAdoptionSpecInput {
		endpoint()
		return e2e.KCPAdoptionSpecInput{
			E2EConfig: config, ClusterctlConfigPath: repository, BootstrapClusterProxy: management, ArtifactFolder: artifacts,
			InfrastructureProvider: &infrastructure, Flavor: ptr.To(adoption),
		}
	})
})

var _ = Describe("adoption of a control plane's infrastructure", Label("kcp-infra-adoption"), func() {
	var keeper identityKeeper
	e2e.KCPInfraAdoptionSpec(ctx, func() e2e.KCPInfraAdoptionSpecInput {
		endpoint()
		return e2e.KCPInfraAdoptionSpecInput{
			E2EConfig: config, ClusterctlConfigPath: repository, BootstrapClusterProxy: management, ArtifactFolder: artifacts,
			InfrastructureProvider: &infrastructure, Flavor: ptr.To(byClass),
			BeforeForceDelete: keeper.keep, BeforeAdoption: keeper.await,
		}
	})
})

// identityKeeper has the API server give OutriggerMachines that are made again the
// annotations by which their instances are found. They are a part of what is restored, as
// in a backup: without them an instance is somebody else's. The specification makes the
// objects without any annotation.
type identityKeeper struct {
	machines []*unstructured.Unstructured
}

const identityPrefix = "infrastructure.outrigger.dev/"

func (k *identityKeeper) keep(ctx context.Context, proxy framework.ClusterProxy, _ *clusterv1.Cluster, objects e2e.ClusterObjects) error {
	k.machines = nil
	for _, m := range objects.ControlPlaneMachines {
		machine := objects.InfrastructureMachineByMachine[m.Name].DeepCopy()
		all := machine.GetAnnotations()
		maps.DeleteFunc(all, func(name, _ string) bool { return !strings.HasPrefix(name, identityPrefix) })
		machine.SetAnnotations(all)
		k.machines = append(k.machines, machine)
		for _, o := range restoringPolicy(machine) {
			if err := client.IgnoreAlreadyExists(proxy.GetClient().Create(ctx, o)); err != nil {
				return fmt.Errorf("make %s %s: %w", o.GetKind(), o.GetName(), err)
			}
			DeferCleanup(func() error { return client.IgnoreNotFound(proxy.GetClient().Delete(context.Background(), o)) })
		}
	}
	return nil
}

// restoringPolicy adds a machine's annotations to the next object of its name.
func restoringPolicy(machine *unstructured.Unstructured) []*unstructured.Unstructured {
	namespace, name := machine.GetNamespace(), machine.GetName()
	var pairs []string
	for annotation, value := range machine.GetAnnotations() {
		pairs = append(pairs, fmt.Sprintf("%q: %q", annotation, value))
	}
	object := func(kind string, spec map[string]any) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		o.SetAPIVersion("admissionregistration.k8s.io/v1")
		o.SetKind(kind)
		o.SetName(namespace + "." + name)
		return o
	}
	return []*unstructured.Unstructured{
		object("MutatingAdmissionPolicy", map[string]any{
			"failurePolicy": "Fail", "reinvocationPolicy": "Never",
			"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
				"apiGroups": []any{machine.GroupVersionKind().Group}, "apiVersions": []any{"*"},
				"operations": []any{"CREATE"}, "resources": []any{"outriggermachines"},
			}}},
			"matchConditions": []any{map[string]any{
				"name": "machine", "expression": fmt.Sprintf("object.metadata.namespace == %q && object.metadata.name == %q", namespace, name),
			}},
			"mutations": []any{map[string]any{"patchType": "JSONPatch", "jsonPatch": map[string]any{
				"expression": `[JSONPatch{op: "add", path: "/metadata/annotations", value: {` + strings.Join(pairs, ", ") + `}}]`,
			}}},
		}),
		object("MutatingAdmissionPolicyBinding", map[string]any{"policyName": namespace + "." + name}),
	}
}

// await returns when the API server follows the policies.
func (k *identityKeeper) await(ctx context.Context, proxy framework.ClusterProxy, _ *clusterv1.Cluster) (framework.ClusterProxy, error) {
	for _, machine := range k.machines {
		Eventually(func() (map[string]string, error) {
			tried := &unstructured.Unstructured{Object: map[string]any{"spec": machine.Object["spec"]}}
			tried.SetGroupVersionKind(machine.GroupVersionKind())
			tried.SetNamespace(machine.GetNamespace())
			tried.SetName(machine.GetName())
			err := proxy.GetClient().Create(ctx, tried, client.DryRunAll)
			if apierrors.IsAlreadyExists(err) {
				err = StopTrying("the machine was not removed").Wrap(err)
			}
			return tried.GetAnnotations(), err
		}, "1m", "200ms").Should(Equal(machine.GetAnnotations()))
	}
	return proxy, nil
}
