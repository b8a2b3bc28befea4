// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"context"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/internal/capi/outrigger"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/fake"
)

func run(args ...string) (code int, out, errs string) {
	var stdout, stderr bytes.Buffer
	c := &Command{Stdout: &stdout, Stderr: &stderr, Getenv: func(string) string { return "" }}
	code = c.Run(args)
	return code, stdout.String(), stderr.String()
}

func TestHelpHasEveryFlag(t *testing.T) {
	code, out, _ := run("--help")
	if code != exitOK || !strings.Contains(out, "clusterctl") {
		t.Fatalf("code %d: %s", code, out)
	}
	Flags().VisitAll(func(f *flag.Flag) {
		if !strings.Contains(out, "  --"+f.Name) || f.Usage == "" {
			t.Errorf("help lacks --%s", f.Name)
		}
	})
}

// TestFlagsOfClusterAPI are those that Cluster API's managers are started with,
// in every form that manifests and Tilt have.
func TestFlagsOfClusterAPI(t *testing.T) {
	s := newSettings(func(string) string { return "" })
	err := s.parse(strings.Fields("--leader-elect --leader-elect=true --namespace=a --watch-filter=b --webhook-port=9443 --webhook-cert-dir=/c --health-addr=:9440 " +
		"--diagnostics-address=:8443 --insecure-diagnostics=false --profiler-address=:6060 --sync-period=10m --kube-api-qps=100 --kube-api-burst=200 " +
		"--clustercache-client-qps=20 --clustercache-client-burst=30 --feature-gates=MachinePool=false,ClusterTopology=true --dockermachine-concurrency=3 " +
		"-zap-log-level=debug --v=2 --kubeconfig=/d --docker-node-image=i"))
	if err != nil {
		t.Fatal(err)
	}
	if s.namespace != "a" || s.watchFilter != "b" || s.gates["MachinePool"] || !s.gates["ClusterTopology"] || *s.concurrency["dockermachine"] != 3 || !s.leaderElect || s.docker.NodeImage != "i" {
		t.Errorf("%+v", s)
	}
}

func TestBadFlagsAreNamed(t *testing.T) {
	for args, want := range map[string]string{
		"--feature-gates=Nonsense=true":             "MachinePool",
		"--feature-gates=MachinePool":               "want MachinePool=true",
		"--dockermachine-concurrency=0":             "--dockermachine-concurrency",
		"--sync-period=0s":                          "--sync-period",
		"--webhook-port=70000":                      "--webhook-port",
		"--kube-api-qps=0":                          "--kube-api-qps",
		"--failure-domain=a":                        "NAME=FILE",
		"--failure-domain=a=f":                      "--provider",
		"--failure-domain=a=f --failure-domain=a=g": "twice",
		"--log-level=loud":                          "want debug",
		"--log-format=xml":                          "json or text",
		"start":                                     "unexpected argument",
		"--nonsense":                                "--help",
	} {
		code, _, errs := run(strings.Fields(args)...)
		if code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: code %d, %q; want %q", args, code, errs, want)
		}
	}
}

type domainConfig struct {
	Token config.Secret `env:"DOMAIN_TOKEN" required:"true" usage:"token"`
	Zone  string        `env:"DOMAIN_ZONE" usage:"zone"`
}

// TestFailureDomainsHaveSettingsOfTheirOwn: what a file does not say is as in
// the environment.
func TestFailureDomainsHaveSettingsOfTheirOwn(t *testing.T) {
	var opened []domainConfig
	manager := config.New("domains", func(c domainConfig) (provider.Provider, error) {
		opened = append(opened, c)
		return fake.New(fake.Options{})
	})
	provider.AddCloudProvider("domains", manager)
	t.Setenv("DOMAIN_TOKEN", "secret")
	file := filepath.Join(t.TempDir(), "a.env")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := newSettings(os.Getenv)
	s.provider, s.domains = "domains", map[string]string{"a": file}
	for text, want := range map[string]string{"DOMAIN_ZONE": "line 1", "DOMAIN_ZOEN=a\nDOMAIN_TOKEN=hidden": "DOMAIN_ZOEN"} {
		write(text)
		if _, err := openCloud(context.Background(), s, os.Getenv, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
	opened = nil
	write("# the first zone\nDOMAIN_ZONE=zone-a\n")
	c, err := openCloud(context.Background(), s, os.Getenv, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if len(opened) != 2 || opened[0].Zone != "" || opened[1].Zone != "zone-a" || opened[1].Token.Reveal() != "secret" {
		t.Errorf("opened with %+v", opened)
	}
	o := c.options(s, outrigger.Options{})
	if o.Domains["a"] == nil || o.Provider == nil {
		t.Errorf("options %+v", o)
	}
	if err := c.close(); err != nil {
		t.Error(err)
	}
}
