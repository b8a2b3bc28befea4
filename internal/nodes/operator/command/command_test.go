// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/internal/nodes/operator/bundles"
	"github.com/outrigger/outrigger/internal/program"
)

func call(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), args, &out, &err)
	return code, out.String(), err.String()
}

// mine writes a bundle of one's own: that of another platform, renamed, and
// with a change.
func mine(t *testing.T, old, new string) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "mycloud")
	if err := os.CopyFS(filepath.Dir(folder), bundles.Folders()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(filepath.Dir(folder), "libvirt"), folder); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "bundle.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(strings.ReplaceAll(string(text), "Libvirt", "MyCloud"), old, new, 1)
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

func TestWrongUsage(t *testing.T) {
	for args, want := range map[string]string{
		"nothing":                                       `unknown command "nothing"`,
		"render":                                        "missing: --dest-dir, --cluster-infrastructure-file, --images-file; or give --platform",
		"render x":                                      `unexpected argument "x"`,
		"render --no-such-flag":                         "--help",
		"render --platform nobody":                      `--platform: no bundle is named "nobody"; there are alibabacloud,`,
		"render --platform aws --dest-dir x":            "--dest-dir means nothing with --platform",
		"render --dest-dir x --flavor openshift":        "--flavor means nothing without --platform",
		"render --platform aws -o xml":                  `--output "xml": want yaml or json`,
		"render --platform aws --tls-min-version TLS9":  `--tls-min-version: unknown tls version "TLS9"`,
		"render --platform aws --tls-cipher-suites x":   "--tls-cipher-suites: Cipher suite x not supported",
		"render --platform aws --feature-gates A=maybe": `--feature-gates "A=maybe": invalid value of A: maybe`,
		"diff":                "--platform is missing",
		"diff --platform aws": "missed images in config",
		"diff --platform aws --image cloudControllerManagerAWS=x --kubeconfig /nonexistent/x": "find the cluster",
		"bundle nothing":                            `unknown command "nothing"`,
		"operator x":                                `unexpected argument "x"`,
		"operator --namespace A":                    `--namespace "A": a lowercase RFC 1123 label`,
		"operator --tls-min-version TLS9":           `--tls-min-version: unknown tls version "TLS9"; there are VersionTLS10,`,
		"operator --tls-cipher-suites x":            "--tls-cipher-suites: Cipher suite x not supported",
		"operator --bundle-dir /nonexistent/x":      "--bundle-dir: ",
		"operator --metrics-bind-address nonsense":  `--metrics-bind-address "nonsense": want HOST:PORT, :PORT or 0`,
		"operator --health-addr :99999":             `--health-addr ":99999": want HOST:PORT`,
		"operator --requeue 0":                      "--requeue 0: want more than 0",
		"operator --degraded-after -1s":             "--degraded-after -1s: want 0 or more",
		"operator --leader-elect-lease-duration 1s": "--leader-elect-lease-duration (1s) must exceed --leader-elect-renew-deadline",
		"operator --leader-elect-resource-lock x":   `--leader-elect-resource-lock "x": want leases`,
		"config-sync x":                             `unexpected argument "x"`,
		"config-sync --namespace openshift-config":  "that is where configurations come from",
		"config-sync --health-addr 9440":            `--health-addr "9440": want HOST:PORT`,
		"bundle show":                               "name one bundle or base",
		"bundle show nobody":                        `no bundle is named "nobody"`,
		"bundle list -o xml":                        `--output "xml": want table or json`,
		"bundle verify --platform nobody":           `--platform: no bundle is named "nobody"`,
	} {
		code, out, stderr := call(t, strings.Fields(args)...)
		if code != program.ExitUsage || out != "" || !strings.HasPrefix(stderr, "ccm-operator: ") || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %q, want %q", args, code, stderr, want)
		}
	}
}

func TestFailuresThatAreNotUsage(t *testing.T) {
	for args, want := range map[string]string{
		"render --platform aws": "aws: missed images in config: cloudControllerManagerAWS\ngive --images-file, or --image cloudControllerManagerAWS=IMAGE",
		"render --platform aws --image cloudcontrollermanageraws=x":                                     "give --images-file, or --image cloudControllerManagerAWS=IMAGE; given are cloudcontrollermanageraws",
		"render --platform libvirt --image cloudControllerManagerOutrigger=x":                           "not for openshift clusters",
		"render --platform aws --flavor k3s --image cloudControllerManagerAWS=x":                        "ccm-operator: flavor \"k3s\": want openshift or kubernetes\n",
		"render --platform aws --namespace A --image cloudControllerManagerAWS=x":                       `namespace "A"`,
		"render --platform aws --images-file /nonexistent/x":                                            "error reading --images-file",
		"operator --kubeconfig /nonexistent/x":                                                          "find the cluster: stat /nonexistent/x",
		"config-sync --kubeconfig /nonexistent/x":                                                       "find the cluster: stat /nonexistent/x",
		"render --platform aws --bundle-dir /nonexistent/x":                                             "--bundle-dir: ",
		"render --dest-dir x --cluster-infrastructure-file /nonexistent/x --images-file /nonexistent/y": "error reading --cluster-infrastructure-file",
	} {
		if code, out, stderr := call(t, strings.Fields(args)...); code != program.ExitError || out != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %q, want %q", args, code, stderr, want)
		}
	}
}

// TestDiffReachesNobody tells it once, and not for each object.
func TestDiffReachesNobody(t *testing.T) {
	refuse := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer refuse.Close()
	for host, want := range map[string]string{"http://127.0.0.1:1": "connection refused", refuse.URL: "it does not take the credentials"} {
		file := filepath.Join(t.TempDir(), "kubeconfig")
		text := `{"apiVersion": "v1", "kind": "Config", "current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "x"}}], "clusters": [{"name": "x", "cluster": {"server": "` + host + `"}}]}`
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		code, out, stderr := call(t, "diff", "--platform", "libvirt", "--flavor", "kubernetes", "--image", "cloudControllerManagerOutrigger=x", "--kubeconfig", file)
		if code != program.ExitUsage || out != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "reach the cluster at "+host) || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %q, want %q", host, code, stderr, want)
		}
	}
}

func TestRenderPrints(t *testing.T) {
	args := []string{
		"render", "--platform", "openstack", "--flavor", "kubernetes", "--namespace", "ns", "--image", "cloudControllerManagerOpenStack=r/i:1",
		"--infrastructure-name", "c-1", "--single-replica", "--http-proxy", "http://p", "--tls-min-version", "VersionTLS13",
	}
	code, out, stderr := call(t, args...)
	if code != program.ExitOK || stderr != "" {
		t.Fatal(code, stderr)
	}
	for _, want := range []string{"image: r/i:1", "namespace: ns", "--cluster-name=c-1", "replicas: 1", "value: http://p", "--tls-min-version=VersionTLS13", "kind: ServiceAccount", "node-role.kubernetes.io/control-plane"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not printed", want)
		}
	}
	code, out, _ = call(t, append(args, "-o", "json")...)
	var list struct{ Kind string }
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != program.ExitOK || list.Kind != "List" {
		t.Errorf("exit code %d, %v, %s", code, err, list.Kind)
	}
}

func TestABundleOfOnesOwnNeedsNoCode(t *testing.T) {
	folder := mine(t, "", "")
	code, out, stderr := call(t, "render", "--bundle-dir", folder, "--platform", "mycloud", "--flavor", "kubernetes", "--image", "cloudControllerManagerOutrigger=r/i:1")
	if code != program.ExitOK || !strings.Contains(out, "infrastructure.openshift.io/cloud-controller-manager: MyCloud") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	if code, out, _ := call(t, "bundle", "list", "--bundle-dir", folder); code != program.ExitOK || !strings.Contains(out, "\nmycloud ") || !strings.Contains(out, "\nlibvirt ") {
		t.Errorf("exit code %d, %s", code, out)
	}
}

// TestTheManualsBundle: the smallest bundle of the manual keeps all rules.
func TestTheManualsBundle(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/ccm-operator.md")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	blocks := regexp.MustCompile("(?s)```yaml\n# (mycloud/[^\n]+)\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 2 {
		t.Fatalf("the manual has %d files", len(blocks))
	}
	for _, b := range blocks {
		name := filepath.Join(folder, b[1])
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(b[2]), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if code, out, stderr := call(t, "bundle", "verify", filepath.Join(folder, "mycloud")); code != program.ExitOK || !strings.Contains(out, "keeps all rules") {
		t.Errorf("exit code %d, %s%s", code, out, stderr)
	}
}

func TestVerify(t *testing.T) {
	code, out, _ := call(t, "bundle", "verify", "--platform", "aws,AzureStackHub")
	if code != program.ExitOK || out != "aws: keeps all rules\nazurestackhub: keeps all rules\n" {
		t.Errorf("exit code %d, %s", code, out)
	}
	good, red := mine(t, "", ""), mine(t, "program: /usr/local/bin/cloud-controller-manager", "program: x\n    flags: [--leader-elect=false]")
	code, out, _ = call(t, "bundle", "verify", good, red)
	for _, want := range []string{
		good + ": keeps all rules\n", red + ": breaks rules\n",
		"  rule 7 leader-election: Deployment libvirt-cloud-controller-manager for kubernetes: container cloud-controller-manager has --leader-elect=false, want true\n    why: One manager", "    fix: give",
	} {
		if code != program.ExitError || !strings.Contains(out, want) {
			t.Errorf("exit code %d, %q is not in\n%s", code, want, out)
		}
	}
	if n := strings.Count(out, "rule 7"); n != 1 {
		t.Errorf("rule 7 is told %d times", n)
	}
	broken := mine(t, "kind: Bundle", "kind: Pod")
	if code, out, _ := call(t, "bundle", "verify", broken); code != program.ExitError || !strings.Contains(out, broken+": cannot be rendered\n") {
		t.Errorf("exit code %d, %s", code, out)
	}
	if code, out, _ := call(t, "bundle", "verify", "/nonexistent/x"); code != program.ExitError || !strings.Contains(out, "no such file") {
		t.Errorf("exit code %d, %s", code, out)
	}
}

func TestVerifyAsJSON(t *testing.T) {
	red := mine(t, "program: /usr/local/bin/cloud-controller-manager", "program: x\n    flags: [--configure-cloud-routes=true]")
	code, out, _ := call(t, "bundle", "verify", red, "-o", "json")
	var all []struct {
		Bundle, Error string
		Findings      []struct {
			Rule    struct{ Number int }
			Problem string
		}
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil || code != program.ExitError || len(all) != 1 || len(all[0].Findings) == 0 || all[0].Findings[0].Rule.Number != 8 {
		t.Errorf("exit code %d, %v, %s", code, err, out)
	}
	code, out, _ = call(t, "bundle", "verify", "--list", "-o", "json")
	var rules []struct{ Number int }
	if err := json.Unmarshal([]byte(out), &rules); err != nil || code != program.ExitOK || len(rules) != 15 {
		t.Errorf("exit code %d, %v, %d rules", code, err, len(rules))
	}
}

func TestShow(t *testing.T) {
	for args, want := range map[string]string{
		"aws":                      "# aws/bundle.yaml\n# SPDX-License-Identifier: Apache-2.0\napiVersion: ccm.outrigger.dev/v1alpha1",
		"AWS":                      "# aws/bootstrap/pod.yaml\n",
		"cloud-controller-manager": "kind: Deployment\n",
	} {
		if code, out, stderr := call(t, "bundle", "show", args); code != program.ExitOK || !strings.Contains(out, want) {
			t.Errorf("%s: exit code %d, %s%s", args, code, out, stderr)
		}
	}
	if code, out, _ := call(t, "bundle", "show", "aws", "-o", "json"); code != program.ExitOK || !json.Valid([]byte(out)) {
		t.Errorf("exit code %d, %s", code, out)
	}
}

func TestHelpAndCompletion(t *testing.T) {
	for _, args := range [][]string{nil, {"--help"}, {"render", "--help"}, {"bundle"}, {"bundle", "verify", "--help"}} {
		if code, out, _ := call(t, args...); code != program.ExitOK || !strings.Contains(out, "Usage:") {
			t.Errorf("%v: exit code %d", args, code)
		}
	}
	for args, want := range map[string]string{
		"render --platform ":        "azurestackhub",
		"bundle show ":              "cloud-node-manager",
		"bundle verify --platform ": "openstack",
		"render --flavor ":          "kubernetes",
		"render -o ":                "json",
		"bundle list -o ":           "table",
	} {
		if code, out, _ := call(t, append([]string{cobra.ShellCompRequestCmd}, strings.Split(args, " ")...)...); code != program.ExitOK || !strings.Contains(out, want) {
			t.Errorf("%s: %s", args, out)
		}
	}
}
