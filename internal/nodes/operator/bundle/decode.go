// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// kinds are those that a bundle may have. Pods are for bootstrap only: nobody
// would start them again.
var kinds = map[metav1.TypeMeta]reflect.Type{
	{APIVersion: "v1", Kind: "Pod"}:                                                           reflect.TypeFor[corev1.Pod](),
	{APIVersion: "v1", Kind: "ConfigMap"}:                                                     reflect.TypeFor[corev1.ConfigMap](),
	{APIVersion: "v1", Kind: "Service"}:                                                       reflect.TypeFor[corev1.Service](),
	{APIVersion: "v1", Kind: "ServiceAccount"}:                                                reflect.TypeFor[corev1.ServiceAccount](),
	{APIVersion: "apps/v1", Kind: "Deployment"}:                                               reflect.TypeFor[appsv1.Deployment](),
	{APIVersion: "apps/v1", Kind: "DaemonSet"}:                                                reflect.TypeFor[appsv1.DaemonSet](),
	{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"}:                                    reflect.TypeFor[policyv1.PodDisruptionBudget](),
	{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "Role"}:                                reflect.TypeFor[rbacv1.Role](),
	{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "RoleBinding"}:                         reflect.TypeFor[rbacv1.RoleBinding](),
	{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"}:                         reflect.TypeFor[rbacv1.ClusterRole](),
	{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRoleBinding"}:                  reflect.TypeFor[rbacv1.ClusterRoleBinding](),
	{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicy"}:        reflect.TypeFor[admissionv1.ValidatingAdmissionPolicy](),
	{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicyBinding"}: reflect.TypeFor[admissionv1.ValidatingAdmissionPolicyBinding](),
}

// clusterKinds have no namespace.
var clusterKinds = []string{"ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}

// kindNames returns the kinds that a bundle may have, sorted.
func kindNames() []string {
	var names []string
	for k := range kinds {
		names = append(names, k.Kind)
	}
	slices.Sort(names)
	return names
}

// document is one YAML document.
type document struct {
	json []byte
	meta struct {
		metav1.TypeMeta
		Metadata struct {
			Name        string            `json:"name"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
}

// parseDocument reads what a document, as JSON, is. Its other fields are not
// looked at.
func parseDocument(raw []byte) (document, error) {
	d := document{json: raw}
	if err := json.Unmarshal(raw, &d.meta); err != nil {
		return d, fmt.Errorf("not a manifest: %w", err)
	}
	if d.meta.Kind == "" || d.meta.APIVersion == "" {
		return d, errors.New("not a manifest: apiVersion and kind are missing")
	}
	return d, nil
}

func (d document) String() string { return d.meta.Kind + " " + d.meta.Metadata.Name }

// decode returns the document's object. Unknown fields are an error.
func (d document) decode() (client.Object, error) {
	of, known := kinds[d.meta.TypeMeta]
	if !known {
		return nil, fmt.Errorf("kind %s of %s is none that a bundle may have: those are %s", d.meta.Kind, d.meta.APIVersion, strings.Join(kindNames(), ", "))
	}
	object := reflect.New(of).Interface().(client.Object)
	if err := decodeStrict(d.json, object); err != nil {
		return nil, fmt.Errorf("%s: %w", d, err)
	}
	if object.GetName() == "" {
		return nil, fmt.Errorf("%s: metadata.name: missing", d.meta.Kind)
	}
	annotations := object.GetAnnotations()
	if delete(annotations, BaseAnnotation); len(annotations) == 0 {
		object.SetAnnotations(nil)
	}
	return object, nil
}

// decodeStrict refuses fields that do not exist. Unlike encoding/json, and like the
// API server, it takes envfrom for one of them.
func decodeStrict(raw []byte, into any) error {
	unknown, err := kjson.UnmarshalStrict(raw, into, kjson.DisallowUnknownFields)
	if err != nil {
		return err
	}
	for i := range unknown {
		unknown[i] = fmt.Errorf("json: %w", unknown[i])
	}
	return errors.Join(unknown...)
}

// documents returns the manifests of a file, without empty ones.
func documents(text string) ([]document, error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	var all []document
	for n := 1; ; n++ {
		part, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		raw, err := yaml.YAMLToJSONStrict(part) // refuses keys that are there twice
		if err == nil && string(raw) == "null" {
			continue // comments only
		}
		var doc document
		if err == nil {
			doc, err = parseDocument(raw)
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
		all = append(all, doc)
	}
}
