// SPDX-License-Identifier: Apache-2.0

// Package version says which build this is.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Version and Commit are set by the linker:
//
//	-X github.com/outrigger/outrigger/internal/version.Version=v0.1.0
//	-X github.com/outrigger/outrigger/internal/version.Commit=0123abc
//
// What the linker left empty comes from the module and VCS stamps of the build.
var (
	Version string
	Commit  string
)

func init() {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	if Version == "" {
		Version = moduleVersion(info)
	}
	if Commit == "" {
		Commit = revision(info)
	}
}

// String returns version, commit, Go release and platform in one line.
func String() string {
	return fmt.Sprintf("%s (commit %s, %s, %s/%s)", Version, Commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func moduleVersion(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	return "devel"
}

func revision(info *debug.BuildInfo) string {
	commit, dirty := "unknown", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			commit = s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	return commit + dirty
}
