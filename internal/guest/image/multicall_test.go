// SPDX-License-Identifier: Apache-2.0

package image

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOverlayHasEveryProgramOfTheGuest(t *testing.T) {
	module := t.TempDir()
	for _, p := range guestPrograms() {
		dir := filepath.Join(module, "cmd", p)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{
			"main.go":      "package main\n\ntype t struct{}\n\nfunc (t) main() {}\n\nfunc main() { t{}.main() }\n",
			"main_test.go": "package main\n",
			"windows.go":   "//go:build windows\n\npackage main\n",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	overlay := readOverlay(t, module)
	if len(overlay) != len(guestPrograms())+1 {
		t.Errorf("%d files, want one for each program and the dispatcher: %v", len(overlay), overlay)
	}
	main := overlay[filepath.Join(module, "cmd/podvm-guest/main.go")]
	for _, want := range []string{`case "init":`, `case "process-user-data":`, `case "agent-protocol-forwarder":`, "default:\n\t\tpodvmagent.Main()"} {
		if !strings.Contains(main, want) {
			t.Errorf("the dispatcher lacks %q:\n%s", want, main)
		}
	}
	init := overlay[filepath.Join(module, "cmd/podvm-guest/podvminit/main.go")]
	for _, want := range []string{"package podvminit", "func Main() {", "func (t) main() {"} {
		if !strings.Contains(init, want) {
			t.Errorf("podvm-init lacks %q:\n%s", want, init)
		}
	}
}

// readOverlay generates one and returns path to source.
func readOverlay(t *testing.T, module string) map[string]string {
	t.Helper()
	name, err := writeOverlay(module, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ Replace map[string]string }
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	sources := map[string]string{}
	for path, file := range doc.Replace {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parser.ParseFile(token.NewFileSet(), path, src, 0); err != nil {
			t.Error(err)
		}
		sources[path] = string(src)
	}
	return sources
}

func TestOverlayNamesTheProgramThatIsMissing(t *testing.T) {
	_, err := writeOverlay(t.TempDir(), t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "cmd/podvm-init") {
		t.Errorf("got %v, want an error that names the program", err)
	}
}
