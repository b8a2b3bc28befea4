// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"encoding/json"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/internal/machines/docker/nodeagent"
	"github.com/outrigger/outrigger/provider"
)

// TestImagesOfKind are known by what they start with, and start with the manager's node agent.
// One for another architecture than the manager's is refused by name.
func TestImagesOfKind(t *testing.T) {
	other := "arm64"
	if runtime.GOARCH == other {
		other = "amd64"
	}
	for image, want := range map[string]string{
		`"Config": {"Entrypoint": ["/usr/local/bin/entrypoint", "/sbin/init"]}`:                                  "/usr/local/bin/node-agent exec /usr/local/bin/entrypoint /sbin/init",
		`"Config": {"Entrypoint": ["/usr/local/bin/entrypoint"], "Cmd": ["/sbin/init", "x"]}`:                    "/usr/local/bin/node-agent exec /usr/local/bin/entrypoint /sbin/init x",
		`"Config": {"Entrypoint": ["/usr/local/bin/node-agent"]}`:                                                "",
		`"Config": {"Entrypoint": ["/usr/local/bin/entrypoint", "/node-agent"]}`:                                 "",
		`"Config": {"Cmd": ["/sbin/init"]}`:                                                                      "",
		`"Config": null`:                                                                                         "",
		`"Config": {"Entrypoint": ["/usr/local/bin/entrypoint", "/sbin/init"]}, "Architecture": "` + other + `"`: "unfit",
	} {
		b, _ := scripted(t, func(_, _ string) (int, string) { return 200, `{"Id": "i", ` + image + `}` })
		got, err := b.entrypointOf(t.Context(), "i")
		if want == "unfit" {
			if !reasonIs(err, ReasonImageUnfit) || !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), "image i is one of kind's, for "+other) {
				t.Errorf("%s: %v", image, err)
			}
			continue
		}
		if err != nil || strings.Join(got, " ") != want || bringsNoAgent(got) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", image, got, err, want)
		}
	}
}

// TestAgentForKind: the archive has the program, and settings that name programs without
// folders, and keep private what they keep in our own image.
func TestAgentForKind(t *testing.T) {
	settings, err := settingsForKind()
	if err != nil {
		t.Fatal(err)
	}
	var s nodeagent.Settings
	if err := json.Unmarshal(settings, &s); err != nil || len(s.Private) == 0 || len(s.Needs) > 0 || !slices.Equal(s.Reset, []string{"kubeadm", "reset", "--force"}) || s.ImportImage[0] != "ctr" {
		t.Errorf("%+v, %v", s, err)
	}
	var names []string
	for _, f := range agentFiles(settings, strings.NewReader("program"), 7) {
		names = append(names, f.Name)
	}
	if !slices.Equal(names, []string{"/etc/node-agent/", "/etc/node-agent/settings.json", "/usr/local/bin/node-agent"}) {
		t.Errorf("%q", names)
	}
}
