// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	texttemplate "text/template"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"
)

// TestClassKeepsItsTemplates: what a topology's variables say replaces single fields of a
// class's templates, so that a change of the rest of a template is rolled out. (With
// Cluster API's own topology controller that is a step of TestLifecycle in test/capi.)
func TestClassKeepsItsTemplates(t *testing.T) {
	class, shipped := classAndVariables(t)
	withImage := func(image string) map[string]any {
		v := map[string]any{"provider": "fake"}
		for _, who := range []string{"controlPlaneMachine", "workerMachine"} {
			v[who] = map[string]any{"image": image, "tags": map[string]any{"of": "the topology"}}
		}
		return v
	}
	const machine = `{"gpus":1,"image":"of-the-template","tags":{"of":"the template"}}`
	for _, row := range []struct {
		what, kind   string
		controlPlane bool
		variables    map[string]any
		before, want string
	}{
		{"as shipped", "OutriggerMachineTemplate", false, shipped, machine,
			`{"gpus":1,"image":"of-the-template","tags":{"of":"the template"},"vcpus":2,"memory":"2Gi"}`},
		{"as shipped", "OutriggerMachineTemplate", true, shipped, machine,
			`{"gpus":1,"image":"of-the-template","tags":{"of":"the template"},"vcpus":2,"memory":"4Gi"}`},
		{"no variables", "OutriggerMachineTemplate", true, map[string]any{"provider": "fake"}, machine, machine},
		{"the image of a version", "OutriggerMachineTemplate", false, withImage("node-VERSION"), machine,
			`{"gpus":1,"image":"node-v1.36.3","tags":{"of":"the topology"}}`},
		{"the provider", "OutriggerClusterTemplate", false, shipped, `{"failureDomains":[]}`, `{"failureDomains":[],"provider":"outrigger-provider"}`},
		{"an argument of kubelet", "KubeadmConfigTemplate", false, shipped,
			`{"joinConfiguration":{"nodeRegistration":{"kubeletExtraArgs":[{"name":"v","value":"2"}]}}}`,
			`{"joinConfiguration":{"nodeRegistration":{"kubeletExtraArgs":[{"name":"v","value":"2"},{"name":"provider-id","value":"outrigger://outrigger-provider/{{ v1.instance_id }}"}]}}}`},
	} {
		t.Run(row.what+" "+row.kind, func(t *testing.T) {
			object := `{"spec":{"template":{"spec":` + row.before + `}}}`
			var got, want any
			if err := json.Unmarshal(applyClass(t, class, []byte(object), row.kind, row.controlPlane, row.variables), &got); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(`{"spec":{"template":{"spec":`+row.want+`}}}`), &want); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// classAndVariables are the class outrigger and what the topology that comes with it sets.
func classAndVariables(t *testing.T) (*clusterv1.ClusterClass, map[string]any) {
	t.Helper()
	var class clusterv1.ClusterClass
	var cluster clusterv1.Cluster
	for file, into := range map[string]any{"clusterclass-outrigger.yaml": &class, "cluster-template-outrigger-topology.yaml": &cluster} {
		data, err := os.ReadFile("../../../templates/" + file)
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(substitute(string(data)), "\n---\n")
		if err := yaml.Unmarshal([]byte(first), into); err != nil {
			t.Fatal(err)
		}
	}
	variables := map[string]any{}
	for _, v := range cluster.Spec.Topology.Variables {
		var value any
		if err := json.Unmarshal(v.Value.Raw, &value); err != nil {
			t.Fatal(err)
		}
		variables[v.Name] = value
	}
	return &class, variables
}

// applyClass does what Cluster API does with the patches of a class.
func applyClass(t *testing.T, class *clusterv1.ClusterClass, object []byte, kind string, controlPlane bool, variables map[string]any) []byte {
	t.Helper()
	version := map[string]any{"version": "v1.36.3"}
	data := map[string]any{"builtin": map[string]any{"controlPlane": version, "machineDeployment": version}}
	for name, value := range variables {
		data[name] = value
	}
	for _, p := range class.Spec.Patches {
		if p.EnabledIf != "" && string(render(t, p.EnabledIf, data)) != "true" {
			continue
		}
		for _, d := range p.Definitions {
			ofControlPlane := d.Selector.MatchResources.ControlPlane != nil && *d.Selector.MatchResources.ControlPlane
			if d.Selector.Kind != kind || ofControlPlane != controlPlane {
				continue
			}
			object = applyPatches(t, d.JSONPatches, object, data)
		}
	}
	return object
}

func applyPatches(t *testing.T, patches []clusterv1.JSONPatch, object []byte, data map[string]any) []byte {
	t.Helper()
	var operations []map[string]any
	for _, p := range patches {
		var value any
		if p.ValueFrom.Variable != "" {
			value = any(data)
			for part := range strings.SplitSeq(p.ValueFrom.Variable, ".") {
				value = value.(map[string]any)[part]
			}
		} else if err := yaml.Unmarshal(render(t, p.ValueFrom.Template, data), &value); err != nil {
			t.Fatal(err)
		}
		// Cluster API takes an index in a list only where something is added, and 0 or - .
		if index := regexp.MustCompile(`/(-|[0-9]+)(/|$)`).FindStringSubmatch(p.Path); index != nil && (p.Op != "add" || index[2] != "" || index[1] != "-" && index[1] != "0") {
			t.Errorf("%s %s: Cluster API refuses this", p.Op, p.Path)
		}
		operations = append(operations, map[string]any{"op": p.Op, "path": p.Path, "value": value})
	}
	text, err := json.Marshal(operations)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err == nil {
		object, err = patch.Apply(object)
	}
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return object
}

// render knows of sprig what the classes use.
func render(t *testing.T, text string, data map[string]any) []byte {
	t.Helper()
	known := texttemplate.FuncMap{"replace": func(old, with, in string) string { return strings.ReplaceAll(in, old, with) }, "quote": strconv.Quote}
	var out bytes.Buffer
	parsed, err := texttemplate.New("").Funcs(known).Parse(text)
	if err == nil {
		err = parsed.Execute(&out, data)
	}
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return out.Bytes()
}
