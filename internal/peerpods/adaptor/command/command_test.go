// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/provider/plugin"
)

func TestMain(m *testing.M) {
	provider.AddCloudProvider("fake", fake.NewManager())
	provider.AddCloudProvider("clash", clash{fake.NewManager()})
	os.Exit(m.Run())
}

// clash is a provider that takes a flag of the adaptor.
type clash struct{ *fake.Manager }

func (clash) ParseCmd(fs *flag.FlagSet) { fs.String("socket", "", "") }

// run returns what the program prints and its exit code.
func run(env map[string]string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	c := &Command{Stdout: &out, Stderr: &errs, Getenv: func(name string) string { return env[name] }}
	return c.Run(args), out.String(), errs.String()
}

func TestBadCommandLines(t *testing.T) {
	dir := t.TempDir()
	regular := filepath.Join(dir, "regular")
	if err := os.WriteFile(regular, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		env  map[string]string
		args string
		code int
		says []string
	}{
		"unknown provider":    {nil, "nimbus -socket x", 1, []string{"cloud-api-adaptor: Unsupported cloud provider: nimbus", "Supported cloud providers are:", "fake"}},
		"unknown from env":    {map[string]string{"CLOUD_PROVIDER": "nimbus"}, "", 1, []string{"Unsupported cloud provider: nimbus"}},
		"no provider":         {nil, "", 1, []string{"Usage:"}},
		"unknown flag":        {nil, "fake -nope", 2, []string{"-nope", "cloud-api-adaptor fake -h"}},
		"argument left over":  {nil, "fake extra", 2, []string{`"extra"`}},
		"flag no duration":    {nil, "fake -proxy-timeout 5", 2, []string{"proxy-timeout", `"5"`, "such as 90s"}},
		"env no duration":     {map[string]string{"PROXY_TIMEOUT": "5"}, "fake", 2, []string{`PROXY_TIMEOUT="5"`, "such as 90s"}},
		"env no number":       {map[string]string{"VXLAN_PORT": "many"}, "fake", 2, []string{`VXLAN_PORT="many"`, "from 1 to 65535"}},
		"env port too high":   {map[string]string{"FORWARDER_PORT": "65536"}, "fake", 2, []string{"FORWARDER_PORT"}},
		"env no bool":         {map[string]string{"TLS_SKIP_VERIFY": "yes please"}, "fake", 2, []string{"TLS_SKIP_VERIFY", "true or false"}},
		"probe port negative": {map[string]string{"PROBE_PORT": "-1"}, "fake", 2, []string{"PROBE_PORT"}},
		"env beside flag":     {map[string]string{"PROXY_TIMEOUT": "x"}, "fake -proxy-timeout 5m", 2, []string{"PROXY_TIMEOUT"}},
		"tunnel type":         {map[string]string{"TUNNEL_TYPE": "routing"}, "fake", 2, []string{"TUNNEL_TYPE", "vxlan"}},
		"TLS version":         {nil, "fake -tls-min-version 1.2", 2, []string{"VersionTLS12"}},
		"cipher suite":        {map[string]string{"TLS_CIPHER_SUITES": "ROT13"}, "fake", 2, []string{"TLS_CIPHER_SUITES", "ROT13"}},
		"suites with 1.3":     {map[string]string{"TLS_CIPHER_SUITES": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}, "fake -tls-min-version VersionTLS13", 2, []string{"VersionTLS13"}},
		"half an own CA":      {map[string]string{"CACERT_FILE": regular}, "fake", 2, []string{"belong together"}},
		"own CA not there":    {nil, "fake -ca-cert-file /no/a -cert-file /no/b -cert-key /no/c", 2, []string{"/no/a"}},
		"key without a CA":    {nil, "fake -server-identity kbs:///default/vm/1", 2, []string{"-server-identity", "-ca-cert-file"}},
		"key at no resource":  {nil, "fake -ca-cert-file " + regular + " -cert-file " + regular + " -cert-key " + regular + " -server-identity https://broker", 2, []string{"SERVER_IDENTITY", "kbs"}},
		"subnet":              {map[string]string{"POD_SUBNET_CIDRS": "10.0.0.0/16,ten"}, "fake", 2, []string{"POD_SUBNET_CIDRS", `"ten"`}},
		"initdata":            {map[string]string{"INITDATA": "not base64"}, "fake", 2, []string{"INITDATA"}},
		"auth file":           {nil, "fake -auth-file /no/such", 2, []string{"-auth-file", "/no/such"}},
		"vni":                 {nil, "fake -vxlan-min-id 99999999", 2, []string{"vxlan-min-id"}},
		"log level":           {nil, "fake -log-level loud", 2, []string{"debug or info"}},
		"pods dir relative":   {nil, "fake -pods-dir pods", 2, []string{"-pods-dir"}},
		"provider's own":      {nil, "fake -fake-capacity some", 2, []string{"provider fake", "-fake-capacity"}},
		"cloud is wrong":      {nil, "fake -cloud-config-verify -fake-faults verify:unauthenticated", 1, []string{"-cloud-config-verify", "credentials have expired"}},
		"flag taken":          {nil, "clash", 1, []string{"-socket"}},
		"socket is a file":    {map[string]string{"PROBE_PORT": "0"}, "fake -pods-dir " + dir + "/pods -socket " + regular, 1, []string{"not a socket"}},
		"no relay program":    {map[string]string{"PROBE_PORT": "0"}, "fake -pods-dir " + dir + "/pods -socket " + dir + "/h.sock -relay-path /no/agent-relay", 1, []string{"-relay-path"}},
	} {
		t.Run(what, func(t *testing.T) {
			code, stdout, stderr := run(c.env, strings.Fields(c.args)...)
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, part := range c.says {
				if !strings.Contains(stderr, part) {
					t.Errorf("stderr lacks %q:\n%s", part, stderr)
				}
			}
			if stdout != "" {
				t.Errorf("stdout: %s", stdout)
			}
		})
	}
}

// TestNamesAndDefaults holds the names that existing installations use.
func TestNamesAndDefaults(t *testing.T) {
	const want = `
socket REMOTE_HYPERVISOR_ENDPOINT /run/peerpod/hypervisor.sock
pods-dir PODS_DIR /run/peerpod/pods
forwarder-port FORWARDER_PORT 15150
proxy-timeout PROXY_TIMEOUT 5m
pause-image PAUSE_IMAGE
initdata INITDATA
cloud-config-verify CLOUD_CONFIG_VERIFY false
peerpods-limit-per-node PEERPODS_LIMIT_PER_NODE 10
enable-scratch-space ENABLE_SCRATCH_SPACE false
ca-cert-file CACERT_FILE
cert-file CERT_FILE
cert-key CERT_KEY
tls-skip-verify TLS_SKIP_VERIFY false
tls-min-version TLS_MIN_VERSION
tls-cipher-suites TLS_CIPHER_SUITES
disable-tls  false
tunnel-type TUNNEL_TYPE auto
vxlan-port VXLAN_PORT 4789
vxlan-min-id  555000
host-interface
ext-network-via-podvm EXTERNAL_NETWORK_VIA_PODVM false
pod-subnet-cidrs POD_SUBNET_CIDRS
 PROBE_PORT 8000
`
	have := map[string]bool{}
	for f := range new(settings).bind().All() {
		have[strings.TrimRight(fmt.Sprintf("%s %s %s", f.Flag, f.Env, f.Default), " ")] = true
	}
	for line := range strings.SplitSeq(strings.Trim(want, "\n"), "\n") {
		if !have[strings.TrimRight(line, " ")] {
			t.Errorf("no setting %q", line)
		}
	}
}

func TestFlagWinsOverVariableWinsOverDefault(t *testing.T) {
	env := map[string]string{"VXLAN_PORT": "1111", "FORWARDER_PORT": "2222", "PROXY_TIMEOUT": "", "TLS_SKIP_VERIFY": "TRUE", "ENABLE_SCRATCH_SPACE": "0", "POD_SUBNET_CIDRS": " 10.0.0.0/8 , fd00::/8,"}
	c := &Command{Stdout: new(bytes.Buffer), Stderr: new(bytes.Buffer), Getenv: func(name string) string { return env[name] }}
	cfg, err := c.configure("fake", fake.NewManager(), []string{"-forwarder-port", "3333", "-disable-tls", "--cluster-id=c1"})
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintln(cfg.VXLANPort, cfg.Forwarder, cfg.ProxyTimeout, cfg.SkipVerify, cfg.Scratch, cfg.DisableTLS, cfg.ClusterID, cfg.PodSubnets, cfg.RelaySocket)
	if diff := cmp.Diff("1111 3333 5m0s true false true c1 [10.0.0.0/8 fd00::/8] /run/peerpod/relay.sock\n", got); diff != "" {
		t.Error(diff)
	}
}

// TestWhatHasNoEffectIsSaid: a variable of other versions is not ignored in silence, and said once; what is off is
// not spoken of.
func TestWhatHasNoEffectIsSaid(t *testing.T) {
	env := map[string]string{"RUNTIMECLASS_NAME": "kata-remote", "SECURE_COMMS": "true", "SECURE_COMMS_NO_TRUSTEE": "False", "PAUSE_IMAGE": "pause:3.9",
		"PROXY_TIMEOUT": "ends it"}
	code, _, stderr := run(env, "fake")
	if code != 2 {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"RUNTIMECLASS_NAME has no effect and can be removed: ", "TARGET_RUNTIMECLASS", "SECURE_COMMS has", "mutual TLS", "PAUSE_IMAGE has"} {
		if strings.Count(stderr, want) != 1 {
			t.Errorf("not once %q in:\n%s", want, stderr)
		}
	}
	if strings.Count(stderr, "has no effect") != 3 {
		t.Errorf("not the three that are on:\n%s", stderr)
	}
	if _, _, stderr := run(map[string]string{"PROXY_TIMEOUT": "ends it"}, "fake"); strings.Contains(stderr, "has no effect") {
		t.Errorf("without any:\n%s", stderr)
	}
}

// TestEarlierNamesCount: a key of an old ConfigMap has the meaning of the one that took its place.
func TestEarlierNamesCount(t *testing.T) {
	env := map[string]string{"ENABLE_SCRATCH_DISK": "perhaps"}
	code, _, stderr := run(env, "fake")
	if code != 2 || !strings.Contains(stderr, `ENABLE_SCRATCH_SPACE="perhaps"`) || !strings.Contains(stderr, "ENABLE_SCRATCH_DISK is an earlier name of ENABLE_SCRATCH_SPACE") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	env["ENABLE_SCRATCH_SPACE"], env["PROXY_TIMEOUT"] = "false", "ends it"
	if _, _, stderr := run(env, "fake"); strings.Contains(stderr, "perhaps") || !strings.Contains(stderr, "PROXY_TIMEOUT") {
		t.Errorf("the earlier name counts beside the new one:\n%s", stderr)
	}
}

// sharing is a provider that has a -cluster-id too.
type sharing struct {
	*fake.Manager
	id *string
}

func (s sharing) ParseCmd(fs *flag.FlagSet) { *s.id = *fs.String("cluster-id", "", "") }

func TestClusterIDIsSharedWithTheProvider(t *testing.T) {
	c := &Command{Stdout: new(bytes.Buffer), Stderr: new(bytes.Buffer), Getenv: func(string) string { return "" }}
	cfg, err := c.configure("ibmcloud", sharing{fake.NewManager(), new(string)}, []string{"-cluster-id", "theirs"})
	if err != nil || cfg.ClusterID != "theirs" {
		t.Errorf("cluster id %q, %v", cfg.ClusterID, err)
	}
}

func TestHelpTeachesEveryFlagAndVariable(t *testing.T) {
	for _, args := range [][]string{{"fake", "-h"}, {"fake", "--help"}, {"help", "fake"}} {
		code, stdout, stderr := run(map[string]string{"PROXY_TIMEOUT": "malformed"}, args...)
		if code != 0 || stderr != "" {
			t.Errorf("%v: exit code %d, stderr %q", args, code, stderr)
		}
		for f := range new(settings).bind().All() {
			if f.Flag != "" && !strings.Contains(stdout, "-"+f.Flag) || !strings.Contains(stdout, "["+f.Env+"]") && f.Env != "" {
				t.Errorf("%v lacks -%s [%s]", args, f.Flag, f.Env)
			}
		}
		for _, part := range []string{"Provider fake:", "-fake-dir", "Pod network:", "(default 5m)"} {
			if !strings.Contains(stdout, part) {
				t.Errorf("%v lacks %q", args, part)
			}
		}
	}
	for _, args := range [][]string{{"help"}, {"-h"}, {"--help"}} {
		if code, stdout, _ := run(nil, args...); code != 0 || !strings.Contains(stdout, "Usage:") {
			t.Errorf("%v: exit code %d, %q", args, code, stdout)
		}
	}
}

func TestMarkdownHasARowForEverySetting(t *testing.T) {
	_, stdout, _ := run(nil, "help", "--markdown")
	rows := strings.Count(stdout, "\n| `") + strings.Count(stdout, "\n|  |")
	want := len(plugin.Env())
	for range new(settings).bind().All() {
		want++
	}
	if rows != want {
		t.Errorf("%d rows, want %d:\n%s", rows, want, stdout)
	}
	if host, err := os.Hostname(); err == nil && strings.Contains(stdout, "`"+host+"`") {
		t.Error("the reference names this machine")
	}
}

func TestVersion(t *testing.T) {
	for _, arg := range []string{"version", "--version"} {
		if code, stdout, _ := run(nil, arg); code != 0 || !strings.HasPrefix(stdout, "cloud-api-adaptor version ") {
			t.Errorf("%s: exit code %d, %q", arg, code, stdout)
		}
	}
}

func TestLookAhead(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "text"},
		{[]string{"-log-format", "json"}, "json"},
		{[]string{"--log-format=json", "-x"}, "json"},
		{[]string{"-log-format=json", "-log-format=text"}, "text"},
		{[]string{"-log-formats=json", "log-format=json", "-log-format"}, "text"},
	} {
		if got := lookAhead(test.args, "log-format", "text"); got != test.want {
			t.Errorf("%q: %q, want %q", test.args, got, test.want)
		}
	}
}
