// SPDX-License-Identifier: Apache-2.0

// Program kinds writes the Go types of the kinds and of their lists and templates, such as
// DockerMachine, DockerMachineList and DockerMachineTemplate, of each version of the API below
// a folder. Those types differ in their names and in what kubectl shows of them, and
// controller-gen needs each of them. Specs and status are written by hand.
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

// kind is a kind of infrastructure.
type kind struct {
	Name string
	// Of is what the kind is the infrastructure of: Cluster, Machine or Pool.
	Of string
	// About is what an object is, in lines of a comment.
	About []string
	// HasProvider says that kubectl shows the provider, and that it cannot change.
	HasProvider bool
}

var kinds = []kind{
	{Name: "DockerCluster", Of: "Cluster", About: []string{
		"is what a cluster has at a Docker Engine besides its machines:",
		"a network and a load balancer for its control plane.",
	}},
	{Name: "DockerMachine", Of: "Machine", About: []string{"is a machine that is a container of a Docker Engine."}},
	{Name: "DockerMachinePool", Of: "Pool", About: []string{"is a number of machines that are alike, each a DockerMachine."}},
	{Name: "OutriggerCluster", Of: "Cluster", HasProvider: true, About: []string{
		"is a cluster whose machines are instances of an Outrigger",
		"provider. It makes nothing itself: the endpoint of the control plane is one",
		"that somebody else keeps.",
	}},
	{Name: "OutriggerMachine", Of: "Machine", About: []string{"is a machine that is an instance of an Outrigger provider."}},
}

// current is the version that is stored, and whose status of templates all versions have.
const current = "v1beta2"

func main() {
	if err := write(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "kinds:", err)
		os.Exit(1)
	}
}

func write(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: kinds FOLDER, which has api/infrastructure")
	}
	t, err := template.New("").Funcs(template.FuncMap{"lower": strings.ToLower, "join": strings.Join}).Parse(types)
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
		if err := os.WriteFile(filepath.Join(folder, "zz_generated.kinds.go"), source, 0o644); err != nil {
			return err
		}
	}
	return nil
}
