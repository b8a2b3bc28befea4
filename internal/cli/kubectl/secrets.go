// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/outrigger/outrigger/internal/redact"
)

// removed stands where something was left out.
const removed = "(removed)"

// shortestSecret is in characters: shorter values, such as "1", would strike
// out half of every file and are found by trying anyway.
const shortestSecret = 4

// redactor strikes out secrets, whatever they are written like.
type redactor struct{ known []string }

// learn adds a value, and its lines, since logs quote texts line by line.
func (s *redactor) learn(value string) {
	texts := []string{value, strings.TrimSpace(value)}
	for line := range strings.Lines(value) {
		texts = append(texts, strings.TrimSpace(line))
	}
	for _, text := range texts {
		if len(strings.TrimSpace(text)) >= shortestSecret {
			s.known = append(s.known, text)
		}
	}
}

// Secrets that are known by their form.
var secretForms = []struct {
	form *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----`), removed},
	{regexp.MustCompile(`://[^/@\s"]+@`), "://" + removed + "@"},
	{regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+`), removed}, // JSON web tokens
	{regexp.MustCompile(`(?i)(authorization"?\s*[:=]\s*"?(?:bearer|basic)\s+)[^\s"]+`), "${1}" + removed},
}

// out returns the text without secrets.
func (s *redactor) out(text []byte) []byte {
	text = []byte(redact.Replacer(s.known, removed).Replace(string(text)))
	for _, f := range secretForms {
		text = f.form.ReplaceAll(text, []byte(f.by))
	}
	return text
}

// learnSecrets reads what must not be in the bundle, as far as it may.
func (b *bundle) learnSecrets(ctx context.Context) {
	secrets, err := list[struct {
		Data map[string][]byte `json:"data"`
	}](ctx, b.c, core(b.app.system, "secrets"), nil)
	if err == nil {
		for _, s := range secrets {
			for _, value := range s.Data {
				b.strike.learn(string(value))
			}
		}
		return
	}
	b.lacks("values of the Secrets of "+b.app.system+", to be struck out of logs", err)
	one, err := b.c.secret(ctx, b.app.system, secretName)
	if err != nil && !apierrors.IsNotFound(err) {
		b.lacks("values of Secret "+secretName+", to be struck out of logs", err)
	}
	for _, value := range one {
		b.strike.learn(value)
	}
}

// secretWords are parts of the names of settings that nobody should see.
var secretWords = []string{"PASS", "SECRET", "TOKEN", "CREDENTIAL", "APIKEY", "API_KEY", "ACCESS_KEY", "ACCESSKEY", "PRIVATE", "INITDATA", "AUTH"}

func soundsSecret(key string) bool {
	return slices.ContainsFunc(secretWords, func(word string) bool { return strings.Contains(strings.ToUpper(key), word) })
}

// addConfig adds the settings of the ConfigMap; the Secret is only named by
// its keys. Values that should have been in the Secret are struck out of all
// that follows, too.
func (b *bundle) addConfig(ctx context.Context) {
	s := settings{}
	var err error
	if s.config, err = b.c.configMap(ctx, b.app.system, configMapName); err != nil {
		b.lacks("config.json", err)
		return
	}
	secret := map[string]bool{}
	if schema, err := b.app.schema(ctx, &s); err == nil {
		for _, f := range schema.Fields {
			secret[f.Env] = f.Secret
		}
	}
	shown := map[string]string{}
	for key, value := range s.config {
		if shown[key] = value; secret[key] || soundsSecret(key) {
			b.strike.learn(value)
			shown[key] = removed
		}
	}
	b.addJSON("config.json", shown)
	values, _ := b.c.secret(ctx, b.app.system, secretName)
	keys := slices.AppendSeq([]string{}, maps.Keys(values))
	slices.Sort(keys)
	b.addJSON("secret-keys.json", keys)
}

// harmless takes from an object what may be secret and what nobody reads.
func harmless(o map[string]any) {
	if metadata, ok := o["metadata"].(map[string]any); ok {
		delete(metadata, "managedFields")
		if annotations, ok := metadata["annotations"].(map[string]any); ok {
			harmlessAnnotations(annotations)
		}
	}
	for key, value := range o {
		switch {
		case slices.Contains([]string{"command", "args", "httpHeaders"}, key) && value != nil:
			o[key] = []any{removed}
		case key == "env":
			harmlessEnv(value)
		default:
			descend(value)
		}
	}
}

func descend(value any) {
	switch v := value.(type) {
	case map[string]any:
		harmless(v)
	case []any:
		for _, item := range v {
			descend(item)
		}
	}
}

// harmlessAnnotations keeps the values that say something about a VM.
func harmlessAnnotations(annotations map[string]any) {
	for key := range annotations {
		known := strings.HasPrefix(key, "io.katacontainers.") || strings.HasPrefix(key, "confidentialcontainers.org/") || strings.HasPrefix(key, "kata.peerpods.io/")
		if !known || strings.Contains(key, "init_data") || strings.HasSuffix(key, "/initdata") {
			annotations[key] = removed
		}
	}
}

// harmlessEnv keeps names and references and no values.
func harmlessEnv(value any) {
	variables, _ := value.([]any)
	for _, item := range variables {
		if v, ok := item.(map[string]any); ok && v["value"] != nil {
			v["value"] = removed
		}
	}
}
