// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/provider"
)

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var link = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)

func TestLinksLeadSomewhere(t *testing.T) {
	pages := []string{"install.md", "pools.md", "ccm-operator-install.md", "ccm-operator-takeover.md", "quickstart-kind.md", "providers/libvirt.md"}
	for name := range walkSites {
		pages = append(pages, providerPage(name))
	}
	for _, name := range pages {
		for _, match := range link.FindAllStringSubmatch(page(t, name), -1) {
			if _, err := os.Stat(filepath.Join(root, "docs", filepath.Dir(name), match[1])); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestInstallPageKnowsWhatThereIs(t *testing.T) {
	text := page(t, "install.md")
	for _, name := range folders(t, "deploy/overlays") {
		if !strings.Contains(text, "| `"+name+"` |") {
			t.Errorf("install.md has no line for overlay %s", name)
		}
	}
	for _, match := range regexp.MustCompile(`deploy/(overlays|components|base)(/[a-z-]+)?`).FindAllString(text, -1) {
		if _, err := os.Stat(filepath.Join(root, match)); err != nil {
			t.Error(err)
		}
	}
	for _, o := range parse(t, overlay(t, "qemu")) {
		if kind := o.GetKind(); (kind == "DaemonSet" || kind == "Deployment") && !strings.Contains(text, kind+" `"+o.GetName()+"`") {
			t.Errorf("install.md does not say what %s is for", id(o))
		}
	}
}

// TestSampleOfPools: the page shows the sample as it is, it has no unknown field, and the
// pool selects its pods.
func TestSampleOfPools(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "deploy/samples/podvmpool.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(data), "\n")
	if !strings.Contains(page(t, "pools.md"), "```yaml\n"+text+"```\n") {
		t.Error("pools.md has not the sample")
	}
	first, second, _ := strings.Cut(text, "---\n")
	pool, web := v1alpha1.PodVMPool{}, appsv1.Deployment{}
	if err := errors.Join(sigsyaml.UnmarshalStrict([]byte(first), &pool), sigsyaml.UnmarshalStrict([]byte(second), &web)); err != nil {
		t.Fatal(err)
	}
	if pool.Spec.MinReady < 1 || len(pool.Spec.PodSelector) == 0 || !provider.HasTags(web.Spec.Template.Labels, pool.Spec.PodSelector) {
		t.Errorf("pool %+v does not select pods %+v", pool.Spec, web.Spec.Template.Labels)
	}
}

// TestInstallPageNamesValues holds its table against the values file.
func TestInstallPageNamesValues(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "deploy/chart/values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(data, &values); err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(page(t, "install.md"), "## Values of the chart")
	table, _, _ = strings.Cut(table, "\n## ")
	found := 0
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\|").FindAllStringSubmatch(table, -1) {
		first := ""
		for _, match := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			path := match[1]
			if strings.HasPrefix(path, ".") { // beside the one before
				path = first[:strings.LastIndex(first, ".")] + path
			}
			first = path
			found++
			if !has(values, strings.Split(path, ".")) {
				t.Errorf("there is no value %s", path)
			}
		}
	}
	if found < 25 {
		t.Errorf("only %d values were found in the table", found)
	}
}

// has reports whether a path leads to a value; what is below an empty map is open.
func has(values map[string]any, path []string) bool {
	value, found := values[path[0]]
	if !found || len(path) == 1 {
		return found
	}
	below, ok := value.(map[string]any)
	return ok && (len(below) == 0 || has(below, path[1:]))
}
