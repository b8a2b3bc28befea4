// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/yaml"
)

// readChart returns a file of a chart.
func readChart(t *testing.T, folder, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, folder, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestChartsIntroduceThemselves: each has a README whose installation Helm renders and
// whose values there are, and an icon.
func TestChartsIntroduceThemselves(t *testing.T) {
	for _, folder := range []string{"deploy/chart", operatorChart} {
		t.Run(folder, func(t *testing.T) {
			readme := readChart(t, folder, "README.md")
			if !rendersInstall(t, readme) {
				t.Error("the README has no line with helm install")
			}
			var values map[string]any
			if err := yaml.Unmarshal([]byte(readChart(t, folder, "values.yaml")), &values); err != nil {
				t.Fatal(err)
			}
			rows := regexp.MustCompile("(?m)^\\| (`[^|]*) \\|").FindAllStringSubmatch(readme, -1)
			for _, row := range rows {
				for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
					if !has(values, strings.Split(name[1], ".")) {
						t.Errorf("there is no value %s", name[1])
					}
				}
			}
			if len(rows) < 5 {
				t.Errorf("the README explains %d values", len(rows))
			}
			wantIcon(t, folder)
		})
	}
}

// rendersInstall renders what the README installs.
func rendersInstall(t *testing.T, readme string) (found bool) {
	t.Helper()
	for _, block := range fenced(readme) {
		line, ok := strings.CutPrefix(strings.TrimSpace(block), "helm install ")
		if !ok {
			continue
		}
		found = true
		args := slices.DeleteFunc(strings.Fields(line), func(arg string) bool { return arg == "--create-namespace" })
		render := exec.Command(tool(t, "helm"), append([]string{"template", "--kube-version", kubeVersion}, args...)...)
		render.Dir = root
		if out, err := render.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
	return found
}

// wantIcon holds the chart's icon against the file beside it.
func wantIcon(t *testing.T, folder string) {
	t.Helper()
	const at = "https://raw.githubusercontent.com/outrigger/outrigger/main/"
	var chart struct{ Icon string }
	if err := yaml.Unmarshal([]byte(readChart(t, folder, "Chart.yaml")), &chart); err != nil || chart.Icon != at+folder+"/icon.svg" {
		t.Errorf("icon %q, %v", chart.Icon, err)
	}
	icon := xml.NewDecoder(strings.NewReader(readChart(t, folder, "icon.svg")))
	for {
		_, err := icon.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// notesOf renders NOTES.txt of the chart, for which Helm itself wants a cluster.
func notesOf(t *testing.T, args ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "chart")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, "deploy/chart"))); err != nil {
		t.Fatal(err)
	}
	notes := []byte("{{ define \"notes\" }}" + readChart(t, "deploy/chart", "templates/NOTES.txt") + "{{ end }}" +
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: notes}\ndata:\n  text: {{ include \"notes\" . | quote }}\n")
	err := errors.Join(os.WriteFile(filepath.Join(dir, "templates/notes.yaml"), notes, 0o600), os.Remove(filepath.Join(dir, "templates/NOTES.txt")))
	if err != nil {
		t.Fatal(err)
	}
	all := append([]string{"template", "outrigger", dir, "--kube-version", kubeVersion, "--values", "testdata/images.yaml"}, args...)
	for _, o := range parse(t, output(t, tool(t, "helm"), all...)) {
		if id(o) == "ConfigMap notes" {
			return o.Object["data"].(map[string]any)["text"].(string)
		}
	}
	t.Fatal("no notes were rendered")
	return ""
}

// TestNotesSayWhatIsNext: the two commands after the installation, with the values' own
// labels and class.
func TestNotesSayWhatIsNext(t *testing.T) {
	notes := notesOf(t, "--set", `provider=libvirt,runtimeClass.name=vm,nodeSelector.pool\.example\.com/vms=yes,nodeInstaller.enabled=true`)
	var commands []string
	for line := range strings.Lines(notes) {
		if command, ok := strings.CutPrefix(line, "  kubectl "); ok {
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	want := []string{
		"label node NAME node.kubernetes.io/worker= pool.example.com/vms=yes",
		`run nginx --image=nginx --overrides='{"spec": {"runtimeClassName": "vm"}}'`,
		"describe pod nginx",
	}
	if !slices.Equal(commands, want) {
		t.Errorf("the notes have %q, want %q:\n%s", commands, want, notes)
	}
	for set, says := range map[string]string{"true": "brings the handler kata-remote", "false": "--set nodeInstaller.enabled=true"} {
		if got := notesOf(t, "--set", "provider=libvirt,nodeInstaller.enabled="+set); !strings.Contains(got, says) {
			t.Errorf("nodeInstaller.enabled=%s: no %q in\n%s", set, says, got)
		}
	}
}
