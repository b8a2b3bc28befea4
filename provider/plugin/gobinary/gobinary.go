// SPDX-License-Identifier: Apache-2.0

// Package gobinary says why a Go plugin cannot be loaded by this program. Both
// must have been built alike, and the runtime's own message names only one of
// the packages that differ; the build information in both files tells the rest.
package gobinary

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"

	"github.com/outrigger/outrigger/provider"
)

// module is ours: the one that host and plugin always share.
const module = "github.com/outrigger/outrigger"

// Side is one of the two binaries.
type Side struct {
	*debug.BuildInfo
	// Sources is the path under which the compiler saw provider/registry.go of
	// [module]; empty when unknown. Two sides with different paths have
	// different packages for the runtime, even when the text is the same.
	Sources string
}

// probeFile is a file of package provider that every plugin is linked with.
const probeFile = "/provider/registry.go"

// Host returns what this program says about itself.
func Host() (Side, error) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Side{}, errors.New("this program has no build information: build it in module mode")
	}
	f := runtime.FuncForPC(reflect.ValueOf(provider.List).Pointer())
	file, _ := f.FileLine(f.Entry())
	return Side{info, file}, nil
}

// Read returns what the file says about itself.
func Read(path string) (Side, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Side{}, err
	}
	info, err := buildinfo.Read(bytes.NewReader(data))
	if err != nil {
		return Side{}, fmt.Errorf("it is not a Go plugin (%w): build one with go build -buildmode=plugin", err)
	}
	return Side{info, sources(data)}, nil
}

// sources finds the path of probeFile in the table of files, whose entries
// end in NUL. The table stays when a binary is stripped.
func sources(data []byte) string {
	for rest := data; ; {
		at := bytes.Index(rest, []byte(probeFile+"\x00"))
		if at < 0 {
			return ""
		}
		start := bytes.LastIndexByte(rest[:at], 0) + 1
		if path := rest[start : at+len(probeFile)]; printable(path) {
			return string(path)
		}
		rest = rest[at+len(probeFile):]
	}
}

func printable(text []byte) bool {
	return !bytes.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == '\uFFFD' })
}

func (s Side) setting(key string) string {
	for _, setting := range s.Settings {
		if setting.Key == key {
			return setting.Value
		}
	}
	return ""
}

// modules returns version and replacement of each module by path, without the
// main one.
func (s Side) modules() map[string]*debug.Module {
	all := map[string]*debug.Module{}
	for _, m := range s.Deps {
		all[m.Path] = m
	}
	return all
}
