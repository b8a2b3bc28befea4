// SPDX-License-Identifier: Apache-2.0

package providercheck

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/outrigger/outrigger/internal/checkreport"
	"github.com/outrigger/outrigger/internal/cli/providercheck/record"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/provider/plugin/wire"
	"github.com/outrigger/outrigger/provider/serve"
)

// mini is the provider of these tests: the fake in a folder, with one wrong
// deletion when it is told so.
type mini struct {
	Dir    string        `flag:"mini-dir" env:"MINI_DIR" required:"true" usage:"folder of the cloud"`
	Broken bool          `flag:"mini-broken" env:"MINI_BROKEN" usage:"delete nothing"`
	Token  config.Secret `flag:"mini-token" env:"MINI_TOKEN" usage:"a secret"`
	Region string        `env:"MINI_REGION" usage:"a setting without a flag"`
	URL    string        `flag:"mini-url" env:"MINI_URL" usage:"is asked for something at start"`
	User   string        `flag:"mini-user" env:"MINI_USER" usage:"who is let in"`
}

func (c mini) open() (provider.Provider, error) {
	cloud, err := fake.New(fake.Options{Dir: c.Dir})
	switch {
	case err != nil:
		return nil, err
	case c.Region == "nowhere":
		return nil, fmt.Errorf("%w: MINI_REGION: there is no region nowhere", provider.ErrInvalidArgument)
	case c.URL != "":
		if reply, err := http.Get(c.URL); err == nil {
			reply.Body.Close()
		}
		return cloud, nil
	case c.User == "gone":
		return cloud.Revoked(), nil
	case c.Broken:
		return undeleting{cloud}, nil
	}
	return cloud, nil
}

// undeleting deletes nothing.
type undeleting struct{ *fake.Cloud }

func (undeleting) DeleteInstance(context.Context, string) error { return nil }

func manager() provider.CloudProvider {
	return config.New("mini", mini.open)
}

// TestMain lets the test's binary be the plugin too.
func TestMain(m *testing.M) {
	if os.Getenv(serve.SocketVariable) != "" {
		serve.Main("mini", manager())
	}
	goleak.VerifyTestMain(m)
}

// pluginFile is a file named mini that is this binary.
func pluginFile(t *testing.T) string { return pluginNamed(t, "mini") }

func pluginNamed(t *testing.T, name string) string {
	t.Helper()
	in, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	path := filepath.Join(t.TempDir(), name)
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// endpoint serves the provider on a socket until the test ends.
func endpoint(t *testing.T, o wire.Options) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "p.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	half, server := wire.NewServer(o), grpc.NewServer(wire.ServerOptions()...)
	half.Register(server)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		<-ended
		half.Close()
	})
	return "unix://" + path
}

// check runs the command and returns what it says.
func check(t *testing.T, env map[string]string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	getenv := func(name string) string {
		if value, ok := env[name]; ok {
			return value
		}
		return map[string]string{"PATH": os.Getenv("PATH"), "TMPDIR": os.Getenv("TMPDIR")}[name]
	}
	var out, errs bytes.Buffer
	code = run(t.Context(), args, getenv, &out, &errs)
	return code, out.String(), errs.String()
}

// few are checks that need both processes, lists and no time.
const few = "^(create|key-reopened|list-reopened|delete|teardown|list-many)$"

func TestList(t *testing.T) {
	code, out, _ := check(t, nil, "--list")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != 0 || len(lines) != len(conformance.Checks()) {
		t.Fatalf("exit code %d, %d lines", code, len(lines))
	}
	for i, c := range conformance.Checks() {
		if name, rest, _ := strings.Cut(lines[i], " "); name != c.Name || strings.TrimSpace(rest) != c.Contract {
			t.Errorf("line %q of check %s", lines[i], c.Name)
		}
	}
	var rows []checkreport.Check
	code, out, _ = check(t, nil, "--list", "-o", "json", "--run", "^power")
	if err := json.Unmarshal([]byte(out), &rows); code != 0 || err != nil || len(rows) < 2 || rows[0].Name != "power" {
		t.Errorf("exit code %d, error %v: %s", code, err, out)
	}
}

func TestCarriers(t *testing.T) {
	configured := func(t *testing.T) provider.Provider {
		p, err := mini{Dir: t.TempDir()}.open()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for name, args := range map[string]func(t *testing.T) []string{
		"process": func(t *testing.T) []string {
			return []string{"--plugin", pluginFile(t), "--set", "mini-dir=" + t.TempDir()}
		},
		"process by variables": func(t *testing.T) []string {
			// as `make build-all` calls a provider's program
			return []string{"--plugin", pluginNamed(t, "provider-mini"), "--set", "MINI_DIR=" + t.TempDir(), "--set", "MINI_REGION=x"}
		},
		"socket": func(t *testing.T) []string {
			return []string{"--endpoint", endpoint(t, wire.Options{Name: "mini", Cloud: manager()}), "--set", "-mini-dir=" + t.TempDir()}
		},
		"socket configured by others": func(t *testing.T) []string {
			return []string{"--endpoint", endpoint(t, wire.Options{Name: "mini", Cloud: manager(), Configured: configured(t)})}
		},
		"socket with one configuration": func(t *testing.T) []string {
			return []string{"--endpoint", endpoint(t, wire.Options{Name: "fake", Cloud: fake.NewManager()}), "--set", "fake-dir=" + t.TempDir()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, stderr := check(t, nil, append(args(t), "--run", few)...)
			if code != 0 || !strings.Contains(out, "passed  key-reopened (") || !strings.Contains(out, "\n6 checks: 6 passed, 0 failed, 0 skipped, ") {
				t.Errorf("exit code %d:\n%s%s", code, out, stderr)
			}
		})
	}
}

// TestNoAccess: what cannot be known without another credential is checked with
// one, and skipped without.
func TestNoAccess(t *testing.T) {
	args := []string{"--plugin", pluginFile(t), "--set", "mini-dir=" + t.TempDir(), "--run", "^delete-no-access$"}
	for want, more := range map[string][]string{
		"1 checks: 1 passed, 0 failed, 0 skipped": {"--no-access", "mini-user=gone"},
		"1 checks: 0 passed, 1 failed, 0 skipped": {"--no-access", "MINI_BROKEN=1"}, // it is let in
		"1 checks: 0 passed, 0 failed, 1 skipped": nil,
		"skipped 1: ":                nil,
		"skipped delete-no-access (": {"-v"},
	} {
		if _, out, stderr := check(t, nil, append(slices.Clone(args), more...)...); !strings.Contains(out, want) {
			t.Errorf("%v: want %q in\n%s%s", more, want, out, stderr)
		}
	}
}

// TestRecord: a process plugin's calls go through the recorder, whatever it is
// written in.
func TestRecord(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "records")
	args := []string{"--plugin", pluginFile(t), "--set", "mini-dir=" + t.TempDir(), "--set", "mini-url=http://cloud.invalid/v1/things?token=s3cretOfTheQuery", "--record", dir, "--run", "^verify$"}
	code, out, stderr := check(t, map[string]string{"MINI_TOKEN": "s3cretOfTheUser"}, args...)
	text, err := os.ReadFile(filepath.Join(dir, record.File))
	if code != 0 || err != nil || !strings.Contains(string(text), `"host":"cloud.invalid","path":"/v1/things"`) || !strings.Contains(string(text), "no answer: ") || strings.Contains(string(text), "s3cret") {
		t.Errorf("exit code %d, %v: %s\n%s%s", code, err, text, out, stderr)
	}
	if code, _, stderr := check(t, nil, args...); code != 2 || !strings.Contains(stderr, "another folder") {
		t.Errorf("a second record: exit code %d: %s", code, stderr)
	}
	if code, _, stderr := check(t, nil, "--endpoint", "unix:///x", "--record", dir); code != 2 || !strings.Contains(stderr, "need --plugin") {
		t.Errorf("a socket: exit code %d: %s", code, stderr)
	}
}

// TestReplay compares what a simulator answers with a record of the cloud.
func TestReplay(t *testing.T) {
	cloud := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"id": 7}`) }))
	t.Cleanup(cloud.Close)
	address := "http://cloud.localhost:" + cloud.URL[strings.LastIndexByte(cloud.URL, ':')+1:] + "/v1/things"
	hosts := filepath.Join(t.TempDir(), "records")
	if err := os.MkdirAll(hosts, 0o700); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		`{"method":"GET","path":"/v1/things","status":200,"response":"{\"id\": 8}"}`:     "",
		`{"method":"GET","path":"/v1/things","status":200,"response":"{\"id\": \"8\"}"}`: "differs  GET /v1/things: 200: .id is a float64 in the simulator and a string in the cloud",
	} {
		if err := os.WriteFile(filepath.Join(hosts, record.File), []byte(line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		code, out, stderr := check(t, nil, "--plugin", pluginFile(t), "--set", "mini-dir="+t.TempDir(), "--set", "mini-url="+address, "--replay", hosts, "--run", "^verify$")
		if (code == 0) != (want == "") || !strings.Contains(out, want) {
			t.Errorf("exit code %d, want %q in:\n%s%s", code, want, out, stderr)
		}
	}
	if code, _, stderr := check(t, nil, "--plugin", pluginFile(t), "--replay", t.TempDir()); code != 2 || !strings.Contains(stderr, "--replay") {
		t.Errorf("no record: exit code %d: %s", code, stderr)
	}
}

// TestRed: a check that fails is in every report, and so is what was left.
func TestRed(t *testing.T) {
	junit := filepath.Join(t.TempDir(), "report.xml")
	args := []string{"--plugin", pluginFile(t), "--set", "mini-dir=" + t.TempDir(), "--run", "^(delete|verify)$", "--settle-timeout", "100ms", "--junit", junit}
	code, out, stderr := check(t, map[string]string{"MINI_BROKEN": "1"}, args...)
	for _, want := range []string{"failed  delete (", "contract: DeleteInstance removes", "still shows", "left behind by delete: instance fake-000001\n", "2 checks: 1 passed, 1 failed"} {
		if !strings.Contains(out, want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	if code != 1 || t.Failed() {
		t.Fatalf("exit code %d:\n%s%s", code, out, stderr)
	}
	data, err := os.ReadFile(junit)
	if err != nil {
		t.Fatal(err)
	}
	var suites struct {
		Failures int `xml:"failures,attr"`
		Suite    struct {
			Name string `xml:"name,attr"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(data, &suites); err != nil || suites.Failures != 1 || suites.Suite.Name != "mini" {
		t.Errorf("JUnit %+v, error %v", suites, err)
	}
	code, out, stderr = check(t, map[string]string{"MINI_BROKEN": "1"}, append(args, "-o", "json")...)
	var report checkreport.Document
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if code != 1 || report.Failed != 1 || report.Checks[0].Left[0] == "" || !strings.Contains(stderr, "[1/2] delete\n[2/2] verify\n") {
		t.Errorf("exit code %d, report %+v, progress %q", code, report, stderr)
	}
}

func TestTimeoutEndsTheRun(t *testing.T) {
	code, out, stderr := check(t, nil, "--plugin", pluginFile(t), "--set", "mini-dir="+t.TempDir(), "--run", few, "--timeout", "1ns")
	if code != 2 || !strings.Contains(stderr, "deadline") {
		t.Errorf("exit code %d:\n%s%s", code, out, stderr)
	}
}

// TestNothingChecked: what is wrong before the first check says so, with exit
// code 2 and nothing on standard output.
func TestNothingChecked(t *testing.T) {
	plugin, dir := pluginFile(t), t.TempDir()
	socket := endpoint(t, wire.Options{Name: "mini", Cloud: manager(), Configured: &fake.Cloud{}})
	for _, tc := range []struct {
		args string
		want string
	}{
		{"", "--plugin FILE and --endpoint"},
		{"--plugin x --endpoint unix:///x", "one of --plugin FILE and --endpoint"},
		{"mycloud", `unexpected argument "mycloud"`},
		{"--nope", "unknown flag: --nope; all flags: provider-check --help"},
		{"--list --plugin x", "--list needs no provider"},
		{"--list --run (", "--run: "},
		{"--list --run nope", "matches no check"},
		{"--list -o xml", `-o "xml": want text or json`},
		{"--plugin x --parallel 1", "at least 2"},
		{"--plugin x --timeout -1s", "must not be negative"},
		{"--plugin x --memory -1", "must not be negative"},
		{"--plugin /nonexistent/mini", "/nonexistent/mini: no such file"},
		{"--plugin " + dir, "is a directory"},
		{"--plugin " + plugin + " --junit /nonexistent/x.xml --set mini-dir=" + dir, "--junit: open /nonexistent/x.xml"},
		{"--endpoint /run/x.sock", "want unix:///PATH"},
		{"--endpoint unix:///nonexistent.sock", "there is no socket /nonexistent.sock"},
		{"--plugin " + plugin, "-mini-dir (MINI_DIR): it is required"},
		{"--plugin " + plugin + " --set mini-dir", "--set: want NAME=VALUE"},
		{"--plugin " + plugin + " --set color=red", "--set color: the provider has no such setting; there are mini-dir, mini-broken"},
		{"--plugin " + plugin + " --set mini-broken=perhaps", "--set mini-broken: "},
		{"--plugin " + plugin + " --set mini-token=hunter2", "set MINI_TOKEN in the environment"},
		{"--plugin " + plugin + " --set mini-dir=" + dir + " --set MINI_REGION=nowhere", "there is no region nowhere"},
		{"--plugin " + plugin + " --set mini-dir=" + dir + " --set mini-user=gone", "the provider cannot be checked: "},
		{"--endpoint " + socket + " --set mini-dir=x", "whoever started it has configured it"},
	} {
		code, out, stderr := check(t, nil, strings.Fields(tc.args)...)
		if code != program.ExitUsage || out != "" || !strings.Contains(stderr, tc.want) {
			t.Errorf("%s: exit code %d, want 2 and %q, got %q %q", tc.args, code, tc.want, out, stderr)
		}
		if strings.Contains(stderr, "hunter2") {
			t.Errorf("%s: the secret is shown: %s", tc.args, stderr)
		}
	}
}

// TestHelpIsTrue: every flag that the help's examples use exists, and its
// checks do too.
func TestHelpIsTrue(t *testing.T) {
	code, out, _ := check(t, nil, "--help")
	if code != 0 || !strings.Contains(out, "Exit status: 0") {
		t.Fatalf("exit code %d: %s", code, out)
	}
	cmd := Command()
	for _, word := range strings.Fields(examples) {
		name, isFlag := strings.CutPrefix(word, "--")
		if isFlag && cmd.Flags().Lookup(name) == nil {
			t.Errorf("the examples use --%s, which is not a flag", name)
		}
	}
}
