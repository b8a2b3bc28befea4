// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/internal/nodes/operator/apply"
)

// pods are for bootstrap only: nobody would start them again. The other kinds of a bundle
// are those that can be applied.
var pods = corev1.SchemeGroupVersion.WithKind("Pod")

// clusterKinds have no namespace.
var clusterKinds = []string{"ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}

// newObject returns an empty object of a kind that a bundle may have.
func newObject(of metav1.TypeMeta) (client.Object, error) {
	gvk, may := of.GroupVersionKind(), append(apply.Kinds(), pods)
	if slices.Contains(may, gvk) {
		object, err := scheme.Scheme.New(gvk)
		if err != nil {
			return nil, err
		}
		return object.(client.Object), nil
	}
	var names []string
	for _, k := range may {
		names = append(names, k.Kind)
	}
	slices.Sort(names)
	return nil, fmt.Errorf("kind %s of %s is none that a bundle may have: those are %s", of.Kind, of.APIVersion, strings.Join(names, ", "))
}

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
	object, err := newObject(d.meta.TypeMeta)
	if err != nil {
		return nil, err
	}
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
