// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/contract"
	sigsyaml "sigs.k8s.io/yaml"
)

var releaseChecks = []Check{
	{"release-metadata", "metadata.yaml of a release is what clusterctl reads, with a contract for each series.", []need{needsRelease}, func(r *run) {
		m := r.metadata()
		if m.APIVersion != clusterctlv1.GroupVersion.String() || m.Kind != "Metadata" {
			r.Errorf("%s is %s %s, not %s Metadata: clusterctl 1.11.0 takes nothing else", metadataFile, m.APIVersion, m.Kind, clusterctlv1.GroupVersion)
		}
		if len(m.ReleaseSeries) == 0 {
			r.Errorf("%s has no releaseSeries: clusterctl finds the contract of a version there", metadataFile)
		}
		for _, series := range m.ReleaseSeries {
			if series.Contract == "" {
				r.Errorf("%s has no contract for the series %d.%d", metadataFile, series.Major, series.Minor)
			}
		}
	}},
	{"release-contract", "infrastructure-components.yaml defines the kinds, labelled with the contract that metadata.yaml says for the newest series.", []need{needsRelease}, func(r *run) {
		// Clusterctl goes by the file, core by the labels.
		label := "cluster.x-k8s.io/" + newestContract(r.metadata().ReleaseSeries)
		components := r.components()
		for _, kind := range r.Objects.kinds() {
			gvk := kind.GroupVersionKind()
			name := contract.CalculateCRDName(gvk.Group, gvk.Kind)
			i := slices.IndexFunc(components, func(u *unstructured.Unstructured) bool {
				return u.GetKind() == crdKind.Kind && u.GetName() == name
			})
			switch {
			case i < 0:
				r.Errorf("%s does not define %s as %s", componentsFile, gvk.Kind, name)
			case components[i].GetLabels()[label] == "":
				r.Errorf("%s says contract %s, and the definition %s in %s has no label %s", metadataFile, strings.TrimPrefix(label, "cluster.x-k8s.io/"), name, componentsFile, label)
			}
		}
	}},
	{"release-components", "infrastructure-components.yaml has one Namespace at most, a Deployment with the container manager, and the label cluster.x-k8s.io/provider on everything.", []need{needsRelease}, func(r *run) {
		// What clusterctl makes of a release, and removes again.
		var namespaces []string
		manager := false
		for _, u := range r.components() {
			if label := u.GetLabels()[providerLabel]; !strings.HasPrefix(label, "infrastructure-") {
				r.Errorf("%s in %s has the label %s %q, not infrastructure-NAME", named(u), componentsFile, providerLabel, label)
			}
			if u.GetKind() == "Namespace" {
				namespaces = append(namespaces, u.GetName())
			}
			containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
			manager = manager || u.GetKind() == "Deployment" && slices.ContainsFunc(containers, func(c any) bool {
				fields, _ := c.(map[string]any)
				return fields["name"] == "manager"
			})
		}
		if len(namespaces) > 1 {
			r.Errorf("%s has the Namespaces %s: clusterctl takes one", componentsFile, strings.Join(namespaces, ", "))
		}
		if !manager {
			r.Errorf("%s has no Deployment with a container manager", componentsFile)
		}
	}},
}

// Files of a release, as clusterctl finds them.
const (
	metadataFile   = "metadata.yaml"
	componentsFile = "infrastructure-components.yaml"
)

// providerLabel is on all of a provider's components.
const providerLabel = "cluster.x-k8s.io/provider"

func (r *run) metadata() (m clusterctlv1.Metadata) {
	data, err := fs.ReadFile(r.Release, metadataFile)
	if err != nil {
		r.Fatalf("clusterctl looks for %s: %v", metadataFile, err)
	}
	if err := sigsyaml.Unmarshal(data, &m); err != nil {
		r.Fatalf("%s: %v", metadataFile, err)
	}
	return m
}

func newestContract(series []clusterctlv1.ReleaseSeries) string {
	if len(series) == 0 {
		return ""
	}
	return slices.MaxFunc(series, func(a, b clusterctlv1.ReleaseSeries) int {
		return cmp.Or(cmp.Compare(a.Major, b.Major), cmp.Compare(a.Minor, b.Minor))
	}).Contract
}

func (r *run) components() (all []*unstructured.Unstructured) {
	data, err := fs.ReadFile(r.Release, componentsFile)
	if err != nil {
		r.Fatalf("clusterctl looks for %s: %v", componentsFile, err)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		u := &unstructured.Unstructured{}
		err := decoder.Decode(&u.Object)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			r.Fatalf("%s: %v", componentsFile, err)
		}
		if len(u.Object) > 0 {
			all = append(all, u)
		}
	}
}
