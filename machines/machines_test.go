// SPDX-License-Identifier: Apache-2.0

package machines_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/machines"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/fake"
)

type settings struct{}

func run(env map[string]string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = machines.Run(machines.Options{
		Name: "mine",
		Cloud: config.New("mine", func(settings) (provider.Provider, error) {
			return fake.New(fake.Options{})
		}),
		Args: args, Stdout: &out, Stderr: &errs,
		Getenv: func(name string) string { return env[name] },
	})
	return code, out.String(), errs.String()
}

// TestProviderIsChosen: nobody has to say --provider, and whoever does is heard.
func TestProviderIsChosen(t *testing.T) {
	for name, tc := range map[string]struct {
		env  map[string]string
		want string
	}{
		"by itself":   {nil, "(default mine)"},
		"by variable": {map[string]string{"CLOUD_PROVIDER": "other"}, "(default other)"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := run(tc.env, "--help")
			_, usage, _ := strings.Cut(out, "--provider TEXT [CLOUD_PROVIDER]\n")
			usage, _, _ = strings.Cut(usage, "\n")
			if code != 0 || !strings.HasSuffix(usage, tc.want) || !strings.Contains(out, "built in: mine.") {
				t.Errorf("code %d, %s%q: want %q", code, errs, usage, tc.want)
			}
		})
	}
}

func TestWrongFlags(t *testing.T) {
	if code, _, errs := run(nil, "--webhook-port=x"); code != 2 || !strings.Contains(errs, "webhook-port") {
		t.Errorf("code %d, %q", code, errs)
	}
}
