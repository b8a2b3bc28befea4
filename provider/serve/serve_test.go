// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"encoding/json"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/provider/plugin/process"
	"github.com/outrigger/outrigger/provider/plugin/wire"
	"github.com/outrigger/outrigger/provider/serve"
)

func TestSocketVariableIsTheHosts(t *testing.T) {
	if serve.SocketVariable != process.SocketVariable {
		t.Errorf("%s here, %s in the host", serve.SocketVariable, process.SocketVariable)
	}
}

func TestByHand(t *testing.T) {
	code, stdout, stderr := run(modern())
	first, _, _ := strings.Cut(stderr, "\n")
	if code != 2 || stdout != "" || !strings.HasPrefix(first, "modern is a cloud provider that cloud-api-adaptor starts") {
		t.Errorf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	for _, want := range []string{"--listen unix:///PATH", "-modern-dir TEXT [MODERN_DIR]", "-modern-size N", "; in MiB; 1 or more (default 5)", "MODERN_TOKEN", "secret", "required"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("the help lacks %q:\n%s", want, stderr)
		}
	}
}

func TestHelpVersionSchema(t *testing.T) {
	for _, arg := range []string{"--help", "-help", "-h"} {
		if code, stdout, stderr := run(modern(), arg); code != 0 || stderr != "" || !strings.Contains(stdout, "Usage: modern MODE [SETTINGS]") {
			t.Errorf("%s: code %d, %s, %s", arg, code, stdout, stderr)
		}
	}
	if code, stdout, _ := run(modern(), "--version"); code != 0 || !strings.HasPrefix(stdout, "modern v1.2.3 (provider contract 1, go1") {
		t.Errorf("--version: code %d, %s", code, stdout)
	}
	for _, cloud := range []provider.CloudProvider{modern(), fake.NewManager()} {
		code, stdout, _ := run(cloud, "--schema")
		var schema config.Schema
		if err := json.Unmarshal([]byte(stdout), &schema); code != 0 || err != nil {
			t.Fatalf("--schema: code %d, %v", code, err)
		}
		if diff := cmp.Diff(wire.SchemaOf("modern", cloud), schema); diff != "" {
			t.Error(diff)
		}
	}
}

func TestWrongUsage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := "--modern-dir=" + t.TempDir()
	for want, args := range map[string][]string{
		"-no-such-flag":                                {"--no-such-flag"},
		`unexpected argument "serve"`:                  {"serve"},
		"--check and --schema exclude each other":      {"--schema", "--check"},
		"--listen is empty":                            {"--listen", ""},
		`--listen "tcp://0.0.0.0:1" is no`:             {"--listen", "tcp://0.0.0.0:1", dir},
		`"run/p.sock" of the socket is not absolute`:   {"--listen", "unix://run/p.sock", dir},
		"bytes and may have 107":                       {"--listen", "unix:///" + strings.Repeat("a", 120), dir},
		"is there and is not a socket":                 {"--listen", "unix://" + file, dir},
		"-modern-dir (MODERN_DIR): it is required":     {"--listen", "unix:///tmp/never.sock"},
		"-modern-size":                                 {"--listen", "unix:///tmp/never.sock", dir, "--modern-size=0"},
		"--run and --junit go with --check":            {"--run", "key", "--listen", "unix:///tmp/never.sock"},
		"--run: error parsing regexp":                  {"--check", "--run", "("},
		"--run nothing-like-it matches no check":       {"--check", "--run", "nothing-like-it", dir},
		"cannot be checked: invalid argument: -modern": {"--check"},
		"--import needs --import-name":                 {"--import", "a.qcow2", dir},
		"go with --import":                             {"--import-name", "a", dir},
		"say it with --import-format":                  {"--import", "a", "--import-name", "a", dir},
		`format "vdi" is none of qcow2`:                {"--import", "a", "--import-name", "a", "--import-format", "vdi", dir},
		`architecture "i386" is none of amd64`:         {"--import", "a.raw", "--import-name", "a", "--import-arch", "i386", dir},
		"--import and --schema exclude each other":     {"--schema", "--import", "a.raw"},
	} {
		code, stdout, stderr := run(modern(), args...)
		if code != 2 || stdout != "" || !strings.HasPrefix(stderr, "modern: ") || !strings.Contains(stderr, want) {
			t.Errorf("%q: code %d, stdout %q, stderr %q; want 2 and %q", args, code, stdout, stderr, want)
		}
	}
}

// greedy has a flag that package serve needs.
type greedy struct{ *fake.Manager }

func (g greedy) ParseCmd(flags *flag.FlagSet) { flags.Bool("check", false, "mine") }

func TestFlagThatIsTaken(t *testing.T) {
	if code, _, stderr := run(greedy{fake.NewManager()}); code != 2 || !strings.Contains(stderr, "the provider has a flag -check, which package serve needs") {
		t.Errorf("code %d, %s", code, stderr)
	}
}

func TestProcessPlugin(t *testing.T) {
	socket := filepath.Join(shortDir(t), "p.sock")
	p := startProgram(t, "modern", []string{serve.SocketVariable + "=" + socket})
	conn, about := dial(t, socket)
	if about.Name != "modern" || about.Configured || len(about.Schema.Fields) != 4 {
		t.Errorf("%+v", about)
	}
	for path, want := range map[string]fs.FileMode{socket: 0o600, filepath.Dir(socket): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	capabilities, err := wire.Configure(t.Context(), conn, "a", config.Values{"modern-dir": t.TempDir(), "MODERN_TOKEN": "t0p-s3cret"})
	if err != nil {
		t.Fatal(err)
	}
	remote := wire.NewProvider(conn, "a", capabilities)
	if _, err := remote.CreateInstance(t.Context(), "pod", "key", cloudinit.Raw(""), provider.InstanceTypeSpec{Tags: map[string]string{"a": "b"}}); err != nil {
		t.Fatal(err)
	}
	p.Process.Signal(os.Interrupt) // control-C is for the host
	if list, err := remote.(provider.Lister).ListInstances(t.Context(), map[string]string{"a": "b"}); err != nil || len(list) != 1 {
		t.Errorf("after SIGINT: %v, %v", list, err)
	}
	p.stdin.Close() // the host dies
	if code := p.code(t); code != 0 {
		t.Errorf("code %d: %s", code, p.stderr.String())
	}
	if _, err := os.Lstat(socket); err == nil {
		t.Error("the socket is left behind")
	}
	checkLog(t, p, `"msg":"Opened","inherited":""`, `"reason":"the host has closed our stdin"`)
}

// checkLog finds texts in a log of JSON lines without secrets.
func checkLog(t *testing.T, p *program, texts ...string) {
	t.Helper()
	for _, line := range p.stderr.lines() {
		if !json.Valid([]byte(line)) {
			t.Errorf("a log line is not JSON: %s", line)
		}
	}
	log := p.stderr.String()
	for _, text := range texts {
		if !strings.Contains(log, text) {
			t.Errorf("the log lacks %s:\n%s", text, log)
		}
	}
	if strings.Contains(log, "t0p-s3cret") {
		t.Error("the log has a secret")
	}
}

func TestProcessPluginTakesNoFlags(t *testing.T) {
	socket := filepath.Join(shortDir(t), "p.sock")
	p := startProgram(t, "modern", []string{serve.SocketVariable + "=" + socket}, "--modern-dir=/tmp")
	if code := p.code(t); code != 2 || !strings.Contains(p.stderr.String(), "start it without flags") {
		t.Errorf("code %d: %s", code, p.stderr.String())
	}
	p = startProgram(t, "modern", []string{serve.SocketVariable + "=p.sock"})
	if code := p.code(t); code != 2 || !strings.Contains(p.stderr.String(), "OUTRIGGER_PLUGIN_SOCKET: the path") {
		t.Errorf("code %d: %s", code, p.stderr.String())
	}
}

func TestSocketServer(t *testing.T) {
	for as, args := range map[string][]string{"modern": {"--modern-dir"}, "legacy": {"--fake-dir"}} {
		t.Run(as, func(t *testing.T) {
			socket := filepath.Join(shortDir(t), "p.sock")
			args := append([]string{"--listen", "unix://" + socket}, append(args, t.TempDir())...)
			first := startProgram(t, as, nil, args...)
			conn, about := dial(t, socket)
			if about.Name != as || !about.Configured {
				t.Errorf("%+v", about)
			}
			if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v", info.Mode(), err)
			}
			create(t, conn, "key")

			second := startProgram(t, as, nil, args...)
			if code := second.code(t); code != 2 || !strings.Contains(second.stderr.String(), "somebody serves on") {
				t.Errorf("a second server: code %d, %s", code, second.stderr.String())
			}
			first.Process.Kill()
			<-first.exited
			waitForFile(t, socket) // stale
			third := startProgram(t, as, nil, args...)
			third.waitForLog(t, "Serving") // the socket was there before
			conn, _ = dial(t, socket)
			if id := create(t, conn, "key"); id != "fake-000001" { // the same cloud: its flags were read
				t.Errorf("the instance of the same key is %s", id)
			}
			third.Process.Signal(syscall.SIGTERM)
			if code := third.code(t); code != 0 {
				t.Errorf("SIGTERM: code %d, %s", code, third.stderr.String())
			}
		})
	}
}

// TestCallsFinishAfterSIGTERM: what runs when the program is told to end gets
// its answer.
func TestCallsFinishAfterSIGTERM(t *testing.T) {
	socket := filepath.Join(shortDir(t), "p.sock")
	cloudDir := t.TempDir()
	p := startProgram(t, "modern", []string{"MODERN_DIR=" + cloudDir, "MODERN_LATENCY=500ms"}, "--listen", "unix://"+socket)
	conn, _ := dial(t, socket)
	capabilities, err := wire.Configure(t.Context(), conn, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	created := make(chan error, 1)
	go func() {
		_, err := wire.NewProvider(conn, "", capabilities).CreateInstance(t.Context(), "pod", "key", cloudinit.Raw(""), provider.InstanceTypeSpec{})
		created <- err
	}()
	p.waitForLog(t, "Creating")
	p.Process.Signal(syscall.SIGTERM)
	if err := <-created; err != nil {
		t.Errorf("the call that ran: %v", err)
	}
	if code := p.code(t); code != 0 {
		t.Errorf("code %d: %s", code, p.stderr.String())
	}
}
