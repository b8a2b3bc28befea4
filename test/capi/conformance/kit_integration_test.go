// SPDX-License-Identifier: Apache-2.0

//go:build integration

// Package conformance runs capi-conformance, the program, against providers at
// a real API server: ours on simulated and real machines, and another one.
package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/internal/checkreport"
	"github.com/outrigger/outrigger/test/capi"
	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
)

func TestMain(m *testing.M) { testns.Main(m) }

// everyCheck names the variable that has every check look outside, and every
// check run on machines that take their time.
const everyCheck = "OUTRIGGER_CAPI_CONFORMANCE"

func all(t *testing.T) bool {
	t.Helper()
	if os.Getenv(everyCheck) == "all" {
		return true
	}
	t.Logf("some checks look at machines outside, several minutes for all: %s=all go test -tags integration -timeout 60m ./test/capi/conformance", everyCheck)
	return false
}

// kit is capi-conformance with its settings for a provider.
type kit struct {
	kubeconfig, file string
	// flags are always given, outside only where the kit is alone: they show
	// what exists outside, and restart the manager.
	flags, outside []string
}

// filter is what managers of the tests are told to look at, and the kit too.
const filter = "--watch-filter=conformance"

// kitFor writes the file with a provider's objects.
func kitFor(t *testing.T, m *capi.Management, objects string) *kit {
	t.Helper()
	file := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(file, []byte(objects), 0o600); err != nil {
		t.Fatal(err)
	}
	return &kit{kubeconfig: m.Kubeconfig, file: file, flags: []string{"--quiet=1s", "--provision-timeout=3m", "--delete-timeout=3m", filter}}
}

// names are those of all checks, in their order.
func names(t *testing.T) (list []string) {
	t.Helper()
	out, err := exec.Command(stand.Binary(t, "capi-conformance"), "--list", "-o", "json").Output()
	var checks []checkreport.Check
	if err == nil {
		err = json.Unmarshal(out, &checks)
	}
	if err != nil || len(checks) == 0 {
		t.Fatalf("list %d checks: %v", len(checks), err)
	}
	for _, c := range checks {
		list = append(list, c.Name)
	}
	return list
}

// run runs checks one after the other and returns the report.
func (k *kit) run(ctx context.Context, program string, checks []string, flags ...string) (report checkreport.Document, err error) {
	args := slices.Concat([]string{"--kubeconfig", k.kubeconfig, "--file", k.file, "-o", "json", "--run", "^(" + strings.Join(checks, "|") + ")$"}, k.flags, flags)
	cmd := exec.CommandContext(ctx, program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	ended := cmd.Run()
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil {
		return report, fmt.Errorf("%w; no report: %w; %s", ended, err, &stderr)
	}
	if code := cmd.ProcessState.ExitCode(); code != min(report.Failed, 1) {
		return report, fmt.Errorf("exit code %d with %d failures: %s", code, report.Failed, &stderr)
	}
	if len(report.Checks) != len(checks) {
		return report, fmt.Errorf("%d of %d checks have a result", len(report.Checks), len(checks))
	}
	return report, nil
}

// alone runs checks one after the other, with a look outside.
func (k *kit) alone(t *testing.T, checks []string) []checkreport.Check {
	t.Helper()
	report, err := k.run(t.Context(), stand.Binary(t, "capi-conformance"), checks, k.outside...)
	if err != nil {
		t.Fatal(err)
	}
	return told(t, report.Checks)
}

// atOnce runs checks several at a time, without a look outside: they mostly
// wait.
func (k *kit) atOnce(t *testing.T, checks []string) []checkreport.Check {
	t.Helper()
	const kits = 8
	program := stand.Binary(t, "capi-conformance")
	var (
		wait    sync.WaitGroup
		mu      sync.Mutex
		results []checkreport.Check
	)
	for i := range kits {
		var mine []string
		for j := i; j < len(checks); j += kits {
			mine = append(mine, checks[j])
		}
		if len(mine) == 0 {
			continue
		}
		wait.Go(func() {
			report, err := k.run(t.Context(), program, mine)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			results = append(results, report.Checks...)
		})
	}
	wait.Wait()
	slices.SortFunc(results, func(a, b checkreport.Check) int { return slices.Index(checks, a.Name) - slices.Index(checks, b.Name) })
	return told(t, results)
}

// told logs results.
func told(t *testing.T, results []checkreport.Check) []checkreport.Check {
	t.Helper()
	var b strings.Builder
	for _, c := range results {
		fmt.Fprintf(&b, "%-8s %6.1fs %s %s\n", c.Status, c.Seconds, c.Name, strings.Join(c.Messages, "; "))
	}
	t.Logf("%d checks\n%s", len(results), &b)
	return results
}

// wantGreen: nothing fails, nothing is left, and nothing is skipped but what
// may be.
func wantGreen(t *testing.T, results []checkreport.Check, skipped ...string) {
	t.Helper()
	for _, c := range results {
		if c.Status == "failed" || len(c.Left) > 0 || c.Status == "skipped" && !slices.Contains(skipped, c.Name) {
			t.Errorf("%s: %s: %s; left %q", c.Name, c.Status, strings.Join(c.Messages, "; "), c.Left)
		}
	}
}

// serve returns a shell command that has a function of this process called.
func serve(t *testing.T, f func(w io.Writer) error) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var out bytes.Buffer
		if err := f(&out); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Write(out.Bytes())
	})}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return "/bin/busybox wget -q -O - http://" + l.Addr().String()
}

// restartCommand kills a manager and returns when the next one is ready.
func restartCommand(t *testing.T, m *capi.Manager) string {
	t.Helper()
	return serve(t, func(io.Writer) error {
		m.Kill()
		m.Return(t)
		return nil
	})
}

// definitions applies those of a provider's components, without the rest:
// what its webhooks are for is done by whoever runs them.
func definitions(t *testing.T, m *capi.Management, flag, name string) {
	t.Helper()
	var kept strings.Builder
	for _, document := range documents(t, m.Clusterctl(t, "generate", "provider", flag, name)) {
		if !strings.Contains(document, "\nkind: CustomResourceDefinition\n") {
			continue
		}
		u := map[string]any{}
		must(t, sigsyaml.Unmarshal([]byte(document), &u))
		unstructured.RemoveNestedField(u, "spec", "conversion") // nobody is there to do it
		data, err := sigsyaml.Marshal(u)
		must(t, err)
		kept.WriteString("---\n" + string(data))
	}
	apply(t, m, kept.String())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// apply is that of the server: Cluster API's definitions are too large for the
// annotation of the other way.
func apply(t *testing.T, m *capi.Management, manifests string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifests.yaml")
	if err := os.WriteFile(file, []byte(manifests), 0o600); err != nil {
		t.Fatal(err)
	}
	m.Kubectl(t, "apply", "--server-side", "--force-conflicts", "-f", file)
}

func documents(t *testing.T, text string) (all []string) {
	t.Helper()
	reader := yaml.NewDocumentDecoder(io.NopCloser(strings.NewReader(text)))
	defer reader.Close()
	buffer := make([]byte, 8<<20)
	for {
		n, err := reader.Read(buffer)
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, "\n"+string(buffer[:n]))
	}
}
