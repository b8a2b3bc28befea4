// SPDX-License-Identifier: Apache-2.0

//go:build integration

package openshift_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/internal/nodes/operator/openshift"
	crds "github.com/outrigger/outrigger/test/openshift"
)

type schema struct {
	Type       string            `json:"type"`
	Properties map[string]schema `json:"properties"`
	Items      *schema           `json:"items"`
}

type definition struct {
	Spec struct {
		Group    string
		Names    struct{ Kind string }
		Versions []struct {
			Name   string
			Schema struct {
				OpenAPIV3Schema schema `json:"openAPIV3Schema"`
			}
		}
	}
}

// TestFieldsAreTheClusters proves that each field of each kind is there in the
// cluster's own definition, with the same type.
func TestFieldsAreTheClusters(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := openshift.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	checked := map[string]bool{}
	for _, path := range crds.CRDs(t) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var d definition
		if err := yaml.Unmarshal(data, &d); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if d.Spec.Group == openshift.KubeControllerManagerKind.Group {
			continue
		}
		version := d.Spec.Versions[0]
		if d.Spec.Group != openshift.GroupVersion.Group || version.Name != openshift.GroupVersion.Version {
			t.Errorf("%s is %s/%s", path, d.Spec.Group, version.Name)
		}
		object, err := scheme.New(openshift.GroupVersion.WithKind(d.Spec.Names.Kind))
		if err != nil {
			t.Error(err)
			continue
		}
		checked[d.Spec.Names.Kind] = true
		compare(t, d.Spec.Names.Kind, reflect.TypeOf(object).Elem(), version.Schema.OpenAPIV3Schema)
	}
	if len(checked) != 7 {
		t.Errorf("checked %v; want 7 kinds", checked)
	}
}

var kinds = map[reflect.Kind]string{
	reflect.Struct: "object", reflect.Slice: "array", reflect.String: "string", reflect.Int32: "integer", reflect.Int64: "integer",
}

func compare(t *testing.T, path string, of reflect.Type, s schema) {
	t.Helper()
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of.String() == "v1.Time" || of.String() == "v1.ObjectMeta" || of.String() == "v1.TypeMeta" {
		return
	}
	if kinds[of.Kind()] != s.Type {
		t.Errorf("%s is %s; the cluster says %q", path, of, s.Type)
		return
	}
	if of.Kind() == reflect.Slice {
		compare(t, path+"[]", of.Elem(), *s.Items)
	}
	if of.Kind() != reflect.Struct {
		return
	}
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		if name == "" {
			continue
		}
		field, ok := s.Properties[name]
		if !ok {
			t.Errorf("%s.%s is unknown to the cluster", path, name)
			continue
		}
		compare(t, path+"."+name, of.Field(i).Type, field)
	}
}
