// SPDX-License-Identifier: Apache-2.0

package command

import (
	"slices"
	"testing"
)

func TestBothNamesOfPowerVS(t *testing.T) {
	for what, c := range map[string]struct {
		env  string
		args []string
	}{
		"argument":           {"", []string{"ibmcloudpowervs"}},
		"variable":           {"ibmcloudpowervs", nil},
		"variable and flags": {"ibmcloudpowervs", []string{"-log-level", "debug"}},
		"own name":           {"", []string{"ibmcloud-powervs"}},
	} {
		command := &Command{Getenv: func(string) string { return c.env }}
		if name, _ := command.chooseProvider(c.args); name != "ibmcloud-powervs" {
			t.Errorf("%s: provider %q", what, name)
		}
	}
}

func TestEnvNamesEveryVariableOnce(t *testing.T) {
	names := Env()
	for _, want := range []string{"CLOUD_PROVIDER", "PROXY_TIMEOUT", "PEERPODS_LIMIT_PER_NODE", "CLOUD_PROVIDER_EXTERNAL_PLUGIN_PATH"} {
		if !slices.Contains(names, want) {
			t.Errorf("no %s", want)
		}
	}
	slices.Sort(names)
	if len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("some are twice: %v", names)
	}
}
