// SPDX-License-Identifier: Apache-2.0

package release

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/contract"
	"sigs.k8s.io/yaml"
)

// contracts are those that the CRDs have to name a version for.
var contracts = []string{clusterv1.GroupVersion.Group + "/v1beta1", clusterv1.GroupVersion.Group + "/v1beta2"}

// check returns what clusterctl and core would reject in components, before
// users see it.
func check(components []byte, provider string) error {
	var errs []error
	namespaces, deployments := 0, 0
	for doc := range strings.SplitSeq(string(components), "\n---\n") {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			return fmt.Errorf("components: %w", err)
		}
		if o.GetLabels()[clusterv1.ProviderNameLabel] != provider {
			errs = append(errs, fmt.Errorf("%s %s lacks the label %s=%s", o.GetKind(), o.GetName(), clusterv1.ProviderNameLabel, provider))
		}
		switch o.GetKind() {
		case "Namespace":
			namespaces++
		case "Deployment":
			deployments++
			errs = append(errs, checkDeployment(o))
		case "CustomResourceDefinition":
			errs = append(errs, checkCRD(o))
		}
	}
	if namespaces != 1 || deployments != 1 {
		errs = append(errs, fmt.Errorf("there are %d Namespaces and %d Deployments, not one of each", namespaces, deployments))
	}
	return errors.Join(errs...)
}

func checkDeployment(o unstructured.Unstructured) error {
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	for _, c := range containers {
		if m, ok := c.(map[string]any); ok && m["name"] == "manager" {
			return nil
		}
	}
	return fmt.Errorf("the Deployment %s has no container manager", o.GetName())
}

// checkCRD: core computes the name of a CRD, and finds the version that has the
// contract's shape by label.
func checkCRD(o unstructured.Unstructured) error {
	group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
	if want := contract.CalculateCRDName(group, kind); o.GetName() != want {
		return fmt.Errorf("the CRD of %s is called %s, not %s", kind, o.GetName(), want)
	}
	served := map[string]bool{}
	versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
	for _, v := range versions {
		m, _ := v.(map[string]any)
		name, _ := m["name"].(string)
		served[name], _ = m["served"].(bool)
	}
	for _, c := range contracts {
		for v := range strings.SplitSeq(o.GetLabels()[c], "_") {
			if !served[v] {
				return fmt.Errorf("label %s of CRD %s says %q, which is not a version that is served", c, o.GetName(), v)
			}
		}
	}
	return nil
}
