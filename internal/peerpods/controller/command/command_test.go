// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"flag"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/internal/program"
)

// run is one run with the namespace set unless env says otherwise.
func run(args []string, env map[string]string) (int, string, string) {
	var out, errs bytes.Buffer
	if env == nil {
		env = map[string]string{"PEERPODS_NAMESPACE": "ns"}
	}
	c := &Command{Stdout: &out, Stderr: &errs, Getenv: func(name string) string { return env[name] }}
	return c.Run(args), out.String(), errs.String()
}

func TestWrongFlagsAreNamed(t *testing.T) {
	for _, c := range []struct {
		args []string
		env  map[string]string
		want string
	}{
		{nil, map[string]string{}, "PEERPODS_NAMESPACE is not set"},
		{[]string{"-workers", "0"}, nil, "-workers 0: want 1 or more"},
		{[]string{"-sweep-grace", "0s"}, nil, "-sweep-grace 0s: want more than 0"},
		{[]string{"-sweep-period", "5"}, nil, "-sweep-period"},
		{[]string{"-log-level", "loud"}, nil, "want debug, info, warn or error"},
		{[]string{"-zap-encoder", "xml"}, nil, "want json or text"},
		{[]string{"-nonsense"}, nil, "-nonsense"},
		{[]string{"extra"}, nil, `unexpected argument "extra"`},
	} {
		code, out, errs := run(c.args, c.env)
		if code != program.ExitUsage || out != "" || !strings.Contains(errs, c.want) || !strings.HasPrefix(errs, "peerpod-ctrl: ") {
			t.Errorf("%v: exit %d, %q; want %d and %q", c.args, code, errs, program.ExitUsage, c.want)
		}
	}
}

func TestHelpAndVersion(t *testing.T) {
	code, out, errs := run([]string{"-h"}, map[string]string{})
	if code != program.ExitOK || errs != "" {
		t.Errorf("help: exit %d, %q", code, errs)
	}
	for _, want := range []string{"-metrics-bind-address", ":8080", "-health-probe-bind-address", ":8081", "-leader-elect", "PEERPODS_NAMESPACE", "peer-pods-cm", "peer-pods-secret"} {
		if !strings.Contains(out, want) {
			t.Errorf("help does not say %q", want)
		}
	}
	if code, out, _ := run([]string{"-version"}, map[string]string{}); code != program.ExitOK || !strings.HasPrefix(out, "peerpod-ctrl version ") {
		t.Errorf("version: exit %d, %q", code, out)
	}
}

// TestFlagsOfEarlierVersions: their manifests go on to work.
func TestFlagsOfEarlierVersions(t *testing.T) {
	s := new(settings)
	args := []string{"--zap-devel=true", "--zap-log-level=error", "--zap-encoder=json", "--zap-stacktrace-level=panic", "--zap-time-encoding=iso8601", "--leader-elect", "--metrics-bind-address=127.0.0.1:8080", "--health-probe-bind-address=:8081"}
	c := &Command{Getenv: func(name string) string { return map[string]string{"PEERPODS_NAMESPACE": "ns"}[name] }}
	if err := c.program(s).Load(flag.NewFlagSet("", flag.ContinueOnError), args); err != nil {
		t.Fatal(err)
	}
	if s.Level.String() != "ERROR" || s.Format != "json" || !s.LeaderElect || s.MetricsAddress != "127.0.0.1:8080" {
		t.Errorf("%+v", s)
	}
}

func TestNoCluster(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	code, _, errs := run(nil, nil)
	if code != program.ExitError || !strings.Contains(errs, "-kubeconfig") {
		t.Errorf("exit %d, %q", code, errs)
	}
}
