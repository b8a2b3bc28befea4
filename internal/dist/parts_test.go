// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// Every image that can be made is handed out.
func TestAllImages(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("../../deploy/images.sh")
	if err != nil {
		t.Fatal(err)
	}
	_, cases, found := strings.Cut(string(script), "\n  case $image in\n")
	if !found {
		t.Fatal("deploy/images.sh has no case of images")
	}
	var want []string
	for _, m := range regexp.MustCompile(`(?m)^    ([a-z][a-z |-]*)\)`).FindAllStringSubmatch(cases, -1) {
		want = append(want, strings.Split(m[1], " | ")...)
	}
	slices.Sort(want)
	b := &builder{Options: Options{Architectures: architectures[:]}}
	if d := cmp.Diff(want, b.images()); d != "" {
		t.Errorf("images (-deploy/images.sh +here):\n%s", d)
	}
	b.Architectures = []string{"arm64"}
	for _, image := range ofOneArchitecture() {
		if slices.Contains(b.images(), image) {
			t.Errorf("%s is for amd64 alone", image)
		}
	}
}

// Every chart of the repository is handed out.
func TestAllCharts(t *testing.T) {
	t.Parallel()
	var want []string
	for _, pattern := range []string{"*/*/Chart.yaml", "*/*/*/Chart.yaml"} {
		found, err := filepath.Glob(filepath.Join("../..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			want = append(want, strings.TrimPrefix(filepath.Dir(file), "../../"))
		}
	}
	got := charts()
	slices.Sort(got)
	slices.Sort(want)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("charts (-there are +here):\n%s", d)
	}
}

// A chart has the version of the distribution, and its images are those of the
// registry that was given.
func TestChart(t *testing.T) {
	t.Parallel()
	b := &builder{Options: Options{Root: "../..", Prefix: "registry.example.com/x"}, source: &source{version: "0123456", date: testDate}, fresh: t.TempDir()}
	if err := b.makeCharts(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string][]string{"outrigger": {"image", "prefix"}, "ccm-operator": {"image", "repository"}} {
		files := readTarGz(t, filepath.Join(b.fresh, "charts", name+"-0.0.0-20231114221320.g0123456.tgz"))
		var chart struct{ Name, Version, AppVersion string }
		if err := yaml.Unmarshal(files[name+"/Chart.yaml"], &chart); err != nil {
			t.Fatal(err)
		}
		if chart.Name != name || chart.Version != "0.0.0-20231114221320.g0123456" || chart.AppVersion != "0123456" {
			t.Errorf("chart: %+v", chart)
		}
		var values map[string]map[string]any
		_ = yaml.Unmarshal(files[name+"/values.yaml"], &values) // not all are maps
		if image, _ := values[at[0]][at[1]].(string); !strings.HasPrefix(image, "registry.example.com/x") {
			t.Errorf("%s.%s is %q", at[0], at[1], image)
		}
		if files[name+"/values.schema.json"] == nil || files[name+"/templates/_helpers.tpl"] == nil {
			t.Errorf("%s is not whole", name)
		}
	}
}

func readTarGz(t *testing.T, name string) map[string][]byte {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for content := tar.NewReader(zip); ; {
		h, err := content.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(content); err != nil {
			t.Fatal(err)
		}
	}
}

// A licence that is not there ends the build: a module without one may not be
// handed on.
func TestModuleWithoutLicense(t *testing.T) {
	t.Parallel()
	if err := addModuleLicense(nil, "example.com/m v1", t.TempDir()); err == nil || !strings.Contains(err.Error(), "example.com/m") {
		t.Errorf("error %v", err)
	}
}
