// SPDX-License-Identifier: Apache-2.0

package command

import "testing"

// TestSourceCheckOfTunnels: a gateway between node and VM translates addresses.
func TestSourceCheckOfTunnels(t *testing.T) {
	for _, c := range []struct {
		setting, flag, value string
		want                 bool
	}{
		{"auto", "", "", true},
		{"auto", "use-public-ip", "false", true},
		{"auto", "use-public-ip", "true", false},
		{"auto", "floating-network-id", "0a1b", false},
		{"true", "use-public-ip", "true", true},
		{"false", "", "", false},
	} {
		cfg := &settings{SourceCheck: c.setting, providerFlag: func(name string) string {
			if name == c.flag {
				return c.value
			}
			return ""
		}}
		if got := cfg.checksSources(); got != c.want {
			t.Errorf("-tunnel-source-check=%s with -%s=%s: %v", c.setting, c.flag, c.value, got)
		}
	}
}
