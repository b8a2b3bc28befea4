// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/fake"
)

// cloudy is a provider with settings.
type cloudy struct {
	Host  string        `env:"CLOUDY_HOST" required:"true" usage:"address of the cloud"`
	Token config.Secret `env:"CLOUDY_TOKEN" usage:"who asks"`
}

type bare struct{ provider.Provider }

func init() {
	provider.AddCloudProvider("cloudy", config.New("cloudy", func(cloudy) (provider.Provider, error) { return fake.New(fake.Options{}) }))
	provider.AddCloudProvider("bare", config.New("bare", func(cloudy) (provider.Provider, error) {
		cloud, err := fake.New(fake.Options{})
		return bare{cloud}, err
	}))
}

// run returns the exit code and what was said.
func run(env map[string]string, args ...string) (int, string) {
	var out bytes.Buffer
	c := &Command{Stdout: &out, Stderr: &out, Getenv: func(key string) string { return env[key] }}
	return c.Run(args), out.String()
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cloud.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestHelpTeaches(t *testing.T) {
	code, out := run(map[string]string{"CLOUD_PROVIDER": "cloudy"}, "--help")
	for _, want := range []string{"--cloud-config", "--instance-tags", "--leader-elect-lease-duration", "--node-monitor-period", "CLOUDY_TOKEN", "built in: ", "--controllers cloud-node"} {
		if !strings.Contains(out, want) {
			t.Errorf("--help does not speak of %s", want)
		}
	}
	if code != program.ExitOK {
		t.Errorf("code %d", code)
	}
	if code, out := run(nil, "--version"); code != program.ExitOK || !strings.HasPrefix(out, "cloud-controller-manager version ") {
		t.Errorf("--version: %d, %s", code, out)
	}
}

func TestBadInput(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		env  map[string]string
		want string
	}{
		"no provider":          {nil, nil, "--cloud-provider (CLOUD_PROVIDER) is not set"},
		"unknown flag":         {[]string{"--nope"}, nil, "--nope"},
		"argument":             {[]string{"x"}, nil, `unexpected argument "x"`},
		"unreadable config":    {[]string{"--cloud-provider=cloudy", "--cloud-config=/nonexistent"}, nil, "--cloud-config: open /nonexistent"},
		"config without =":     {[]string{"--cloud-provider=cloudy", "--cloud-config=" + file(t, "# a comment\nCLOUDY_TOKEN s3cret\n")}, nil, "line 2: want VARIABLE=VALUE"},
		"config with a double": {[]string{"--cloud-provider=cloudy", "--cloud-config=" + file(t, "CLOUDY_TOKEN=a\nCLOUDY_TOKEN=b\n")}, nil, "CLOUDY_TOKEN is given twice"},
		"unknown controller":   {[]string{"--cloud-provider=cloudy", "--controllers=nope"}, nil, `"nope" is not in the list of known controllers`},
		"format":               {[]string{"--cloud-provider=cloudy", "--provider-id-format=uuid"}, nil, "--provider-id-format"},
		"gone at once":         {[]string{"--cloud-provider=cloudy", "--gone-after=0s"}, nil, "--gone-after"},
		"negative trust":       {[]string{"--cloud-provider=cloudy", "--trust-empty-inventory-after=-1s"}, nil, "--trust-empty-inventory-after"},
		"negative leftovers":   {[]string{"--cloud-provider=cloudy", "--load-balancer-left-after=-1s"}, nil, "--load-balancer-left-after"},
		"tags":                 {[]string{"--cloud-provider=cloudy", "--instance-tags=a"}, nil, "instance-tags"},
		"tags by variable":     {[]string{"--cloud-provider=cloudy"}, map[string]string{"CCM_INSTANCE_TAGS": "a"}, `CCM_INSTANCE_TAGS="a"`},
		"any address":          {[]string{"--cloud-provider=cloudy", "--load-balancer-address=0.0.0.0"}, nil, "--load-balancer-address 0.0.0.0: want one"},
		"no address":           {[]string{"--cloud-provider=cloudy", "--load-balancer-address=here"}, nil, "--load-balancer-address"},
		"migration":            {[]string{"--cloud-provider=cloudy", "--enable-leader-migration"}, nil, "--enable-leader-migration"},
	} {
		code, out := run(test.env, test.args...)
		if code != program.ExitUsage || !strings.Contains(out, test.want) || strings.Contains(out, "s3cret") {
			t.Errorf("%s: code %d, %s; want %q", name, code, out, test.want)
		}
	}
}

// opening tries to open the provider, which comes after the flags.
func opening(t *testing.T, env map[string]string, args ...string) (*opened, error) {
	t.Helper()
	c := &Command{Getenv: func(key string) string { return env[key] }}
	s, err := c.settings(args)
	if err != nil {
		t.Fatal(err)
	}
	return openCloud(context.Background(), s, c.Getenv, slog.New(slog.DiscardHandler))
}

func TestProviderIsOpenedOrTheErrorIsClear(t *testing.T) {
	for name, test := range map[string]struct {
		env  map[string]string
		args []string
		want string
	}{
		"by the environment":   {map[string]string{"CLOUD_PROVIDER": "cloudy", "CLOUDY_HOST": "h"}, nil, ""},
		"by the file":          {nil, []string{"--cloud-provider=cloudy", "--cloud-config=" + file(t, "CLOUDY_HOST=h\nCCM_GONE_AFTER=1m\n")}, ""},
		"a setting missing":    {nil, []string{"--cloud-provider=cloudy"}, "CLOUDY_HOST"},
		"one too many":         {nil, []string{"--cloud-provider=cloudy", "--cloud-config=" + file(t, "CLOUDY_HOTS=h\n")}, "CLOUDY_HOTS"},
		"unknown":              {nil, []string{"--cloud-provider=x"}, `unknown cloud provider "x"`},
		"without capabilities": {map[string]string{"CLOUDY_HOST": "h"}, []string{"--cloud-provider=bare"}, "capabilities Lister and Getter"},
		"a reserved label":     {map[string]string{"CLOUDY_HOST": "h"}, []string{"--cloud-provider=cloudy", "--node-labels=kubernetes.io/a=b"}, "--node-labels"},
	} {
		o, err := opening(t, test.env, test.args...)
		switch {
		case test.want == "" && err != nil, test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v, want %q", name, err, test.want)
		case err == nil:
			if err := o.close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestFlagWinsOverFileOverEnvironment(t *testing.T) {
	env := func(string) string { return "" }
	parse := func(env func(string) string, args ...string) *settings {
		t.Helper()
		s, err := newSettings()
		if err == nil {
			err = s.parse(append(args, "--cloud-provider=cloudy"), env)
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	path := "--cloud-config=" + file(t, "CCM_GONE_AFTER=2m\nCCM_INSTANCE_TAGS=a=b,c=d\n")
	if s := parse(env, path); s.GoneAfter != 2*time.Minute || s.Tags["c"] != "d" || len(s.file) > 0 {
		t.Errorf("by the file: %s, %v, left %v", s.GoneAfter, s.Tags, s.file)
	}
	if s := parse(env, path, "--gone-after=3m"); s.GoneAfter != 3*time.Minute || len(s.file) != 0 {
		t.Errorf("by the flag: %s", s.GoneAfter)
	}
	env = func(key string) string {
		return map[string]string{"CCM_GONE_AFTER": "1m", "CCM_NODE_LABELS": "x=y"}[key]
	}
	if s := parse(env, path); s.GoneAfter != 2*time.Minute || s.Labels["x"] != "y" {
		t.Errorf("file and environment: %s, %v", s.GoneAfter, s.Labels)
	}
}
