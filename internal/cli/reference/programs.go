// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"io"
	"strings"

	capi "github.com/outrigger/outrigger/internal/machines/command"
	"github.com/outrigger/outrigger/internal/machines/release"
	controller "github.com/outrigger/outrigger/internal/peerpods/controller/command"
	"github.com/outrigger/outrigger/internal/peerpods/nodeinstall"
	"github.com/outrigger/outrigger/internal/peerpods/shim"
	webhook "github.com/outrigger/outrigger/internal/peerpods/webhook/command"
)

func controllerPage(w io.Writer) {
	fmt.Fprint(w, generated, "# peerpod-ctrl\n\nRemoves the instances of deleted PeerPods, and those that lost their PeerPod. The\nprovider's own settings it reads from ConfigMap `peer-pods-cm` and Secret\n`peer-pods-secret`, again when they change.\n")
	controller.Settings().WriteMarkdown(w)
}

func capiPage(w io.Writer) {
	fmt.Fprint(w, generated, "# capi-manager\n\nMakes machines for Cluster API: containers of a Docker Engine, and instances of any\nprovider. It takes the flags of Cluster API's own managers, with one dash or two. The\nsettings of the provider are its variables: see [providers](providers/).\n")
	capi.Settings().WriteMarkdown(w)
}

func releasePage(w io.Writer) {
	fmt.Fprint(w, generated, "# capi-release\n\n```\n", strings.TrimSpace(release.Introduction), "\n```\n")
	release.Settings().WriteMarkdown(w)
}

func webhookPage(w io.Writer) {
	fmt.Fprint(w, generated, "# peerpods-webhook\n\n[Sizes](../sizing.md) the VMs of pods as the pods are created.\n")
	webhook.Settings().WriteMarkdown(w)
}

func shimPage(w io.Writer) {
	fmt.Fprint(w, generated, "# ", shim.Name, "\n\ncontainerd starts it: see [the containerd shim](../shim.md).\n")
	writeFlags(w, shim.Flags())
	writeVariables(w, shim.Variables())
	fmt.Fprint(w, "\n## Configuration file\n\n| table | key | default | meaning |\n|---|---|---|---|\n")
	for _, key := range shim.Keys() {
		fmt.Fprintf(w, "| `[%s]` | `%s` | %s | %s |\n", key.Table, key.Name, quote(key.Default), cell(key.Usage))
	}
}

func nodeInstallerPage(w io.Writer) {
	fmt.Fprint(w, generated, "# node-installer\n\nBrings the shim and its runtime handler to a node: see [installing](../install.md#what-a-node-needs).\n\n`node-installer COMMAND [flags]`\n\n| command | does |\n|---|---|\n")
	for _, c := range nodeinstall.Commands() {
		fmt.Fprintf(w, "| `%s` | %s |\n", c[0], c[1])
	}
	nodeinstall.Settings().WriteMarkdown(w)
}

func writeFlags(w io.Writer, flags *flag.FlagSet) {
	fmt.Fprint(w, "\n## Flags\n\n| flag | default | meaning |\n|---|---|---|\n")
	flags.VisitAll(func(f *flag.Flag) {
		kind, usage := flag.UnquoteUsage(f)
		def := f.DefValue
		if def == "false" {
			def = ""
		}
		fmt.Fprintf(w, "| `%s` | %s | %s |\n", strings.TrimSpace("-"+f.Name+" "+strings.ToUpper(kind)), quote(def), cell(usage))
	})
}

func writeVariables(w io.Writer, variables [][2]string) {
	fmt.Fprint(w, "\n## Environment\n\nAn empty variable counts as unset.\n\n| variable | meaning |\n|---|---|\n")
	for _, v := range variables {
		fmt.Fprintf(w, "| `%s` | %s |\n", v[0], cell(v[1]))
	}
}

func quote(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

// cell keeps a text within its column.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}
