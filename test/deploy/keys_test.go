// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/outrigger/outrigger/internal/peerpods/adaptor/command"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
)

// schemaOf returns the settings of an overlay's provider.
func schemaOf(name string) (config.Schema, error) {
	if cloud, ok := provider.Get(name).(config.Configurable); ok {
		return cloud.Schema(), nil
	}
	if name == "libvirt-ext" { // examples/libvirt-ext wraps it
		return schemaOf("libvirt")
	}
	return config.Schema{}, fmt.Errorf("provider %s is not known: import it in providers_test.go", name)
}

// settings are the keys of the ConfigMap and of the Secret, with their values.
func settings(t *testing.T, all []*unstructured.Unstructured) (open, secret map[string]string) {
	t.Helper()
	data := func(object string) map[string]string {
		if find(t, all, object).Object["data"] == nil {
			return map[string]string{}
		}
		m, _, err := unstructured.NestedStringMap(find(t, all, object).Object, "data")
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	open, secret = data("ConfigMap peer-pods-cm"), data("Secret peer-pods-secret")
	for key, value := range secret {
		text, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(value), ""))
		if err != nil {
			t.Fatal(err)
		}
		secret[key] = string(text)
	}
	return open, secret
}

// check returns what is wrong with settings: keys that nobody knows, that do not
// parse, that miss, or that show a secret.
func check(schema config.Schema, open, secret map[string]string) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	byEnv := map[string]config.Field{}
	for _, f := range schema.Fields {
		byEnv[f.Env] = f
		_, inOpen := open[f.Env]
		_, inSecret := secret[f.Env]
		if f.Required && f.Default == "" && !inOpen && !inSecret {
			bad("%s is required and not there", f.Env)
		}
		if f.Secret && inOpen {
			bad("%s is secret and in the ConfigMap", f.Env)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(open)) {
		f, known := byEnv[key]
		switch {
		case !known && !slices.Contains(command.Env(), key) && !strings.HasPrefix(key, "OTEL_"):
			bad("%s is a setting of neither the adaptor nor provider %s", key, schema.Provider)
		case known && open[key] != "":
			if err := f.Check(open[key]); err != nil {
				bad("%s: %w", key, err)
			}
		}
	}
	for key := range secret {
		if _, known := byEnv[key]; !known {
			bad("%s is not a setting of provider %s", key, schema.Provider)
		}
	}
	return errors.Join(errs...)
}

func TestOverlaysHaveTheKeysOfTheirProviders(t *testing.T) {
	for _, name := range folders(t, "deploy/overlays") {
		t.Run(name, func(t *testing.T) {
			open, secret := settings(t, parse(t, overlay(t, name)))
			if name != "external" && open["CLOUD_PROVIDER"] != name {
				t.Errorf("CLOUD_PROVIDER is %q", open["CLOUD_PROVIDER"])
			}
			schema, err := schemaOf(open["CLOUD_PROVIDER"])
			if err != nil {
				t.Fatal(err)
			}
			if err := check(schema, open, secret); err != nil {
				t.Error(err)
			}
			for _, file := range []string{"kustomization.yaml", name + "-cred.env"} {
				for _, key := range offered(t, filepath.Join(root, "deploy/overlays", name, file)) {
					if !known(schema, key) {
						t.Errorf("%s offers %s, which nobody reads", file, key)
					}
				}
			}
		})
	}
}

// known reports whether the adaptor or the provider reads the key.
func known(schema config.Schema, key string) bool {
	return slices.Contains(command.Env(), key) || slices.ContainsFunc(schema.Fields, func(f config.Field) bool { return f.Env == key })
}

var commented = regexp.MustCompile(`(?m)^\s*#\s*(?:- )?([A-Z][A-Z0-9_]*)=`)

// offered are the keys in comments, to be uncommented.
func offered(t *testing.T, file string) []string {
	t.Helper()
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, match := range commented.FindAllStringSubmatch(string(data), -1) {
		keys = append(keys, match[1])
	}
	return keys
}

func TestWrongKeysAreFound(t *testing.T) {
	schema := config.Schema{Provider: "x", Fields: []config.Field{
		{Env: "ZONE", Type: config.String, Required: true}, {Env: "SIZE", Type: config.Int}, {Env: "KEY", Type: config.String, Secret: true},
	}}
	m := func(pairs ...string) map[string]string {
		all := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			all[pairs[i]] = pairs[i+1]
		}
		return all
	}
	for _, c := range []struct {
		open, secret map[string]string
		says         string
	}{
		{m("ZONE", "a", "SIZE", "1", "PROXY_TIMEOUT", "5m"), m("KEY", "k"), ""},
		{m("SIZE", "1"), nil, "ZONE is required"},
		{m("ZONE", "a", "SIZES", "1"), nil, "SIZES is a setting of neither"},
		{m("ZONE", "a", "SIZE", "much"), nil, "SIZE"},
		{m("ZONE", "a", "KEY", "k"), nil, "KEY is secret"},
		{m("ZONE", "a"), m("KEYS", "k"), "KEYS is not a setting"},
	} {
		err := check(schema, c.open, c.secret)
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%v %v: %v, want %q", c.open, c.secret, err, c.says)
		}
	}
}

// The values schema takes the settings of registered providers from them, so a
// change of theirs shows in the chart.
func TestSchemaRefusesWrongValues(t *testing.T) {
	helm := tool(t, "helm")
	for _, c := range []struct{ values, says string }{
		{"provider=", "provider is required"},
		{"provider=Lib_virt", "provider"},
		{"provider=awz", `"awz" is none of alibabacloud, aws,`},
		{"provider=libvirt,image.prefix=", "make image push CLOUD_PROVIDER=NAME PREFIX=REGISTRY/FOLDER"},
		{"provider=libvirt,unknown=1", "unknown"},
		{"provider=libvirt,limit=many", "limit"},
		{"provider=libvirt,config.PROXY_TIMEOUTS=5m", "PROXY_TIMEOUTS"},
		{"provider=libvirt,config.CLOUD_PROVIDER=qemu", "CLOUD_PROVIDER"},
		{"provider=libvirt,providerConfigs.libvirt.LIBVIRT_URL=x", "LIBVIRT_URL"},
		{"provider=libvirt,providerConfigs.libvirt.LIBVIRT_CPU=2", "string"},
		{"provider=libvirt,providerConfigs.libvirt.LIBVIRT_DOMAIN_TYPE=xen", "LIBVIRT_DOMAIN_TYPE"},
		{"provider=qemu,providerConfigs.qemu.QEMU_ACCEL=hvf", "QEMU_ACCEL"},
		{"provider=libvirt,tlsProfile.minVersion=1.2", "minVersion"},
		{"provider=libvirt,tlsProfile.minVersion=VersionTLS13,tlsProfile.cipherSuites={TLS_X}", "cipherSuites"},
		{"provider=libvirt,tlsCerts.ca=x", "all three or none"},
		{"provider=libvirt,secrets.mode=none", "mode"},
		{"provider=libvirt,secrets.mode=reference,secrets.existingSecretName=mine", "resourceCtrl.enabled=false"},
		{"provider=libvirt,image.pullPolicy=Sometimes", "pullPolicy"},
		{"provider=libvirt,webhook.replicas=0", "replicas"},
		{"provider=libvirt,daemonset.updateStrategy.rollingUpdate.maxSurge=some", "maxSurge"},
		{"provider=libvirt,serviceAccountTokens[0].mountPath=/x", "audience"},
		{"provider=libvirt,kubelet.folders={etc}", "folders"},
	} {
		t.Run(c.values, func(t *testing.T) {
			_, stderr, err := execute(helm, helmArgs("", "--set", c.values)...)
			if err == nil || !strings.Contains(string(stderr), c.says) {
				t.Errorf("%v, want %q:\n%s", err, c.says, stderr)
			}
		})
	}
}
