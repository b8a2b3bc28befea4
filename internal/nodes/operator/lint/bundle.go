// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"reflect"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
)

// Bundle renders a bundle in every way that there is, and returns which rules it
// breaks. An error is one of rendering: then there is nothing to look at.
func Bundle(b *bundle.Bundle) ([]Finding, error) {
	var findings []Finding
	for _, flavor := range b.Flavors {
		for _, single := range []bool{false, true} {
			more, err := rendered(b, Context{Platform: b.Platform, Namespace: namespace, Flavor: flavor, SingleReplica: single})
			if err != nil {
				return nil, err
			}
			findings = append(findings, more...)
		}
	}
	return findings, nil
}

// namespace is not the default one, so that a bundle that insists on that shows.
const namespace = "cloud-controllers"

// values returns the fewest values that a cluster has, or all of them, so that each
// conditional part of a template is rendered.
func values(b *bundle.Bundle, c Context, all bool) bundle.Values {
	v := bundle.Values{Flavor: c.Flavor, SingleReplica: c.SingleReplica, Namespace: c.Namespace, Images: bundle.Images{}}
	for _, key := range b.ImageKeys() {
		v.Images[key] = "registry.example/" + key + ":verify"
	}
	if all || c.Flavor == bundle.OpenShift {
		v.InfrastructureName = "cluster-x7k2p" // an installer of OpenShift always makes one
	}
	if !all {
		return v
	}
	v.Proxy = &bundle.Proxy{HTTP: "http://proxy.example:3128", HTTPS: "http://proxy.example:3128", None: ".cluster.local"}
	v.FeatureGates, v.AdditionalLabels, v.PublicEndpoint = "A=true", "key=value", true
	v.TLSMinVersion, v.TLSCipherSuites = "VersionTLS12", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
	return v
}

// rendered returns what is wrong with all values, and what is wrong only with
// the fewest.
func rendered(b *bundle.Bundle, c Context) ([]Finding, error) {
	var findings []Finding
	for _, all := range []bool{true, false} {
		first, err := b.Render(values(b, c, all))
		if err != nil {
			return nil, err
		}
		second, err := b.Render(values(b, c, all))
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(operands(first.Resources, c), func(o operand) bool {
			return o.container(bundle.Manager) != nil || o.container(bundle.NodeManager) != nil
		}) {
			return nil, fmt.Errorf("bundle %s: no Deployment or DaemonSet for %s has a container %s or %s: there is nothing to look at", b.Name, c.Flavor, bundle.Manager, bundle.NodeManager)
		}
		for _, f := range append(Check(first.Resources, c), independent(first, second, c)...) {
			if !slices.ContainsFunc(findings, func(o Finding) bool {
				return o.Rule.Number == f.Rule.Number && o.Object == f.Object && o.Problem == f.Problem
			}) {
				findings = append(findings, f)
			}
		}
	}
	return findings, nil
}

// independent checks rule 15. It changes the first rendering.
func independent(first, second bundle.Rendered, c Context) (findings []Finding) {
	add := func(o client.Object, problem string) {
		findings = append(findings, Finding{Rule: Rules()[14], Object: name(o), Problem: problem, Flavor: c.Flavor, SingleReplica: c.SingleReplica})
	}
	before, again := slices.Concat(first.Resources, first.Bootstrap), slices.Concat(second.Resources, second.Bootstrap)
	if len(before) != len(again) {
		add(before[0], "a second rendering has another number of objects")
		return findings
	}
	for i, o := range before {
		if !reflect.DeepEqual(o, again[i]) {
			add(o, "a second rendering differs")
		}
		o.SetLabels(map[string]string{"changed": "true"})
	}
	for _, o := range again {
		if o.GetLabels()["changed"] != "" {
			add(o, "a change of one rendering changes another")
		}
	}
	return findings
}

func name(o client.Object) string {
	return o.GetObjectKind().GroupVersionKind().Kind + " " + o.GetName()
}
