// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"strings"
	"testing"
)

// TestImagesOfKindAreRefused by their name, before anything is made of them.
func TestImagesOfKindAreRefused(t *testing.T) {
	for config, want := range map[string]string{
		`{"Entrypoint": ["/usr/local/bin/entrypoint", "/sbin/init"]}`:          "image i is one of kind's: it starts /usr/local/bin/entrypoint /sbin/init",
		`{"Entrypoint": ["/usr/local/bin/entrypoint"], "Cmd": ["/sbin/init"]}`: "one of kind's",
		`{"Entrypoint": ["/usr/local/bin/node-agent"]}`:                        "",
		`{"Entrypoint": ["/usr/local/bin/entrypoint", "/node-agent"]}`:         "",
		`{"Cmd": ["/sbin/init"]}`:                                              "",
		`null`:                                                                 "",
	} {
		b, _ := scripted(t, func(_, _ string) (int, string) { return 200, `{"Id": "i", "Config": ` + config + `}` })
		err := b.checkNodeImage(t.Context(), "i")
		if want == "" && err != nil || want != "" && (!reasonIs(err, ReasonImageUnfit) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v; want %q", config, err, want)
		}
	}
}
