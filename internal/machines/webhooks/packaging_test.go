// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1beta1 "github.com/outrigger/outrigger/api/infrastructure/v1beta1"
	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

// documents returns the objects of all files that match, strictly decoded, by
// the file.
func documents(t *testing.T, patterns ...string) map[string][]runtime.Object {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		infrav1.AddToScheme, infrav1beta1.AddToScheme, clusterv1.AddToScheme, bootstrapv1.AddToScheme, controlplanev1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	found := map[string][]runtime.Object{}
	for _, pattern := range patterns {
		files, err := filepath.Glob("../../../" + pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no file is %s: %v", pattern, err)
		}
		for _, f := range files {
			found[f] = decode(t, decoder, f)
		}
	}
	return found
}

func decode(t *testing.T, decoder runtime.Decoder, file string) (objects []runtime.Object) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(substitute(string(data)), "\n---\n") {
		o, _, err := decoder.Decode([]byte(doc), nil, nil)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		objects = append(objects, o)
	}
	return objects
}

var variable = regexp.MustCompile(`\$\{([A-Z_]+)(:?[:=-]=?([^{}]*))?\}`)

// substitute does what clusterctl does for variables, of which those without a
// default are what they are called.
func substitute(text string) string {
	for range 2 {
		text = variable.ReplaceAllStringFunc(text, func(v string) string {
			m := variable.FindStringSubmatch(v)
			if m[2] != "" {
				return m[3]
			}
			return strings.ToLower(strings.ReplaceAll(m[1], "_", "-"))
		})
	}
	return text
}

// valid is what the webhooks say of an object.
func valid(t *testing.T, o runtime.Object) error {
	t.Helper()
	var err error
	switch o := o.(type) {
	case *infrav1.DockerCluster:
		_, err = dockerCluster.ValidateCreate(t.Context(), o)
	case *infrav1.DockerClusterTemplate:
		_, err = dockerClusterTemplate.ValidateCreate(t.Context(), o)
	case *infrav1.DockerMachine:
		_, err = dockerMachine.ValidateCreate(t.Context(), o)
	case *infrav1.DockerMachineTemplate:
		_, err = dockerMachineTemplate.ValidateCreate(t.Context(), o)
	case *infrav1.DockerMachinePool:
		_, err = dockerMachinePool.ValidateCreate(t.Context(), o)
	case *infrav1.DockerMachinePoolTemplate:
		_, err = dockerMachinePoolTemplate.ValidateCreate(t.Context(), o)
	case *infrav1.OutriggerCluster:
		_, err = outriggerCluster.ValidateCreate(t.Context(), o)
	case *infrav1.OutriggerClusterTemplate:
		_, err = outriggerClusterTemplate.ValidateCreate(t.Context(), o)
	case *infrav1.OutriggerMachine:
		_, err = outriggerMachine.ValidateCreate(t.Context(), o)
	case *infrav1.OutriggerMachineTemplate:
		_, err = outriggerMachineTemplate.ValidateCreate(t.Context(), o)
	}
	return err
}

func TestSamplesAndTemplates(t *testing.T) {
	for file, objects := range documents(t, "templates/*.yaml", "config/samples/infrastructure_*.yaml") {
		for _, o := range objects {
			if err := valid(t, o); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}

// named is what a reference has to find.
type named struct{ kind, name string }

// A ClusterClass comes with all that it refers to, and shares it with none.
func TestClusterClassesAreComplete(t *testing.T) {
	owner := map[named]string{}
	for file, objects := range documents(t, "templates/clusterclass-*.yaml") {
		var class *clusterv1.ClusterClass
		for _, o := range objects {
			if c, ok := o.(*clusterv1.ClusterClass); ok {
				class = c
				continue
			}
			key := named{o.GetObjectKind().GroupVersionKind().Kind, o.(interface{ GetName() string }).GetName()}
			if owner[key] != "" {
				t.Errorf("%v is in %s and in %s", key, owner[key], file)
			}
			owner[key] = file
		}
		if class == nil {
			t.Errorf("%s has no ClusterClass", file)
			continue
		}
		if want := "clusterclass-" + class.Name + ".yaml"; filepath.Base(file) != want {
			t.Errorf("clusterctl looks for class %s in %s, not in %s", class.Name, want, filepath.Base(file))
		}
		for _, ref := range references(class) {
			if owner[ref] != file {
				t.Errorf("%s refers to %v, which it does not have", file, ref)
			}
		}
	}
}

func references(c *clusterv1.ClusterClass) (refs []named) {
	add := func(r clusterv1.ClusterClassTemplateReference) { refs = append(refs, named{r.Kind, r.Name}) }
	add(c.Spec.Infrastructure.TemplateRef)
	add(c.Spec.ControlPlane.TemplateRef)
	add(c.Spec.ControlPlane.MachineInfrastructure.TemplateRef)
	for _, w := range c.Spec.Workers.MachineDeployments {
		add(w.Bootstrap.TemplateRef)
		add(w.Infrastructure.TemplateRef)
	}
	for _, w := range c.Spec.Workers.MachinePools {
		add(w.Bootstrap.TemplateRef)
		add(w.Infrastructure.TemplateRef)
	}
	return refs
}

// Every kind that has a type has a sample.
func TestEveryKindHasASample(t *testing.T) {
	has := map[string]bool{}
	for _, objects := range documents(t, "config/samples/infrastructure_v1beta2_*.yaml") {
		for _, o := range objects {
			has[o.GetObjectKind().GroupVersionKind().Kind] = true
		}
	}
	scheme := runtime.NewScheme()
	if err := infrav1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for kind, typ := range scheme.KnownTypes(infrav1.GroupVersion) {
		ours := typ.PkgPath() == "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
		if ours && !strings.HasSuffix(kind, "List") && !has[kind] {
			t.Errorf("config/samples has no %s", kind)
		}
	}
}
