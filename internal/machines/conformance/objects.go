// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Objects are a provider's, as a user would write them. In their strings
// ${NAMESPACE}, ${CLUSTER_NAME} and ${NAME} stand for what the kit chooses, and
// of their metadata only labels and annotations are taken.
type Objects struct {
	// Cluster and Machine are the infrastructure of a Cluster and a Machine.
	Cluster, Machine *unstructured.Unstructured
	// ClusterTemplate and MachineTemplate are templates of them.
	ClusterTemplate, MachineTemplate *unstructured.Unstructured
	// ChangedTemplate is a second template of machines, which differs.
	ChangedTemplate *unstructured.Unstructured
	// Pool is the infrastructure of a MachinePool, PoolTemplate a template of it.
	Pool, PoolTemplate *unstructured.Unstructured
	// FailingMachine is the infrastructure of a machine that cannot be made, such
	// as one of a size that does not exist.
	FailingMachine *unstructured.Unstructured
	// Others are made in each namespace before all else, such as a Secret with
	// credentials.
	Others []*unstructured.Unstructured
}

// RoleAnnotation says what an object is for if its kind does not end with
// Cluster, Machine, MachinePool or Template of them: its value is one of
// cluster, machine, cluster-template, machine-template, machine-pool,
// machine-pool-template, failing-machine and other.
const RoleAnnotation = "capi-conformance.outrigger.dev/role"

// ParseObjects reads objects from YAML documents. Without an object for
// machines it is made from the template.
func ParseObjects(data []byte) (Objects, error) {
	var o Objects
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for n := 1; ; n++ {
		u := &unstructured.Unstructured{}
		err := decoder.Decode(&u.Object)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return o, fmt.Errorf("document %d: %w", n, err)
		}
		if len(u.Object) == 0 {
			continue
		}
		if u.GetKind() == "" || u.GetAPIVersion() == "" {
			return o, fmt.Errorf("document %d has no apiVersion or no kind", n)
		}
		if err := o.take(u); err != nil {
			return o, fmt.Errorf("document %d: %w", n, err)
		}
	}
	return o, o.complete()
}

func (o *Objects) byRole() map[string]**unstructured.Unstructured {
	return map[string]**unstructured.Unstructured{
		"cluster": &o.Cluster, "machine": &o.Machine, "cluster-template": &o.ClusterTemplate, "machine-template": &o.MachineTemplate,
		"machine-pool": &o.Pool, "machine-pool-template": &o.PoolTemplate, "failing-machine": &o.FailingMachine,
	}
}

func (o *Objects) take(u *unstructured.Unstructured) error {
	role := roleOf(u)
	if role == "other" {
		o.Others = append(o.Others, u)
		return nil
	}
	field, ok := o.byRole()[role]
	if !ok {
		return fmt.Errorf("annotation %s: %q is none of cluster, machine, cluster-template, machine-template, machine-pool, machine-pool-template, failing-machine, other", RoleAnnotation, role)
	}
	if role == "machine-template" && *field != nil && o.ChangedTemplate == nil {
		field = &o.ChangedTemplate
	}
	if *field != nil {
		return fmt.Errorf("%s %s: there is one for %s already", u.GetKind(), u.GetName(), role)
	}
	*field = u
	return nil
}

func roleOf(u *unstructured.Unstructured) string {
	if role, ok := u.GetAnnotations()[RoleAnnotation]; ok {
		return role
	}
	for _, known := range []struct{ suffix, role string }{
		{"ClusterTemplate", "cluster-template"}, {"MachineTemplate", "machine-template"},
		{"MachinePoolTemplate", "machine-pool-template"}, {"MachinePool", "machine-pool"}, {"Cluster", "cluster"}, {"Machine", "machine"},
	} {
		if strings.HasSuffix(u.GetKind(), known.suffix) {
			return known.role
		}
	}
	return "other"
}

func (o *Objects) complete() error {
	if o.Cluster == nil && o.ClusterTemplate != nil {
		o.Cluster = fromTemplate(o.ClusterTemplate)
	}
	if o.Machine == nil && o.MachineTemplate != nil {
		o.Machine = fromTemplate(o.MachineTemplate)
	}
	if o.Cluster == nil {
		return errors.New("there is no infrastructure of a cluster: write a document whose kind ends with Cluster, or annotate one with " + RoleAnnotation + ": cluster")
	}
	if o.Machine == nil {
		return errors.New("there is no infrastructure of a machine: write a document whose kind ends with Machine or MachineTemplate, or annotate one with " + RoleAnnotation + ": machine")
	}
	return nil
}

// fromTemplate returns what core makes from a template.
func fromTemplate(template *unstructured.Unstructured) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(template.GetAPIVersion())
	u.SetKind(strings.TrimSuffix(template.GetKind(), "Template"))
	inner, _, _ := unstructured.NestedMap(template.Object, "spec", "template")
	for _, part := range []string{"spec", "metadata"} {
		if value, ok := inner[part]; ok {
			u.Object[part] = value
		}
	}
	return u
}

// kinds returns the provider's kinds that Cluster API uses.
func (o *Objects) kinds() []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for _, u := range []*unstructured.Unstructured{o.Cluster, o.Machine, o.ClusterTemplate, o.MachineTemplate, o.Pool, o.PoolTemplate} {
		if u != nil {
			all = append(all, u)
		}
	}
	return all
}

// instance returns a copy of an object for a place.
func instance(u *unstructured.Unstructured, namespace, cluster, name string) *unstructured.Unstructured {
	fill := strings.NewReplacer("${NAMESPACE}", namespace, "${CLUSTER_NAME}", cluster, "${NAME}", name)
	c := &unstructured.Unstructured{}
	data, err := u.MarshalJSON()
	if err == nil {
		err = c.UnmarshalJSON([]byte(fill.Replace(string(data))))
	}
	if err != nil {
		panic(err) // it was read from a file
	}
	labels, annotations := c.GetLabels(), c.GetAnnotations()
	delete(annotations, RoleAnnotation)
	delete(c.Object, "metadata")
	delete(c.Object, "status")
	c.SetNamespace(namespace)
	c.SetName(name)
	c.SetLabels(labels)
	if len(annotations) > 0 {
		c.SetAnnotations(annotations)
	}
	return c
}
