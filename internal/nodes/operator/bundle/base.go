// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"text/template"

	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// BaseAnnotation names the base that a manifest is an addition to. It is not in
// what is rendered.
const BaseAnnotation = "ccm.outrigger.dev/base"

// staticPod is at the end of the names of bases that are for bootstrap; before
// it is the container's name, which is the whole name of the other bases.
const staticPod = "-static-pod"

// onOpenShift is at the end of the names of bases that are what OpenShift's own
// operator deploys; before it is the container's name.
const onOpenShift = "-on-openshift"

// Bases returns the names of the bases.
func Bases() []string {
	entries, err := fs.ReadDir(own, "bases")
	if err != nil {
		panic(err) // the folder is in this program
	}
	var names []string
	for _, e := range entries {
		if name, is := strings.CutSuffix(e.Name(), ".yaml.tmpl"); is {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Base returns the text of a base, for users to read.
func Base(name string) (string, error) {
	text, err := own.ReadFile(baseFile(name))
	if err != nil {
		return "", fmt.Errorf("base %q is not known; known are %s", name, strings.Join(Bases(), ", "))
	}
	return string(text), nil
}

func baseFile(name string) string { return path.Join("bases", name+".yaml.tmpl") }

type renderer struct {
	*Bundle
	values Values
	data   map[string]any
	// missing are keys of images.json that containers needed.
	missing map[string]bool
	// sources are where objects come from.
	sources map[client.Object]string
}

// onBase merges a manifest into the base that it names, and returns whether it
// names one.
func (r *renderer) onBase(doc document) (document, error) {
	base := doc.meta.Metadata.Annotations[BaseAnnotation]
	if base == "" {
		return doc, nil
	}
	text, err := r.base(base, doc.meta.Metadata.Name)
	if err != nil {
		return doc, err
	}
	raw, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return doc, fmt.Errorf("base %s: %w", base, err)
	}
	into, err := parseDocument(raw)
	if err != nil {
		return doc, fmt.Errorf("base %s: %w", base, err)
	}
	if into.meta.TypeMeta != doc.meta.TypeMeta {
		return doc, fmt.Errorf("base %s is a %s of %s, this is a %s of %s", base, into.meta.Kind, into.meta.APIVersion, doc.meta.Kind, doc.meta.APIVersion)
	}
	// Before the merge, which drops what it does not know.
	object, err := doc.decode()
	if err != nil {
		return doc, err
	}
	merged, err := strategicpatch.StrategicMergePatch(into.json, doc.json, object)
	if err != nil {
		return doc, err
	}
	return parseDocument(merged)
}

func (r *renderer) base(base, name string) (string, error) {
	if _, err := Base(base); err != nil {
		return "", err
	}
	if name == "" {
		return "", errors.New("metadata.name: missing")
	}
	container := strings.TrimSuffix(strings.TrimSuffix(base, staticPod), onOpenShift)
	c, has := r.Containers[container]
	if !has {
		return "", fmt.Errorf("base %s: %s has no containers.%s", base, MetadataFile, container)
	}
	t, err := ownTemplate(baseFile(base))
	if err != nil {
		return "", err
	}
	data := r.containerData(name, c)
	if data["program"] == "" {
		return "", fmt.Errorf("base %s: %s: containers.%s.program: missing", base, MetadataFile, container)
	}
	common, err := execute(t, "flags", data)
	if err != nil {
		return "", fmt.Errorf("base %s: %w", base, err)
	}
	more, err := r.ownFlags(base, container, data)
	if err != nil {
		return "", err
	}
	data["flags"] = append(words(common), more...)
	text, err := execute(t, "", data)
	if err != nil {
		return "", fmt.Errorf("base %s: %w", base, err)
	}
	return text, nil
}

// containerData returns the values for the templates of a base, and of flags.
func (r *renderer) containerData(name string, c Container) map[string]any {
	data := maps.Clone(r.data)
	data["name"], data["program"], data["secrets"], data["indent"] = name, c.Program, c.Secrets, c.OpenShift.Indent
	if r.values.Flavor == Kubernetes && c.KubernetesProgram != "" {
		data["program"] = c.KubernetesProgram
	}
	data["configFile"], data["configFolder"], data["configName"] = c.CloudConfig, "", ""
	if c.CloudConfig != "" {
		data["configFolder"], data["configName"] = path.Dir(c.CloudConfig), path.Base(c.CloudConfig)
	}
	data["containerFeatureGates"] = ""
	if c.FeatureGates {
		data["containerFeatureGates"] = r.values.FeatureGates
	}
	return data
}

func (r *renderer) ownFlags(base, container string, data map[string]any) (flags []string, err error) {
	c, key := r.Containers[container], "flags"
	texts := c.Flags
	switch base {
	case container:
	case container + onOpenShift:
		texts, key = c.OpenShift.Flags, "openshift.flags"
	default:
		return nil, nil
	}
	for i, text := range texts {
		t, err := parse(text)
		if err == nil {
			text, err = execute(t, "", data)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: containers.%s.%s[%d]: %w", MetadataFile, container, key, i, err)
		}
		some := words(text)
		if base == container && len(some) > 0 {
			some = []string{strings.TrimSpace(text)}
		}
		flags = append(flags, some...)
	}
	return flags, nil
}

// words returns the lines that are not empty.
func words(text string) []string {
	var all []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all
}

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

// parts are the blocks that the bases share.
var parts = sync.OnceValues(func() (*template.Template, error) {
	return template.New("").Option("missingkey=error").Funcs(functions).ParseFS(own, "bases/parts.tmpl")
})

func ownTemplate(name string) (*template.Template, error) {
	text, err := own.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return parse(string(text))
}

// parse parses a text that may use the blocks that the bases share. Missing values are
// errors when it is executed.
func parse(text string) (*template.Template, error) {
	shared, err := parts()
	if err != nil {
		return nil, err
	}
	if shared, err = shared.Clone(); err != nil {
		return nil, err
	}
	t, err := shared.New("").Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, describe(err)
	}
	return t, nil
}
