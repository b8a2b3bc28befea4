// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outrigger/outrigger/internal/machines/release"
	ccm "github.com/outrigger/outrigger/internal/nodes/ccm/command"
	adaptor "github.com/outrigger/outrigger/internal/peerpods/adaptor/command"
	"github.com/outrigger/outrigger/internal/peerpods/nodeinstall"
	"github.com/outrigger/outrigger/internal/peerpods/shim"
	"github.com/outrigger/outrigger/provider/config"
)

// commandPage is that of a program of cobra's commands.
func commandPage(name string, cmd *cobra.Command) func(io.Writer) {
	return func(w io.Writer) {
		fmt.Fprint(w, generated, "# ", name, "\n")
		writeCommand(w, cmd)
	}
}

// writeCommand prints a command, its flags and its subcommands as Markdown.
func writeCommand(w io.Writer, cmd *cobra.Command) {
	if cmd.Hidden || cmd.Name() == "help" || cmd.Parent() != nil && cmd.Parent().Name() == "completion" {
		return
	}
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	fmt.Fprintf(w, "\n## %s\n\n%s\n\n```\n%s\n```\n", cmd.CommandPath(), text, cmd.UseLine())
	if cmd.Example != "" {
		fmt.Fprintf(w, "\n```\n%s\n```\n", cmd.Example)
	}
	writeFlags(w, cmd.NonInheritedFlags())
	for _, sub := range cmd.Commands() {
		writeCommand(w, sub)
	}
}

func writeFlags(w io.Writer, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	fmt.Fprint(w, "\n| flag | default | meaning |\n|---|---|---|\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		def := f.DefValue
		if def == "[]" {
			def = ""
		}
		if def != "" {
			def = "`" + def + "`"
		}
		fmt.Fprintf(w, "| %s | %s | %s |\n", name, def, strings.ReplaceAll(f.Usage, "|", `\|`))
	})
}

// settingsPage is that of a program with settings.
func settingsPage(about string, settings *config.Settings) func(io.Writer) {
	return func(w io.Writer) {
		fmt.Fprint(w, generated, about, "\nA flag wins over its variable, a variable over the default. An empty variable counts as\nunset.\n")
		settings.WriteMarkdown(w)
	}
}

// What pages say besides settings.
const (
	controllerAbout = "# peerpod-ctrl\n\nRemoves the instances of deleted PeerPods, and those that lost their PeerPod. The\nprovider's own settings it reads from ConfigMap `peer-pods-cm` and Secret\n`peer-pods-secret`, again when they change.\n"
	capiAbout       = "# capi-manager\n\nMakes machines for Cluster API: containers of a Docker Engine, and instances of any\nprovider. It takes the flags of Cluster API's own managers, with one dash or two. The\nsettings of the provider are its variables: see [providers](providers/).\n"
	csiAbout        = "# outrigger-csi\n\nThe CSI driver `csi.outrigger.dev`: see [volumes](../volumes.md). The settings of the provider\nare its variables: see [providers](providers/).\n"
	webhookAbout    = "# peerpods-webhook\n\n[Sizes](../sizing.md) the VMs of pods as the pods are created.\n"
	adaptorAbout    = "# cloud-api-adaptor\n\n`cloud-api-adaptor <provider> [flags]`. A flag wins over its variable, a variable over\nthe default; an empty variable counts as unset. Each provider has settings of its\nown: see [providers](providers/).\n"
)

func adaptorPage(w io.Writer) {
	fmt.Fprint(w, generated, adaptorAbout)
	adaptor.WriteMarkdown(w)
}

func releasePage(w io.Writer) {
	fmt.Fprint(w, generated, "# capi-release\n\n```\n", strings.TrimSpace(release.Introduction), "\n```\n")
	release.Settings().WriteMarkdown(w)
}

func shimPage(w io.Writer) {
	fmt.Fprint(w, generated, "# ", shim.Name, "\n\ncontainerd starts it: see [the containerd shim](../shim.md).\n\n## Flags\n\n| flag | default | meaning |\n|---|---|---|\n")
	shim.Flags().VisitAll(func(f *flag.Flag) {
		kind, usage := flag.UnquoteUsage(f)
		fmt.Fprintf(w, "| `%s` |  | %s |\n", strings.TrimSpace("-"+f.Name+" "+strings.ToUpper(kind)), usage)
	})
	fmt.Fprint(w, "\n## Environment\n\nAn empty variable counts as unset.\n\n| variable | meaning |\n|---|---|\n")
	for _, v := range shim.Variables() {
		fmt.Fprintf(w, "| `%s` | %s |\n", v[0], v[1])
	}
	fmt.Fprint(w, "\n## Configuration file\n\n| table | key | default | meaning |\n|---|---|---|---|\n")
	for _, key := range shim.Keys() {
		fmt.Fprintf(w, "| `[%s]` | `%s` | %s | %s |\n", key.Table, key.Name, quote(key.Default), key.Usage)
	}
}

func nodeInstallerPage(w io.Writer) {
	fmt.Fprint(w, generated, "# node-installer\n\nBrings the shim and its runtime handler to a node: see [installing](../install.md#what-a-node-needs).\n\n`node-installer COMMAND [flags]`\n\n| command | does |\n|---|---|\n")
	for _, c := range nodeinstall.Commands() {
		fmt.Fprintf(w, "| `%s` | %s |\n", c[0], c[1])
	}
	nodeinstall.Settings().WriteMarkdown(w)
}

const ccmIntroduction = `# cloud-controller-manager

Tells a cluster what its Nodes are in the cloud of any provider: see [Nodes and their
instances](../ccm.md). The settings of the provider are its variables: see
[providers](providers/). They, and those below, can also be in the file of
` + "`--cloud-config`" + `, as lines VARIABLE=VALUE. A flag wins over the file, the file over the
environment.

Besides the flags below it takes those of every cloud controller manager of
Kubernetes 1.36, which ` + "`cloud-controller-manager --help`" + ` lists. Of these some have other
defaults here:

| flag | default elsewhere | default here |
|---|---|---|
`

func ccmPage(w io.Writer) {
	fmt.Fprint(w, generated, ccmIntroduction)
	for _, f := range ccm.OtherDefaults() {
		fmt.Fprintf(w, "| `--%s` | %s | %s |\n", f[0], quote(f[1]), quote(f[2]))
	}
	ccm.Settings().WriteMarkdown(w)
}

func quote(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}
