// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"io/fs"
	"strings"
	"testing/fstest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func decode(text string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		panic(err)
	}
	return u
}

// permissions are those that core gets on the kind of another group.
func permissions() *unstructured.Unstructured {
	return decode(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: world-for-core, labels: {cluster.x-k8s.io/aggregate-to-manager: "true"}}
rules:
- {apiGroups: [` + otherGroup + `], resources: [outriggerclustertemplates], verbs: [create, delete, get, list, patch, update, watch]}
`)
}

const metadata = `
apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3
kind: Metadata
releaseSeries:
- {major: 0, minor: 9, contract: v1beta1}
- {major: 0, minor: 10, contract: v1beta2}
`

// releaseOf is a release of the definitions, and of a manager.
func releaseOf(b *broken, crds []*unstructured.Unstructured) fs.FS {
	components, text := b.release(append([]*unstructured.Unstructured{
		decode("{apiVersion: v1, kind: Namespace, metadata: {name: world-system, labels: {cluster.x-k8s.io/provider: infrastructure-world}}}"),
		decode(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: world, namespace: world-system, labels: {cluster.x-k8s.io/provider: infrastructure-world}}
spec: {template: {spec: {containers: [{name: manager}]}}}
`),
	}, crds...), metadata)
	var all strings.Builder
	for _, u := range components {
		data, err := yaml.Marshal(u.Object)
		if err != nil {
			panic(err)
		}
		all.WriteString("---\n" + string(data))
	}
	return fstest.MapFS{"metadata.yaml": {Data: []byte(text)}, "infrastructure-components.yaml": {Data: []byte(all.String())}}
}

// releases changes what a release consists of.
func releases(f func(components []*unstructured.Unstructured, metadata string) ([]*unstructured.Unstructured, string)) breakage {
	return func(b *broken) { b.release = f }
}

func saying(from, to string) breakage {
	return releases(func(all []*unstructured.Unstructured, text string) ([]*unstructured.Unstructured, string) {
		return all, strings.Replace(text, from, to, 1)
	})
}

var releaseMutants = []mutant{
	{"core may not watch", func(b *broken) {
		define := b.define
		b.define = func(u *unstructured.Unstructured) {
			define(u)
			if u.GetKind() == "ClusterRole" {
				u.Object["rules"] = []any{map[string]any{"apiGroups": []any{"*"}, "resources": []any{"*"}, "verbs": []any{"create", "delete", "get", "list", "patch", "update"}}}
			}
		}
	}, seenBy("core-permissions", "lets core watch")},
	{"metadata of no kind", saying("kind: Metadata", "kind: Release"), seenBy("release-metadata", "not clusterctl")},
	{"metadata of another contract", saying("0, minor: 10, contract: v1beta2", "0, minor: 10, contract: v1beta3"), seenBy("release-contract", "has no label cluster.x-k8s.io/v1beta3")},
	{"released without a label", releases(func(all []*unstructured.Unstructured, text string) ([]*unstructured.Unstructured, string) {
		all[1].SetLabels(nil)
		return all, text
	}), seenBy("release-components", "Deployment world")},
	{"released without a manager", releases(func(all []*unstructured.Unstructured, text string) ([]*unstructured.Unstructured, string) {
		return append(all[:1:1], all[2:]...), text
	}), seenBy("release-components", "no Deployment with a container manager")},
}
