// SPDX-License-Identifier: Apache-2.0

// Program templatekinds writes the Go types of the kinds of templates, such as
// DockerMachineTemplate, of each version of the API below a folder. Those types differ in
// their names alone, and controller-gen needs each of them.
package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"go/format"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

//go:embed types.go.tmpl
var types string

// kind is one of the kinds that templates are made of.
type kind struct {
	Name string
	// HasStatus says that its template has a status, which the autoscaler reads.
	HasStatus bool
}

var kinds = []kind{{"DockerCluster", false}, {"DockerMachine", true}, {"DockerMachinePool", false}, {"OutriggerCluster", false}, {"OutriggerMachine", true}}

// current is the version that is stored, and whose status all versions have.
const current = "v1beta2"

func main() {
	if err := write(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "templatekinds:", err)
		os.Exit(1)
	}
}

func write(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: templatekinds FOLDER, which has api/infrastructure")
	}
	t, err := template.New("").Funcs(template.FuncMap{"lower": strings.ToLower}).Parse(types)
	if err != nil {
		return err
	}
	for _, version := range []string{"v1beta1", current} {
		var text bytes.Buffer
		if err := t.Execute(&text, map[string]any{"Version": version, "IsCurrent": version == current, "Kinds": kinds}); err != nil {
			return err
		}
		source, err := format.Source(text.Bytes())
		if err != nil {
			return err
		}
		folder := filepath.Join(args[0], "api/infrastructure", version)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, "zz_generated.templates.go"), source, 0o644); err != nil {
			return err
		}
	}
	return nil
}
