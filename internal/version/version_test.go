// SPDX-License-Identifier: Apache-2.0

package version

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestBuildInfoFillsWhatTheLinkerLeftEmpty(t *testing.T) {
	info := &debug.BuildInfo{
		Main: debug.Module{Version: "v1.2.3"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123456789abcdef"},
			{Key: "vcs.modified", Value: "true"},
		},
	}
	if got := moduleVersion(info); got != "v1.2.3" {
		t.Errorf("version = %q", got)
	}
	if got := revision(info); got != "0123456789ab-dirty" {
		t.Errorf("commit = %q", got)
	}
	if got := moduleVersion(&debug.BuildInfo{}) + " " + revision(&debug.BuildInfo{}); got != "devel unknown" {
		t.Errorf("without stamps = %q", got)
	}
}

func TestStringNamesVersionAndCommit(t *testing.T) {
	if s := String(); !strings.Contains(s, Version) || !strings.Contains(s, Commit) {
		t.Errorf("String() = %q lacks %q or %q", s, Version, Commit)
	}
}
