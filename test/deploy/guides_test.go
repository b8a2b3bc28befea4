// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"go/build/constraint"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/test/tier"
)

// fenced returns the blocks of a page that are set as code.
func fenced(text string) (all []string) {
	for _, match := range regexp.MustCompile("(?ms)^```[a-z]*\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		all = append(all, match[1])
	}
	return all
}

// makeLine is a command of a page that calls make, after what the page has exported before.
type makeLine struct{ command, exported string }

var (
	makeCommand = regexp.MustCompile(`^((?:[A-Za-z_]+=\S+ )*)make ([^#]+)`)
	exports     = regexp.MustCompile(`^export [A-Z_]+=`)
)

func makeLines(text string) (all []makeLine) {
	exported := ""
	for _, block := range fenced(text) {
		for line := range strings.Lines(block) {
			line = strings.TrimSpace(line)
			if exports.MatchString(line) && !strings.Contains(line, "$") {
				exported += line + "\n"
			}
			if makeCommand.MatchString(line) {
				all = append(all, makeLine{line, exported})
			}
		}
	}
	return all
}

// would returns what make would run, without running it.
func (l makeLine) would(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("bash", "-euc", l.exported+makeCommand.ReplaceAllString(l.command, "${1}make -n --no-print-directory $2"))
	cmd.Dir = root
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return regexp.MustCompile(`^(CLOUD_PROVIDER|PREFIX|REGISTRY|registry|TAG|TAGS|ARCH|MAKE[A-Z]*|NODE_INSTALLER)=`).MatchString(v)
	})
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", l.command, err, out)
	}
	return string(out)
}

// linkedBy returns the providers that a program has when it is built with a tag.
func linkedBy(t *testing.T, program, tag string) (providers []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "cmd", program, "main.go"))
	if err != nil || !strings.Contains(string(text), "/internal/builtin\"") {
		t.Fatalf("%s links no providers: %v", program, err)
	}
	files, err := filepath.Glob(filepath.Join(root, "internal", "builtin", "provider_*.go"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		line := regexp.MustCompile(`(?m)^//go:build .*$`).FindString(string(text))
		expression, err := constraint.Parse(line)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		name := regexp.MustCompile(`registers provider ([a-z-]+)`).FindStringSubmatch(string(text))
		if name == nil {
			t.Fatalf("%s does not say which provider it registers", file)
		}
		if expression.Eval(func(have string) bool { return have == tag }) {
			providers = append(providers, name[1])
		}
	}
	return providers
}

// TestMakeLinesOfGuides reads from `make -n` what the guides' lines would do:
// images for a provider have that provider in them, go to the registry that the page
// names, and the overlay is the provider's. An image that was made without
// CLOUD_PROVIDER answered "Unsupported cloud provider".
func TestMakeLinesOfGuides(t *testing.T) {
	tier.OnlyAll(t) // make itself costs 8 s of processor time here
	pages, err := filepath.Glob(filepath.Join(root, "docs/providers/*.md"))
	if err != nil || len(pages) < 12 {
		t.Fatal(pages, err)
	}
	seen := 0
	for _, file := range append(pages, filepath.Join(root, "docs/install.md"), filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		provider := strings.TrimSuffix(filepath.Base(file), ".md")
		if _, err := os.Stat(filepath.Join(root, "deploy/overlays", provider)); err != nil {
			provider = "" // a page for all of them
		}
		for _, line := range makeLines(string(text)) {
			seen++
			held(t, string(text), provider, line)
		}
	}
	if seen < 12 {
		t.Errorf("only %d lines with make were found", seen)
	}
}

// TestDeployWantsImages: images that nobody has named are those of no registry, so
// `make deploy` says how to make and push them. What is named in one of three ways is taken.
func TestDeployWantsImages(t *testing.T) {
	cmd := exec.Command(filepath.Join(root, "deploy/deploy.sh"), "apply", "libvirt")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "KUBECTL=false"}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "make image push CLOUD_PROVIDER=libvirt PREFIX=") {
		t.Errorf("%v\n%s", err, out)
	}
	for command, want := range map[string]string{
		"make deploy CLOUD_PROVIDER=libvirt":                            "PREFIX='' ",
		"make deploy CLOUD_PROVIDER=libvirt PREFIX=localhost/outrigger": "PREFIX='localhost/outrigger' ",
		"PREFIX=r.example/o make deploy CLOUD_PROVIDER=libvirt":         "PREFIX='r.example/o' ",
		"REGISTRY=r.example/o make deploy CLOUD_PROVIDER=libvirt":       "PREFIX='r.example/o' ",
		"registry=r.example/o make deploy CLOUD_PROVIDER=libvirt":       "PREFIX='r.example/o' ",
	} {
		if would := (makeLine{command: command}).would(t); !strings.HasPrefix(would, want) {
			t.Errorf("%s: %s", command, would)
		}
	}
}

func held(t *testing.T, page, provider string, line makeLine) {
	t.Helper()
	would := line.would(t)
	if match := regexp.MustCompile(`TAGS='([^']*)' deploy/images.sh`).FindStringSubmatch(would); match != nil && provider != "" {
		for _, program := range []string{"cloud-api-adaptor", "peerpod-ctrl"} {
			if have := linkedBy(t, program, match[1]); !slices.Contains(have, provider) {
				t.Errorf("%s: %s of the image has the providers %v, not %s: the line lacks CLOUD_PROVIDER=%s", line.command, program, have, provider, provider)
			}
		}
	}
	if match := regexp.MustCompile(`case '([^']*)' in localhost/`).FindStringSubmatch(would); match != nil && strings.HasPrefix(match[1], "localhost/") {
		t.Errorf("%s pushes to %s", line.command, match[1])
	}
	if match := regexp.MustCompile(`deploy/deploy.sh (apply|delete) '([^']*)'`).FindStringSubmatch(would); match != nil {
		if _, err := os.Stat(filepath.Join(root, "deploy/overlays", match[2])); err != nil || provider != "" && match[2] != provider {
			t.Errorf("%s installs provider %q", line.command, match[2])
		}
	}
	if match := regexp.MustCompile(`(?m)^echo \S*/bin/podvm/(podvm-\S+)$`).FindStringSubmatch(would); match != nil && !strings.Contains(page, match[1]) {
		t.Errorf("%s makes %s, which the page does not go on with", line.command, match[1])
	}
}

// TestPagesTrustAdaptorAndController: where a role, an identity or a profile is given
// to the adaptor's service account, the controller's gets it too: it deletes what the
// adaptor has left.
func TestPagesTrustAdaptorAndController(t *testing.T) {
	account := regexp.MustCompile(`(system:serviceaccount:[a-z-]+:|--name |for account in )cloud-api-adaptor`)
	for _, provider := range folders(t, "deploy/overlays") {
		text, err := os.ReadFile(filepath.Join(root, "docs/providers", provider+".md"))
		if err != nil {
			if provider == "external" {
				continue
			}
			t.Fatal(err)
		}
		trusts := account.MatchString(string(text))
		for _, block := range fenced(string(text)) {
			if account.MatchString(block) && !strings.Contains(block, "peerpod-ctrl") {
				t.Errorf("%s.md trusts cloud-api-adaptor and not peerpod-ctrl:\n%s", provider, block)
			}
		}
		tokens, _ := filepath.Glob(filepath.Join(root, "deploy/overlays", provider, "*-controller.yaml"))
		for _, file := range tokens {
			patch, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(patch), "serviceAccountToken") && !trusts && !strings.Contains(string(text), "`peerpod-ctrl`") {
				t.Errorf("%s has a token for the controller, %s.md does not say who is to be trusted", filepath.Base(file), provider)
			}
		}
	}
}
