// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"errors"
	"flag"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/outrigger/outrigger/internal/machines/outrigger"
	"github.com/outrigger/outrigger/internal/program"
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

// parse returns the settings of a command line.
func parse(args ...string) (*settings, error) {
	s := new(settings)
	c := &Command{Getenv: func(string) string { return "" }}
	return s, c.program(s).Load(flag.NewFlagSet("", flag.ContinueOnError), args)
}

func TestHelpHasEveryFlag(t *testing.T) {
	code, out, _ := run("--help")
	if code != program.ExitOK || !strings.Contains(out, "clusterctl") {
		t.Fatalf("code %d: %s", code, out)
	}
	for f := range Settings().All() {
		if !strings.Contains(out, "  --"+f.Flag) || f.Usage == "" {
			t.Errorf("help lacks --%s", f.Flag)
		}
	}
}

// TestFlagsOfClusterAPI are those that Cluster API's managers are started with,
// in every form that manifests and Tilt have.
func TestFlagsOfClusterAPI(t *testing.T) {
	s, err := parse(strings.Fields("--leader-elect --leader-elect=true --namespace=a --watch-filter=b --webhook-port=9443 --webhook-cert-dir=/c --health-addr=:9440 " +
		"--diagnostics-address=:8443 --insecure-diagnostics=false --profiler-address=:6060 --sync-period=10m --kube-api-qps=100 --kube-api-burst=200 " +
		"--clustercache-client-qps=20 --clustercache-client-burst=30 --feature-gates=MachinePool=false,ClusterTopology=true --dockermachine-concurrency=3 " +
		"-zap-log-level=debug --v=2 --kubeconfig=/d --docker-node-image=i")...)
	if err != nil {
		t.Fatal(err)
	}
	if s.Namespace != "a" || s.WatchFilter != "b" || s.Gates["MachinePool"] || !s.Gates["ClusterTopology"] || s.DockerMachines != 3 || !s.LeaderElect || s.NodeImage != "i" || s.Level != -2 {
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
		"--failure-domain=b/a=f --more-providers=c": "--more-providers",
		"--more-providers=a,a":                      "twice",
		"--more-providers=a=":                       "NAME=FILE",
		"--provider=a --more-providers=b,a":         "--provider",
		"--failure-domain=a=f --failure-domain=a=g": "twice",
		"--log-level=loud":                          "want debug",
		"--log-format=xml":                          "json or text",
		"start":                                     "unexpected argument",
		"--nonsense":                                "--help",
	} {
		code, _, errs := run(strings.Fields(args)...)
		if code != program.ExitUsage || !strings.Contains(errs, want) {
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
	s, err := parse("--provider=domains", "--failure-domain=a="+file)
	if err != nil {
		t.Fatal(err)
	}
	o := opener{settings: s, getenv: os.Getenv, logger: slog.New(slog.DiscardHandler)}
	for text, want := range map[string]string{"DOMAIN_ZONE": "line 1", "DOMAIN_ZOEN=a\nDOMAIN_TOKEN=hidden": "DOMAIN_ZOEN"} {
		write(text)
		if _, err := o.open(t.Context(), "domains"); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
	opened = nil
	write("# the first zone\nDOMAIN_ZONE=zone-a\n")
	c, err := o.open(t.Context(), "domains")
	if err != nil {
		t.Fatal(err)
	}
	if len(opened) != 2 || opened[0].Zone != "" || opened[1].Zone != "zone-a" || opened[1].Token.Reveal() != "secret" {
		t.Errorf("opened with %+v", opened)
	}
	if o := c.options(s, outrigger.Options{}); o.Domains["a"] == nil || o.Provider == nil || o.Name != "domains" {
		t.Errorf("options %+v", o)
	}
	if err := c.close(); err != nil {
		t.Error(err)
	}
}

// TestMoreProvidersHaveSettingsOfTheirOwn: of a file or a Secret, and none of the
// environment, which is the default's; so have their failure domains.
func TestMoreProvidersHaveSettingsOfTheirOwn(t *testing.T) {
	opened := map[string]domainConfig{}
	for _, name := range []string{"first", "second", "third"} {
		provider.AddCloudProvider(name, config.New(name, func(c domainConfig) (provider.Provider, error) {
			opened[name+" "+c.Zone] = c
			return fake.New(fake.Options{})
		}))
	}
	provider.AddCloudProvider("unconfigurable", struct{ provider.CloudProvider }{})
	t.Setenv("DOMAIN_TOKEN", "of the default")
	t.Setenv("POD_NAMESPACE", "ours")
	folder := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(folder, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	good, zone := write("good", "DOMAIN_TOKEN=of the second\n"), write("zone", "DOMAIN_ZONE=z\n")
	secrets := fakeclient.NewClientBuilder().WithObjects(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ours", Name: "provider-third"}, Data: map[string][]byte{"DOMAIN_TOKEN": []byte("of the third")}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ours", Name: "provider-first"}, Data: map[string][]byte{"DOMAIN_TOKNE": []byte("hidden")}},
	).Build()
	openAll := func(getenv func(string) string, args ...string) error {
		t.Helper()
		clear(opened)
		s, err := parse(args...)
		if err != nil {
			t.Fatal(err)
		}
		o := opener{settings: s, getenv: getenv, secrets: secrets, logger: slog.New(slog.DiscardHandler)}
		_, closeAll, err := o.openAll(t.Context(), outrigger.Options{})
		return errors.Join(err, closeAll())
	}
	err := openAll(os.Getenv, "--provider=first", "--more-providers=second="+good+",third", "--failure-domain=second/z="+zone, "--failure-domain=z="+zone)
	got := map[string]string{}
	for name, c := range opened {
		got[name] = c.Token.Reveal()
	}
	want := map[string]string{"first ": "of the default", "first z": "of the default", "second ": "of the second", "second z": "of the second", "third ": "of the third"}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, opened %v, want %v", err, got, want)
	}
	nowhere := func(name string) string { return map[string]string{"DOMAIN_TOKEN": "x"}[name] }
	for _, row := range []struct {
		getenv func(string) string
		args   string
		want   []string
	}{
		{os.Getenv, "--more-providers=second=" + write("empty", ""), []string{"--more-providers second=", "DOMAIN_TOKEN"}},
		{os.Getenv, "--more-providers=second=" + write("wrong", "DOMAIN_ZOEN=hidden\n"), []string{"--more-providers second=", "DOMAIN_ZOEN"}},
		{os.Getenv, "--more-providers=second=" + filepath.Join(folder, "none"), []string{"--more-providers second=", "no such file"}},
		{os.Getenv, "--more-providers=first", []string{"--more-providers first (Secret ours/provider-first)", "DOMAIN_TOKNE"}},
		{os.Getenv, "--more-providers=second", []string{"Secret ours/provider-second", "not found", "second=FILE"}},
		{nowhere, "--more-providers=third", []string{"POD_NAMESPACE", "provider-third", "third=FILE"}},
		{os.Getenv, "--more-providers=fourth=" + good, []string{"--more-providers fourth=", "Unsupported cloud provider"}},
		{os.Getenv, "--more-providers=unconfigurable=" + good, []string{"--more-providers unconfigurable=", "config.New"}},
	} {
		err := openAll(row.getenv, row.args)
		for _, want := range row.want {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden") {
				t.Errorf("%s: %v; want %q", row.args, err, want)
			}
		}
	}
}
