// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"crypto/tls"
	"flag"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/internal/controllers"
)

// run returns exit code, standard output and error. POD_NAMESPACE is set.
func run(env map[string]string, args ...string) (int, string, string) {
	var out, errs bytes.Buffer
	c := &Command{Stdout: &out, Stderr: &errs, Getenv: func(name string) string {
		if value, found := env[name]; found {
			return value
		}
		return map[string]string{"POD_NAMESPACE": "ns"}[name]
	}}
	code := c.Run(args)
	return code, out.String(), errs.String()
}

func TestBadInputIsNamed(t *testing.T) {
	type env = map[string]string
	for want, c := range map[string]struct {
		env  env
		args []string
	}{
		"variable TARGET_RUNTIMECLASS":                   {env: env{"TARGET_RUNTIMECLASS": "Kata Remote"}},
		"variable POD_VM_EXTENDED_RESOURCE":              {env: env{"POD_VM_EXTENDED_RESOURCE": "cpu"}},
		`"kubernetes.io/vm" is not an extended resource`: {env: env{"POD_VM_EXTENDED_RESOURCE": "kubernetes.io/vm"}},
		`variable POD_VM_EXTENDED_RESOURCE: "a.b/"`:      {env: env{"POD_VM_EXTENDED_RESOURCE": "a.b/"}},
		"variable TLS_MIN_VERSION":                       {env: env{"TLS_MIN_VERSION": "1.2"}},
		"variable TLS_CIPHER_SUITES: unknown":            {env: env{"TLS_CIPHER_SUITES": "X"}},
		"cannot be chosen with VersionTLS13":             {env: env{"TLS_MIN_VERSION": "VersionTLS13", "TLS_CIPHER_SUITES": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}},
		"variable POD_NAMESPACE":                         {env: env{"POD_NAMESPACE": "A B"}},
		"flag -metrics-bind-address":                     {args: []string{"-metrics-bind-address", "8443"}},
		"flag -health-probe-bind-address":                {args: []string{"-health-probe-bind-address=:99999"}},
		"flag -webhook-port":                             {args: []string{"-webhook-port", "0"}},
		"-leader-elect":                                  {args: []string{"-leader-elect=maybe"}},
		"flag -cert-dir":                                 {args: []string{"-cert-dir", t.TempDir()}},
		"flag -cert-secret":                              {args: []string{"-cert-secret", ""}},
		"flag -webhook-configuration":                    {args: []string{"-webhook-configuration", "A"}},
		"flag -log-level":                                {args: []string{"-log-level", "loud"}},
		"flag -log-format":                               {args: []string{"-log-format", "xml"}},
		"-nonsense":                                      {args: []string{"-nonsense"}},
		`unexpected argument "serve"`:                    {args: []string{"serve"}},
	} {
		t.Run(want, func(t *testing.T) {
			code, _, errs := run(c.env, c.args...)
			if code != 2 || !strings.Contains(errs, want) {
				t.Errorf("exit %d with %q, want 2 with %q", code, errs, want)
			}
		})
	}
}

func TestAllMistakesAtOnce(t *testing.T) {
	_, _, errs := run(map[string]string{"TARGET_RUNTIMECLASS": "A"}, "-log-level", "loud", "-webhook-port", "0")
	for _, want := range []string{"TARGET_RUNTIMECLASS", "-log-level", "-webhook-port"} {
		if !strings.Contains(errs, want) {
			t.Errorf("%q does not name %s", errs, want)
		}
	}
}

// parse returns the settings of a command line; POD_NAMESPACE is set.
func parse(t *testing.T, args ...string) *settings {
	t.Helper()
	s := newSettings()
	c := &Command{Getenv: func(name string) string { return map[string]string{"POD_NAMESPACE": "ns"}[name] }}
	if err := c.program(s).Load(flag.NewFlagSet("", flag.ContinueOnError), args); err != nil {
		t.Errorf("%q: %v", args, err)
	}
	return s
}

func TestDefaults(t *testing.T) {
	s := parse(t)
	got := []any{string(s.MetricsAddress), string(s.HealthAddress), s.LeaderElect, s.Port, s.CertDir, string(s.RuntimeClass), string(s.Slot), s.tlsMin, s.Namespace, Lease}
	want := []any{":8443", ":8081", false, 9443, "", "kata-remote", "kata.peerpods.io/vm", uint16(tls.VersionTLS12), "ns", "a3663802.confidential-containers"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

func TestHelpAndVersion(t *testing.T) {
	if code, out, _ := run(nil, "-help"); code != 0 || !strings.Contains(out, "TLS_CIPHER_SUITES") || !strings.Contains(out, "-leader-elect") {
		t.Errorf("help: exit %d, %s", code, out)
	}
	if code, out, _ := run(nil, "-version"); code != 0 || !strings.HasPrefix(out, "peerpods-webhook version ") {
		t.Errorf("version: exit %d, %s", code, out)
	}
}

// TestFlagsOfControllerRuntime: manifests of other versions have -zap-*.
func TestFlagsOfControllerRuntime(t *testing.T) {
	for args, want := range map[string]controllers.Log{
		"-zap-log-level=error --zap-encoder=json -zap-stacktrace-level=panic -zap-time-encoding=iso8601": {Level: controllers.Level(slog.LevelError), Format: "json"},
		"--zap-log-level=2":    {Level: -2, Format: "text"},
		"-zap-devel":           {Level: controllers.Level(slog.LevelDebug), Format: "text"},
		"-zap-encoder=console": {Format: "text"},
	} {
		if s := parse(t, strings.Fields(args)...); s.Level != want.Level || s.Format != want.Format {
			t.Errorf("%s: level %v, format %s", args, s.Level, s.Format)
		}
	}
}

func TestNoCluster(t *testing.T) {
	code, _, errs := run(map[string]string{"KUBECONFIG": "/nonexistent/kubeconfig"})
	if code != 1 || !strings.Contains(errs, "/nonexistent/kubeconfig") {
		t.Errorf("exit %d with %q", code, errs)
	}
}
