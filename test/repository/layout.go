// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Module is the path of this module.
const Module = "github.com/outrigger/outrigger"

// Room is a folder and what its packages import of this module: packages of the
// room itself, and those below one of May.
type Room struct {
	Folder string
	May    []string
}

// shared is what every part may import: packages for one task each, which know
// nothing of pods, machines or Nodes.
var shared = []string{
	"provider", "internal/accounts", "internal/attest", "internal/authority", "internal/checkreport", "internal/commandline", "internal/dockerengine", "internal/filetree", "internal/guestinfo", "internal/kubeapi", "internal/kvm", "internal/loadbalancer", "internal/localnet", "internal/netprobe",
	"internal/blockdevice", "internal/controllers", "internal/directvolume", "internal/nocloud", "internal/ociimage", "internal/procid", "internal/program", "internal/providerid", "internal/redact", "internal/sbom", "internal/timeline",
	"internal/upstream", "internal/variables", "internal/version", "internal/wholefile",
}

func with(more ...string) []string { return append(slices.Clone(shared), more...) }

// Rooms is who may import whom; docs/architecture.md has the reasons. The
// longest folder that fits a package counts. Commands and tests are in no room:
// they may import all.
var Rooms = []Room{
	{"api", nil},
	{"images", nil},
	{"provider", nil},
	{"examples", []string{"provider"}},
	{"machines", []string{"provider", "internal/machines/command"}},
	{"internal", shared},
	{"internal/protocol", nil},
	{"internal/timeline", with("internal/protocol")},
	{"internal/peerpods", with("api/peerpod", "internal/protocol", "internal/keybroker")},
	{"internal/attest", shared},
	{"internal/keybroker", shared},
	{"internal/guest", with("images/podvm", "internal/protocol", "internal/keybroker",
		"internal/peerpods/apf", "internal/peerpods/frametunnel", "internal/peerpods/handover", "internal/peerpods/podnetwork", "internal/peerpods/podtls", "internal/peerpods/ttrpcframe")},
	{"internal/machines", with("api/infrastructure", "images/node")},
	{"internal/nodes", with("api/ccm")},
	{"internal/volumes", shared},
	{"internal/cli", with("api/peerpod", "internal/protocol", "internal/guest/policy", "internal/peerpods/claims", "internal/peerpods/podclient")},
	{"internal/builtin", []string{"providers"}},
	{"internal/dist", with("internal/guest/image", "internal/cli/demoimage", "internal/machines/release")},
}

// roomOf returns the room of a package, or nil if it may import all. A provider
// imports no other one.
func roomOf(folder string) *Room {
	if rest, is := strings.CutPrefix(folder, "providers/"); is {
		name, _, _ := strings.Cut(rest, "/")
		return &Room{"providers/" + name, shared}
	}
	var best *Room
	for i := range Rooms {
		if r := &Rooms[i]; below(folder, r.Folder) && (best == nil || len(r.Folder) > len(best.Folder)) {
			best = r
		}
	}
	return best
}

func below(folder, parent string) bool {
	return folder == parent || strings.HasPrefix(folder, parent+"/")
}

// ForbiddenImports returns the imports below root, except for those of tests and
// of modules within, that Rooms does not allow: "FILE imports PACKAGE".
func ForbiddenImports(root string) ([]string, error) {
	var forbidden []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return enter(root, path)
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		found, err := forbiddenIn(root, path)
		forbidden = append(forbidden, found...)
		return err
	})
	return forbidden, err
}

// enter returns filepath.SkipDir for folders that are not of this module.
func enter(root, path string) error {
	if name := filepath.Base(path); name == "bin" || name == "testdata" || name == ".git" {
		return filepath.SkipDir
	}
	if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && path != root {
		return filepath.SkipDir
	}
	return nil
}

func forbiddenIn(root, path string) (forbidden []string, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	name, err := filepath.Rel(root, path)
	if err != nil {
		return nil, err
	}
	room := roomOf(filepath.ToSlash(filepath.Dir(name)))
	if room == nil {
		return nil, nil
	}
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		if folder, ours := strings.CutPrefix(imported, Module+"/"); ours && !room.allows(folder) {
			forbidden = append(forbidden, fmt.Sprintf("%s imports %s", name, folder))
		}
	}
	return forbidden, nil
}

func (r *Room) allows(folder string) bool {
	return below(folder, r.Folder) && roomOf(folder).Folder == r.Folder ||
		slices.ContainsFunc(r.May, func(may string) bool { return below(folder, may) })
}
