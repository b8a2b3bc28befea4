// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

const operatorChart = "deploy/ccm-operator/chart"

// ccmChart renders the operator's chart.
func ccmChart(t testing.TB, more ...string) []byte {
	t.Helper()
	helm, args := tool(t, "helm"), ccmChartArgs(more...)
	return once(strings.Join(args, " "), func() []byte { return output(t, helm, args...) })
}

func ccmChartArgs(more ...string) []string {
	return append([]string{
		"template", "ccm-operator", filepath.Join(root, operatorChart), "--namespace", onKubernetes.namespace, "--kube-version", kubeVersion, "--include-crds",
	}, more...)
}

func TestOperatorChartIsTheKustomization(t *testing.T) {
	byKustomize, byChart := placed(parse(t, onKubernetes.render(t))), placed(parse(t, ccmChart(t)))
	if diff := cmp.Diff(byKustomize, byChart); diff != "" {
		t.Errorf("kustomize (-) and chart (+) differ:\n%s", diff)
	}
}

// placed is normal by namespaces: one name stands for several roles here.
func placed(all []*unstructured.Unstructured) map[string]map[string]any {
	groups := map[string][]*unstructured.Unstructured{}
	for _, o := range all {
		groups[o.GetNamespace()] = append(groups[o.GetNamespace()], o)
	}
	objects := map[string]map[string]any{}
	for namespace, group := range groups {
		objects[namespace] = normal(group)
	}
	return objects
}

func TestOperatorChartsMonitoringIsTheKustomizations(t *testing.T) {
	kustomize := tool(t, "kustomize")
	both := append(parse(t, onKubernetes.render(t)), parse(t, output(t, kustomize, "build", filepath.Join(root, "deploy/ccm-operator/monitoring/kubernetes")))...)
	if diff := cmp.Diff(placed(both), placed(parse(t, ccmChart(t, "--set", "monitoring.enabled=true")))); diff != "" {
		t.Errorf("kustomize (-) and chart (+) differ:\n%s", diff)
	}
}

func TestOperatorChartInAnotherNamespace(t *testing.T) {
	args := append(ccmChartArgs("--set", "monitoring.enabled=true"), "--namespace", "elsewhere")
	if text := output(t, tool(t, "helm"), args...); bytes.Contains(text, []byte(onKubernetes.namespace)) {
		t.Errorf("%s is in it:\n%s", onKubernetes.namespace, text)
	}
}

func TestOperatorChartLint(t *testing.T) {
	output(t, tool(t, "helm"), "lint", "--strict", "--kube-version", kubeVersion, filepath.Join(root, operatorChart))
}

// TestOperatorChartHasWhatItIsMadeFrom: `make generate` copies it.
func TestOperatorChartHasWhatItIsMadeFrom(t *testing.T) {
	for copied, from := range map[string]string{
		"crds/ccm.outrigger.dev_cloudcontrollermanagers.yaml": "crd/ccm.outrigger.dev_cloudcontrollermanagers.yaml",
		"generated/rbac.yaml":            "kubernetes/rbac.yaml",
		"generated/rules.yaml":           "monitoring/alerts/rules.yaml",
		"generated/service.yaml":         "monitoring/kubernetes/service.yaml",
		"generated/servicemonitors.yaml": "monitoring/kubernetes/servicemonitors.yaml",

		"generated/outrigger-operator.json": "monitoring/dashboard/outrigger-operator.json",
	} {
		is, err := os.ReadFile(filepath.Join(root, operatorChart, copied))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(root, "deploy/ccm-operator", from))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(is, want) {
			t.Errorf("%s is not %s any more: run `make generate`", copied, from)
		}
	}
}

// ccmChanges has another value for every value of the operator's chart.
var ccmChanges = map[string][]string{
	"image.repository":          {"image.repository=registry.example.com/o"},
	"image.tag":                 {"image.tag=v7"},
	"image.pullPolicy":          {"image.pullPolicy=Never"},
	"image.pullSecrets":         {"image.pullSecrets={mine}"},
	"replicas":                  {"replicas=2"},
	"args":                      {"args={--watchdog-after=5m}"},
	"resources.requests.cpu":    {"resources.requests.cpu=7"},
	"resources.requests.memory": {"resources.requests.memory=7Gi"},
	"priorityClassName":         {"priorityClassName="},
	"nodeSelector.node-role.kubernetes.io/control-plane": {`nodeSelector.other\.example\.com=yes`},
	"tolerations":            {"tolerations[0].operator=Exists"},
	"podLabels":              {"podLabels.other=yes"},
	"cloudControllerManager": {"cloudControllerManager.name=other", "cloudControllerManager.spec.provider=libvirt", "cloudControllerManager.spec.images.x=y"},
	"bundles":                {`bundles.mine.bundle\.yaml=x`},
	"grants":                 {"grants[0].verbs={get}", "grants[0].apiGroups={x}", "grants[0].resources={y}"},
	"monitoring.enabled":     {"monitoring.enabled=true"},
}

func TestEveryValueOfTheOperatorChartIsUsed(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, operatorChart, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(data, &values); err != nil {
		t.Fatal(err)
	}
	all, before := leaves("", values), ccmChart(t)
	for _, leaf := range all {
		if set, known := ccmChanges[leaf]; !known {
			t.Errorf("ccmChanges has no other value for %s", leaf)
		} else if bytes.Equal(before, ccmChart(t, flags(set)...)) {
			t.Errorf("another value of %s changes nothing", leaf)
		}
		if first, _, _ := strings.Cut(leaf, "."); !strings.Contains(page(t, "ccm-operator-install.md"), "`"+first) {
			t.Errorf("ccm-operator-install.md does not name %s", first)
		}
	}
	for leaf := range ccmChanges {
		if !slices.Contains(all, leaf) {
			t.Errorf("%s is not a value of the chart", leaf)
		}
	}
}

// TestOperatorChartRefuses what would install something else than was meant.
func TestOperatorChartRefuses(t *testing.T) {
	helm := tool(t, "helm")
	for set, want := range map[string]string{
		"imagee.tag=x":                        "imagee",
		"image.tga=x":                         "tga",
		"replicas=many":                       "replicas",
		"image.pullPolicy=Sometimes":          "pullPolicy",
		"args={watchdog-after=5m}":            "args",
		"monitoring.enabled=perhaps":          "monitoring",
		"cloudControllerManager.name=main":    "cloudControllerManager",
		"cloudControllerManager.spec.x=y":     "cloudControllerManager",
		"cloudControllerManager.provider=aws": "provider",
		"bundles.mine.assets=x":               "bundle.yaml",
		"grants[0].resources={pods}":          "verbs",
		"tolerations[0].effect=NoScheduling":  "effect",
		"resources.request.cpu=1":             "request",
		"nodeSelector.x=1":                    "nodeSelector",
		"serviceAccount.create=false":         "serviceAccount",
	} {
		_, stderr, err := execute(helm, ccmChartArgs("--set", set)...)
		if err == nil || !strings.Contains(string(stderr), want) || !strings.Contains(string(stderr), "values don't meet the specifications of the schema") {
			t.Errorf("%s: %v: %s", set, err, stderr)
		}
	}
}
