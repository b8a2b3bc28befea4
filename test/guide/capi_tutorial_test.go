// SPDX-License-Identifier: Apache-2.0

package guide

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// capiTutorial is run by TestCAPITutorial, which needs minutes and the build tag
// integration. What is checked here needs neither.
const capiTutorial = "../../docs/capi-tutorial.md"

// between returns what is in the tutorial after a line, up to another.
func between(t *testing.T, from, to string) string {
	t.Helper()
	_, rest, ok := strings.Cut(read(t, capiTutorial), "\n"+from+"\n")
	text, _, ended := strings.Cut(rest, "\n"+to+"\n")
	if !ok || !ended {
		t.Fatalf("the tutorial has no %q up to %q", from, to)
	}
	return text
}

// TestTutorialsTilt: nobody runs Tilt here, so that at least its files have to
// agree with each other and with the rest of the tutorial.
func TestTutorialsTilt(t *testing.T) {
	var providers []struct {
		Name   string
		Config struct {
			Image string
			Main  string   `json:"go_main"`
			Deps  []string `json:"live_reload_deps"`
		}
	}
	decode(t, between(t, "cat > tilt-provider.json <<'END'", "END"), &providers)
	var settings struct {
		Repositories []string                      `json:"provider_repos"`
		Providers    []string                      `json:"enable_providers"`
		Args         map[string][]string           `json:"extra_args"`
		Debug        map[string]struct{ Port int } `json:"debug"`
		Variables    map[string]string             `json:"kustomize_substitutions"`
	}
	decode(t, between(t, "```json", "```"), &settings)
	var launch struct{ Configurations []struct{ Port int } }
	decode(t, read(t, "../../.vscode/launch.json"), &launch)
	if len(providers) != 1 || len(settings.Repositories) != 1 || len(launch.Configurations) != 1 {
		t.Fatalf("%+v, %+v, %+v", providers, settings, launch)
	}
	p, text := providers[0], read(t, capiTutorial)
	if !slices.Contains(settings.Providers, p.Name) || settings.Args[p.Name] == nil {
		t.Errorf("tilt-settings.json does not name %s: %+v", p.Name, settings)
	}
	if port := settings.Debug[p.Name].Port; port != 30000 || port != launch.Configurations[0].Port {
		t.Errorf("the debugger listens on port %d, the editor attaches to %+v", port, launch)
	}
	for _, path := range append(p.Config.Deps, p.Config.Main) {
		if folder := strings.TrimPrefix(path, "./"); !strings.Contains(text, folder+"/") && !strings.HasPrefix(path, "go.") {
			t.Errorf("the tutorial makes no %s", folder)
		}
	}
	if !strings.Contains(text, "|"+p.Config.Image+"|' config/default/manager_image_patch.yaml") {
		t.Errorf("config/default does not get the image %s", p.Config.Image)
	}
	if name := filepath.Base(settings.Repositories[0]); !strings.Contains(text, "cd ~/"+name) {
		t.Errorf("tilt-settings.json looks for the provider in %s", name)
	}
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
}

// TestTutorialsReasons: a reason that no controller gives helps nobody.
func TestTutorialsReasons(t *testing.T) {
	sources := readFolder(t, "../../internal/machines/reconciler")
	reasons := regexp.MustCompile("`([A-Z][a-zA-Z]+)`").FindAllStringSubmatch(between(t, "| condition | True when | otherwise its reason says |", ""), -1)
	if len(reasons) < 8 {
		t.Errorf("the table of conditions has only %d names", len(reasons))
	}
	for _, reason := range reasons {
		if !strings.Contains(sources, `"`+reason[1]+`"`) && !strings.Contains(sources, "clusterv1."+reason[1]+"Condition") {
			t.Errorf("no controller says %s", reason[1])
		}
	}
}

// TestTutorialIsLinked: who looks for it finds it.
func TestTutorialIsLinked(t *testing.T) {
	for _, file := range []string{"../../docs/README.md", "../../README.md"} {
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "capi-tutorial.md") {
			t.Errorf("%s does not lead to the tutorial: %v", file, err)
		}
	}
}
