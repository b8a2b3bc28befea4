// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// kind is what has to be known of a kind to apply it.
type kind struct {
	// pods: it has a template of pods, which can refer to ConfigMaps and Secrets.
	pods bool
	// immutable is a field whose change asks for another object.
	immutable []string
	// allocated are fields that the API server or a controller fills where the
	// bundle does not.
	allocated [][]string
	// createOnly: its content belongs to others once it exists.
	createOnly bool
}

// kinds are those that a bundle may have.
var kinds = map[schema.GroupKind]kind{
	{Group: "apps", Kind: "Deployment"}: {pods: true, immutable: []string{"spec", "selector"}},
	{Group: "apps", Kind: "DaemonSet"}:  {pods: true, immutable: []string{"spec", "selector"}},
	{Kind: "ConfigMap"}:                 {},
	{Kind: "Service"}: {allocated: [][]string{
		{"spec", "clusterIP"}, {"spec", "clusterIPs"}, {"spec", "ipFamilies"}, {"spec", "ipFamilyPolicy"},
		{"spec", "healthCheckNodePort"},
	}},
	// Controllers of tokens and of image pull secrets write into accounts.
	{Kind: "ServiceAccount"}:                                                          {createOnly: true},
	{Group: "policy", Kind: "PodDisruptionBudget"}:                                    {},
	{Group: "rbac.authorization.k8s.io", Kind: "Role"}:                                {},
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}:                         {},
	{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}:                         {immutable: []string{"roleRef"}},
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"}:                  {immutable: []string{"roleRef"}},
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicy"}:        {},
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicyBinding"}: {},
}

// toUnstructured returns a copy of an object in the form that all kinds share.
func toUnstructured(o client.Object, scheme *runtime.Scheme) (*unstructured.Unstructured, kind, error) {
	gvk, err := apiutil.GVKForObject(o, scheme)
	if err != nil {
		return nil, kind{}, fmt.Errorf("unhandled type %T: %w", o, err)
	}
	k, known := kinds[gvk.GroupKind()]
	if _, untyped := o.(*unstructured.Unstructured); untyped && !known {
		return nil, kind{}, fmt.Errorf("unhandled type %T (%s)", o, gvk)
	} else if !known {
		return nil, kind{}, fmt.Errorf("unhandled type %T", o)
	}
	if u, ok := o.(*unstructured.Unstructured); ok {
		o = u.DeepCopy() // the converter returns the same map
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, kind{}, fmt.Errorf("%T %s: %w", o, o.GetName(), err)
	}
	u := &unstructured.Unstructured{Object: fields}
	u.SetGroupVersionKind(gvk)
	delete(u.Object, "status")
	return u, k, nil
}

// content returns the fields of an object that are replaced as a whole.
func content(o *unstructured.Unstructured) map[string]any {
	c := maps.Clone(o.Object)
	for _, other := range []string{"apiVersion", "kind", "metadata", "status"} {
		delete(c, other)
	}
	return c
}

// wantedHash returns the hash of what a bundle wants: of spec, or of the whole content
// if there is more than spec. For Deployments and DaemonSets it is the hash of spec
// that OpenShift's own operator computes, with the fields in the order of the Go type:
// that operator writes nothing while the annotation has this value.
func wantedHash(o *unstructured.Unstructured) string {
	c := content(o)
	var deployment appsv1.Deployment
	var daemons appsv1.DaemonSet
	convert := runtime.DefaultUnstructuredConverter.FromUnstructured
	switch spec, has := c["spec"]; {
	case o.GetKind() == "Deployment" && convert(c, &deployment) == nil: // else the API server will say what is wrong
		return sum(deployment.Spec)
	case o.GetKind() == "DaemonSet" && convert(c, &daemons) == nil:
		return sum(daemons.Spec)
	case has && len(c) == 1:
		return sum(spec)
	}
	return sum(c)
}

// made returns the hash of the object as the API server stores it, without the fields
// that others fill.
func (k kind) made(persisted, desired *unstructured.Unstructured) string {
	c := runtime.DeepCopyJSON(content(persisted))
	for _, path := range k.filled(desired) {
		unstructured.RemoveNestedField(c, path...)
	}
	ports, _, _ := unstructured.NestedSlice(c, "spec", "ports")
	for _, p := range ports {
		if port, is := p.(map[string]any); is {
			delete(port, "nodePort")
		}
	}
	if ports != nil {
		unstructured.SetNestedSlice(c, ports, "spec", "ports")
	}
	return sum(c)
}

// filled returns the fields that others fill because the bundle does not.
func (k kind) filled(desired *unstructured.Unstructured) (paths [][]string) {
	for _, path := range k.allocated {
		if _, has, _ := unstructured.NestedFieldNoCopy(desired.Object, path...); !has {
			paths = append(paths, path)
		}
	}
	if _, aggregated := desired.Object["aggregationRule"]; aggregated {
		paths = append(paths, []string{"rules"})
	}
	return paths
}

// replaced reports whether the change of a field asks for another object.
func (k kind) replaced(existing, desired *unstructured.Unstructured) bool {
	if k.immutable == nil {
		return false
	}
	was, _, _ := unstructured.NestedFieldNoCopy(existing.Object, k.immutable...)
	wants, _, _ := unstructured.NestedFieldNoCopy(desired.Object, k.immutable...)
	return !reflect.DeepEqual(was, wants)
}

// sum returns the hexadecimal SHA-256 of a value's JSON, in which keys of maps are
// sorted.
func sum(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // it came from JSON
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// Kinds returns all kinds that can be applied, with their versions.
func Kinds() []schema.GroupVersionKind {
	var all []schema.GroupVersionKind
	for gk := range kinds {
		all = append(all, gk.WithVersion("v1"))
	}
	slices.SortFunc(all, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// Sum changes with the objects, and with what their pods read.
func (a *Applier) Sum(ctx context.Context, objects []client.Object) (string, error) {
	desired, err := a.prepare(objects)
	if err != nil {
		return "", err
	}
	all := make([]any, len(desired))
	for i, d := range desired {
		if d.kind.pods {
			if _, err := a.addConfigHash(ctx, d.object); err != nil {
				return "", err
			}
		}
		all[i] = d.object.Object
	}
	return sum(all), nil
}

// Encode writes objects down for [Decode].
func (a *Applier) Encode(objects []client.Object) ([]byte, error) {
	all := make([]map[string]any, len(objects))
	for i, o := range objects {
		u, _, err := toUnstructured(o, a.Client.Scheme())
		if err != nil {
			return nil, err
		}
		all[i] = u.Object
	}
	return json.Marshal(all)
}

// Decode returns what [Applier.Encode] has written.
func Decode(text []byte) ([]client.Object, error) {
	var all []*unstructured.Unstructured
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	objects := make([]client.Object, len(all))
	for i, u := range all {
		objects[i] = u
	}
	return objects, nil
}
