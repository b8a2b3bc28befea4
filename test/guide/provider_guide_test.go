// SPDX-License-Identifier: Apache-2.0

package guide

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/plugin"
)

// providerGuide is run by TestProviderGuide, which needs a minute and the
// build tag integration. What is checked here needs neither.
const providerGuide = "../../docs/provider-guide.md"

func readGuide(t *testing.T) string { t.Helper(); return read(t, providerGuide) }

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestProviderGuideIsComplete(t *testing.T) {
	guide := readGuide(t)
	source, err := os.ReadFile("../../provider/errors.go")
	if err != nil {
		t.Fatal(err)
	}
	words := regexp.MustCompile(`Err[A-Z]\w+`).FindAllString(string(source), -1)
	for _, variable := range plugin.Env() {
		words = append(words, variable.Name)
	}
	everything := struct {
		provider.Provider
		provider.Lister
		provider.Getter
		provider.ConsoleReader
		provider.PowerController
		provider.InstanceTypeLister
		provider.NodeAddresser
		provider.LoadBalancerController
		provider.DiskController
		provider.DiskSnapshotter
	}{}
	for _, c := range provider.Capabilities(everything) {
		words = append(words, string(c))
	}
	for _, word := range words {
		if !strings.Contains(guide, "`"+word+"`") {
			t.Errorf("the guide does not explain %s", word)
		}
	}
}

func TestLinks(t *testing.T) {
	for _, document := range []string{providerGuide, capiTutorial, ccmGuide} {
		for _, link := range regexp.MustCompile(`\]\(([^)\s"]+)\)`).FindAllStringSubmatch(read(t, document), -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			target, fragment, hasFragment := strings.Cut(link[1], "#")
			file := document
			if target != "" {
				file = filepath.Join(filepath.Dir(document), target)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: %v", document, err)
			} else if hasFragment && !anchors(read(t, file))[fragment] {
				t.Errorf("%s: there is no title for %s", document, link[1])
			}
		}
	}
}

// anchors are those that titles get where the documents are read.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, title := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^\p{L}\d _-]`).ReplaceAllString(strings.ToLower(title[1]), "")
		all[strings.ReplaceAll(name, " ", "-")] = true
	}
	return all
}

// messages returns those of the troubleshooting tables, each as its constant
// parts: "…" stands for what differs.
func messages(t *testing.T) [][]string {
	t.Helper()
	_, tables, ok := strings.Cut(readGuide(t), "## Troubleshooting")
	if !ok {
		t.Fatal("the guide has no troubleshooting table")
	}
	var all [][]string
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*?) \\|").FindAllStringSubmatch(tables, -1) {
		for _, message := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			all = append(all, strings.Split(message[1], "…"))
		}
	}
	return all
}

// TestTroubleshootingQuotesTheProgram: a message that no program prints helps
// nobody.
func TestTroubleshootingQuotesTheProgram(t *testing.T) {
	sources := readSources(t, "../../provider")
	all := messages(t)
	if len(all) < 40 {
		t.Errorf("the tables have only %d messages", len(all))
	}
	for _, parts := range all {
		for _, part := range parts {
			if part = strings.TrimSpace(part); !strings.Contains(sources, part) {
				t.Errorf("message %q: no program says %q", strings.Join(parts, "…"), part)
			}
		}
	}
}

// TestTroubleshootingHasEveryMessage: whatever the loader says has a row. Texts
// without a dozen letters of their own only pass another error on.
func TestTroubleshootingHasEveryMessage(t *testing.T) {
	all := messages(t)
	errorf := regexp.MustCompile(`(?:fmt\.Errorf|errors\.New)\("((?:[^"\\]|\\.)*)"`)
	verb := regexp.MustCompile(`%(\[\d\])?[#.\d]*[a-z]`)
	for _, folder := range []string{".", "pluginfile", "process", "remote"} {
		for _, format := range errorf.FindAllStringSubmatch(readFolder(t, "../../provider/plugin/"+folder), -1) {
			longest := slices.MaxFunc(verb.Split(format[1], -1), func(a, b string) int { return len(a) - len(b) })
			if len(longest) < 12 {
				continue
			}
			if !slices.ContainsFunc(all, func(parts []string) bool { return quotes(format[1], parts) }) {
				t.Errorf("no row of the troubleshooting tables is about %q", format[1])
			}
		}
	}
}

func quotes(format string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(format, strings.TrimSpace(part)) {
			return false
		}
	}
	return true
}

func readFolder(t *testing.T, folder string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		if data, err := os.ReadFile(file); err != nil {
			t.Fatal(err)
		} else if !strings.HasSuffix(file, "_test.go") {
			all.Write(data)
		}
	}
	return all.String()
}

func readSources(t *testing.T, folder string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			all.WriteString(readFolder(t, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
