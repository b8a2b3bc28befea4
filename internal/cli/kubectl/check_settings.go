// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/outrigger/outrigger/internal/cli/doctor"
	"github.com/outrigger/outrigger/internal/upstream"
	"github.com/outrigger/outrigger/provider/config"
)

const editHint = "kubectl edit configmap " + configMapName + " -n "

// settings checks the keys of ConfigMap and Secret against the provider's
// schema. A Secret that may not be read leaves only its own keys unchecked.
func (k *checker) settings(ctx context.Context) doctor.Result {
	var s settings
	var err error
	if s.config, err = k.c.configMap(ctx, k.app.system, configMapName); err != nil {
		return unread(err, "ConfigMap "+k.app.system+"/"+configMapName)
	}
	s.secret, err = k.c.secret(ctx, k.app.system, secretName)
	hidden := err != nil && !apierrors.IsNotFound(err)
	edit := editHint + k.app.system
	if s.provider() == "" {
		return doctor.Fail(edit, "CLOUD_PROVIDER is not set in ConfigMap %s", configMapName)
	}
	schema, err := k.app.schema(ctx, &s)
	if err != nil {
		return doctor.Warn("name the plugin on this machine by CLOUD_PROVIDER_PLUGIN_PATH to have its settings checked", "the settings of provider %s are not known here: %v", s.provider(), err)
	}
	if wrong := wrongSettings(&s, schema, hidden); len(wrong) > 0 {
		return doctor.Fail(edit+"; the settings: docs/reference/providers/"+s.provider()+".md", "%s", strings.Join(wrong, "; "))
	}
	if odd := oddSettings(&s, schema); len(odd) > 0 {
		return doctor.Warn(edit, "%s", strings.Join(odd, "; "))
	}
	if hidden {
		return doctor.Good("provider %s; Secret %s may not be read by you and was not checked", s.provider(), secretName)
	}
	return doctor.Good("provider %s, all keys are valid", s.provider())
}

// wrongSettings returns the settings with which the provider does not start.
func wrongSettings(s *settings, schema config.Schema, hidden bool) []string {
	var wrong []string
	get := upstream.Getenv(schema.Provider, s.get)
	for _, f := range schema.Fields {
		if f.Env == "" {
			continue
		}
		text := get(f.Env)
		if text == "" {
			if f.Required && f.Default == "" && !(hidden && f.Secret) {
				wrong = append(wrong, f.Env+" is required and not set")
			}
			continue
		}
		if err := f.Check(text); err != nil {
			wrong = append(wrong, f.Env+": "+err.Error())
		}
	}
	return wrong
}

// oddSettings returns settings that work but are probably mistakes: secrets that
// everybody can read, and keys that look like the provider's but are not.
func oddSettings(s *settings, schema config.Schema) []string {
	known, families := map[string]bool{}, map[string]bool{}
	odd := upstream.Warnings(schema.Provider, s.get)
	for _, k := range upstream.KeysOf(schema.Provider) {
		known[k.Name] = true
	}
	for _, f := range schema.Fields {
		known[f.Env] = true
		if family, _, ok := strings.Cut(f.Env, "_"); ok && strings.EqualFold(family, schema.Provider) {
			families[family] = true
		}
		if f.Secret && s.config[f.Env] != "" {
			odd = append(odd, fmt.Sprintf("%s is a secret and is in the ConfigMap: move it to Secret %s", f.Env, secretName))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.config)) {
		if family, _, _ := strings.Cut(key, "_"); families[family] && !known[key] {
			odd = append(odd, fmt.Sprintf("%s is not a setting of provider %s", key, schema.Provider))
		}
	}
	return odd
}
