// SPDX-License-Identifier: Apache-2.0

package site

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/test/tier"
)

const (
	root    = "../.."
	address = "https://github.com/outrigger/outrigger"
)

// TestSite builds the site. Compiling Hugo, once, takes 90 s of processor time.
func TestSite(t *testing.T) {
	tier.OnlyAll(t)
	folder := filepath.Join(t.TempDir(), "site")
	build := exec.Command(filepath.Join(root, "site/build.sh"), "--destination", folder)
	build.Env = append(os.Environ(), "VERSION=v1.2.3-test")
	printed, err := build.CombinedOutput()
	if err != nil || strings.Contains(string(printed), "WARN") || strings.Contains(string(printed), "ERROR") {
		t.Fatalf("%v: %s", err, printed)
	}
	s, err := Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range s.Faults(root, address) {
		t.Error(fault)
	}
	for _, document := range documents(t) {
		name := filepath.Join("docs", strings.TrimSuffix(strings.TrimSuffix(document, "README.md"), ".md"), "index.html")
		if p := s.pages[name]; p == nil || !strings.HasSuffix(p.title, "Outrigger") {
			t.Errorf("docs/%s has no page %s", document, name)
		}
	}
	for file, word := range map[string]string{"en.search-data.json": "PoolVMGivenUp", "docs/install/index.html": "v1.2.3-test", "index.html": "data-cast-file"} {
		if data, err := os.ReadFile(filepath.Join(folder, file)); err != nil || !strings.Contains(string(data), word) {
			t.Errorf("%s does not have %q: %v", file, word, err)
		}
	}
}

// documents returns the Markdown files of docs/.
func documents(t *testing.T) (found []string) {
	t.Helper()
	for _, depth := range []string{"*.md", "*/*.md", "*/*/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, "docs", depth))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", depth, len(files), err)
		}
		for _, file := range files {
			found = append(found, strings.TrimPrefix(file, filepath.Join(root, "docs")+"/"))
		}
	}
	return found
}

func TestFaults(t *testing.T) {
	const sound = `<html><head><title>A</title><link rel="stylesheet" href="/a.css"><link rel="canonical" href="https://example.com/"></head>
<body><h2 id="x">X</h2><a href="#x">x</a> <a href="b/">b</a> <a href="/b/#y">y</a> <a href="https://example.com/">out</a>
<a href="` + address + `/blob/main/go.mod#L1">source</a><img src="/a.png"><script src="a.js"></script></body></html>`
	for name, tc := range map[string]struct{ old, new, want string }{
		"sound":              {"", "", ""},
		"no title":           {"<title>A</title>", "", "has no title"},
		"dead link":          {`href="b/"`, `href="c/"`, "the link c/ leads nowhere"},
		"dead anchor":        {`"#x"`, `"#z"`, "the link #z leads to no place"},
		"anchor elsewhere":   {"/b/#y", "/b/#x", "the link /b/#x leads to no place"},
		"no picture":         {"/a.png", "/c.png", "there is no file /c.png"},
		"foreign script":     {`src="a.js"`, `src="https://example.com/a.js"`, "from another host"},
		"foreign style":      {`href="/a.css"`, `href="//example.com/a.css"`, "from another host"},
		"no source":          {"go.mod", "go.mot", "the repository has no go.mot"},
		"a script that asks": {`<html>`, `<html data-x="js">`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			script := `fetch("/x") // http://www.w3.org/2000/svg`
			if name == "a script that asks" {
				script, tc.want = `fetch("https://example.com/x")`, "a.js: it has the address https://example.com"
			}
			for file, text := range map[string]string{"index.html": strings.Replace(sound, tc.old, tc.new, 1), "a.css": "", "a.js": script, "a.png": "",
				"b/index.html": `<html><head><title>B</title></head><p id="y">`, "404.html": ""} {
				write(t, filepath.Join(folder, file), text)
			}
			s, err := Load(folder)
			if err != nil {
				t.Fatal(err)
			}
			faults := s.Faults(root, address)
			if tc.want == "" && len(faults) > 0 || tc.want != "" && !slices.ContainsFunc(faults, func(f string) bool { return strings.Contains(f, tc.want) }) {
				t.Errorf("faults %q, want %q", faults, tc.want)
			}
		})
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
