// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/guide"
)

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == Name {
		os.Exit(Main())
	}
	os.Exit(m.Run())
}

// TestGuide runs the commands of the page, on a port of its own.
func TestGuide(t *testing.T) {
	page, err := os.ReadFile("../../../docs/outrigger-kbs.md")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(page), "127.0.0.1:8080", address)
	blocks, err := guide.Parse(strings.ReplaceAll(text, "outrigger-kbs serve", "outrigger-kbs serve --listen "+address))
	if err != nil || len(blocks) != 2 {
		t.Fatal(len(blocks), err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, Name)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := guide.Run(ctx, dir, []string{"PATH=" + dir + ":" + os.Getenv("PATH")}, blocks); err != nil {
		t.Error(err)
	}
}

// TestMistakes: what cannot be is said before anything is served.
func TestMistakes(t *testing.T) {
	folder := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for want, flags := range map[string][]string{
		"--resources":                  {"--resources", filepath.Join(folder, "none")},
		"only a loopback address":      {"--listen", "0.0.0.0:0"},
		"want HOST:PORT":               {"--listen", "8080"},
		"want both":                    {"--tls-cert", "x"},
		"--tls-cert, --tls-key":        {"--tls-cert", "x", "--tls-key", "y"},
		"does not compile":             {"--policy", file("a.rego", "package policy\nallow if {")},
		"of package":                   {"--policy", file("b.rego", "package other\nallow := true")},
		"--reference-values":           {"--reference-values", file("r.json", `["a"]`)},
		"not a PEM file with certific": {"--tpm-ca", file("ca.pem", "x")},
		"private key of P-256":         {"--token-key", file("key.pem", "x")},
	} {
		cmd := Command()
		cmd.SetArgs(append([]string{"serve", "--listen", "127.0.0.1:0", "--resources", folder}, flags...))
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // so that one that serves ends
		if err := cmd.ExecuteContext(ctx); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", flags, err, want)
		}
	}
}
