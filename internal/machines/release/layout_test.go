// SPDX-License-Identifier: Apache-2.0

package release

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	infrav1beta1 "github.com/outrigger/outrigger/api/infrastructure/v1beta1"
	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

// Tilt builds the image that the manifests name, and watches what it is made of.
func TestTiltProvider(t *testing.T) {
	var providers []struct {
		Name   string
		Config struct {
			Image string
			Main  string   `json:"go_main"`
			Deps  []string `json:"live_reload_deps"`
		}
	}
	if err := json.Unmarshal([]byte(read(t, "../../../tilt-provider.json")), &providers); err != nil {
		t.Fatal(err)
	}
	if len(providers) != 1 || providers[0].Name != "outrigger" {
		t.Fatalf("providers: %+v", providers)
	}
	c := providers[0].Config
	if patch := read(t, "../../../config/default/manager_image_patch.yaml"); !strings.Contains(patch, "image: "+c.Image+":") {
		t.Errorf("config/default does not use the image %s:\n%s", c.Image, patch)
	}
	for _, path := range append(c.Deps, c.Main) {
		if _, err := os.Stat(filepath.Join("../../..", path)); err != nil {
			t.Error(err)
		}
	}
}

// The editor attaches to the port at which Tilt has the debugger listen.
func TestDebugger(t *testing.T) {
	var settings struct {
		Debug map[string]struct{ Port int }
	}
	var launch struct {
		Configurations []struct{ Port int }
	}
	for file, v := range map[string]any{"../../../config/tilt/tilt-settings.json": &settings, "../../../.vscode/launch.json": &launch} {
		if err := json.Unmarshal([]byte(read(t, file)), v); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	if port := settings.Debug["outrigger"].Port; port != 30000 || len(launch.Configurations) != 1 || launch.Configurations[0].Port != port {
		t.Errorf("Tilt's debugger listens at %d, the editor's configurations are %+v", port, launch.Configurations)
	}
}

// The manager is given nothing of its node unless the socket is asked for.
func TestHostPaths(t *testing.T) {
	manifest := read(t, "../../../config/manager/manager.yaml")
	for _, part := range strings.Split(manifest, "hostPath:")[1:] {
		if !strings.HasPrefix(part, ` {path: "${OUTRIGGER_DOCKER_SOCKET:=/dev/null}"}`) {
			t.Errorf("hostPath:%.60s", part)
		}
	}
	if strings.Count(manifest, "dockersock") != 2 || !strings.Contains(manifest, "{name: dockersock, mountPath: /var/run/docker.sock}") {
		t.Error("the socket of a Docker Engine cannot be had")
	}
}

// PROJECT knows every kind in each of its versions, and no other.
func TestProject(t *testing.T) {
	var project struct {
		Resources []struct{ Kind, Version string }
	}
	if err := yaml.Unmarshal([]byte(read(t, "../../../PROJECT")), &project); err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, r := range project.Resources {
		got = append(got, r.Kind+" "+r.Version)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{infrav1.AddToScheme, infrav1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	for gvk, typ := range scheme.AllKnownTypes() {
		if strings.Contains(typ.PkgPath(), "/api/infrastructure/") && !strings.HasSuffix(gvk.Kind, "List") {
			want = append(want, gvk.Kind+" "+gvk.Version)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("PROJECT has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
