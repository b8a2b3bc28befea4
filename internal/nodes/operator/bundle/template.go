// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"embed"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"text/template"
)

//go:embed bases added
var own embed.FS

var functions = template.FuncMap{
	// quote makes any text a value of YAML.
	"quote": func(text string) (string, error) {
		quoted, err := json.Marshal(text)
		return string(quoted), err
	},
	"script":   script,
	"required": required,
	// shell makes any text one word of a shell command.
	"shell": func(word string) string {
		if plainWord.MatchString(word) {
			return word
		}
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	},
}

// script returns a shell script as a YAML value. It reads the API server's address
// from the node and then executes the program. Each flag has a line of its own,
// indented as the pod's template requires.
func script(program string, indent int, flags []string) (string, error) {
	const begin = "#!/bin/bash\nset -o allexport\nif [[ -f /etc/kubernetes/apiserver-url.env ]]; then\n  source /etc/kubernetes/apiserver-url.env\nfi\nexec "
	if indent < 0 || indent > 8 {
		return "", fmt.Errorf("indent %d: want 0 to 8", indent)
	}
	lines := []string{program}
	for _, flag := range flags {
		lines = append(lines, strings.Repeat(" ", indent)+flag)
	}
	text, err := json.Marshal(begin + strings.Join(lines, " \\\n") + "\n")
	return string(text), err
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// required returns value, or an error if it is empty. where says where the value comes
// from.
func required(where, value string) (string, error) {
	if value == "" {
		return "", fmt.Errorf("%s is empty, and what is deployed cannot do without it", where)
	}
	return value, nil
}

// parseFile parses a file as a template; nil if its name does not end in .tmpl.
func parseFile(f file) (*template.Template, error) {
	switch {
	case f.ours():
		return ownTemplate(f.path())
	case !strings.HasSuffix(f.name, ".tmpl"):
		return nil, nil
	}
	return parse(f.text)
}

func execute(t *template.Template, name string, data map[string]any) (string, error) {
	var out bounded
	err := t.ExecuteTemplate(&out, name, data)
	if err != nil {
		return "", describe(err)
	}
	return out.text.String(), nil
}

// bounded takes no more than a file may have: a template can count.
type bounded struct{ text strings.Builder }

func (b *bounded) Write(p []byte) (int, error) {
	if b.text.Len()+len(p) > maxFile {
		return 0, fmt.Errorf("it makes more than %d bytes", maxFile)
	}
	return b.text.Write(p)
}

// templatePrefix is what text/template puts before a line's number: the name of
// the template, which is empty here because the caller names the file.
var templatePrefix = regexp.MustCompile(`^template: ?:(\d+)`)

func describe(err error) error {
	text := templatePrefix.ReplaceAllString(err.Error(), "line $1")
	return fmt.Errorf("%s", strings.Replace(text, `executing "" at`, "at", 1))
}

// partsFile has the blocks that the bases share.
const partsFile = "bases/parts.tmpl"

// ownTemplates are those that were asked for, by name: they never change.
var ownTemplates sync.Map

// ownTemplate parses a file of this package, with the blocks that the bases share.
func ownTemplate(name string) (*template.Template, error) {
	if t, has := ownTemplates.Load(name); has {
		return t.(*template.Template), nil
	}
	t := template.New("").Option("missingkey=error").Funcs(functions)
	for _, file := range slices.Compact([]string{partsFile, name}) {
		text, err := own.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if t, err = t.Parse(string(text)); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	ownTemplates.Store(name, t)
	return t, nil
}

// parse parses a text that may use the blocks that the bases share. Missing values are
// errors when it is executed.
func parse(text string) (*template.Template, error) {
	parts, err := ownTemplate(partsFile)
	if err != nil {
		return nil, err
	}
	if parts, err = parts.Clone(); err != nil {
		return nil, err
	}
	t, err := parts.New("").Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, describe(err)
	}
	return t, nil
}
