// SPDX-License-Identifier: Apache-2.0

package command

import (
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/plugin"
)

const intro = `cloud-api-adaptor runs pods in their own VMs: it serves the remote hypervisor
protocol of Kata shims and keeps the VMs with a cloud provider.

Usage:
  cloud-api-adaptor <provider> [flags]   serve until SIGTERM; pods and VMs stay
  cloud-api-adaptor <provider> -h        all flags, the provider's included
  cloud-api-adaptor node-identity KUBECONFIG,... COPY
                                         copy the kubelet's kubeconfig, the first that is there
  cloud-api-adaptor version
  cloud-api-adaptor help

Every flag with a variable in brackets can be set by that environment variable
instead. The flag wins; an empty variable counts as unset. A malformed value is
an error: the program names it and exits with status 2. Without <provider> the
variable CLOUD_PROVIDER names it.
`

func printProviders(w io.Writer) {
	names := provider.List()
	if len(names) == 0 {
		fmt.Fprintln(w, "No cloud provider is linked into this program; build it with a provider's build tag, or load a plugin.")
	} else {
		fmt.Fprintln(w, "Supported cloud providers are:")
	}
	for _, name := range names {
		fmt.Fprintf(w, "  %s\n", name)
	}
}

func printExternal(w io.Writer) {
	fmt.Fprintln(w, "\nExternal providers:")
	for _, v := range plugin.Env() {
		fmt.Fprintf(w, "  [%s]\n      %s\n", v.Name, v.Usage)
	}
}

// chosen is the provider that was named on the command line.
type chosen struct {
	name  string
	cloud provider.CloudProvider
	flags *flag.FlagSet
}

// printHelp prints all flags, and those of a provider if one was named.
func printHelp(w io.Writer, chosen *chosen) {
	io.WriteString(w, intro+"\n")
	printProviders(w)
	all := new(settings).bind()
	all.WriteHelp(w)
	printExternal(w)
	if chosen == nil {
		fmt.Fprintln(w, "\nEach provider has flags of its own: cloud-api-adaptor <provider> -h")
		return
	}
	fmt.Fprintf(w, "\nProvider %s:\n", chosen.name)
	if c, ok := chosen.cloud.(config.Configurable); ok {
		c.Schema().WriteHelp(w)
		return
	}
	ours := flag.NewFlagSet("", flag.ContinueOnError)
	all.AddFlags(ours)
	chosen.flags.VisitAll(func(f *flag.Flag) {
		if ours.Lookup(f.Name) != nil {
			return
		}
		kind, usage := flag.UnquoteUsage(f)
		if f.DefValue != "" && f.DefValue != "false" {
			usage += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(w, "  -%s\n      %s\n", strings.TrimSpace(f.Name+" "+strings.ToUpper(kind)), usage)
	})
}

// WriteMarkdown prints every flag and variable of the adaptor itself as
// Markdown tables, for docs/reference.
func WriteMarkdown(w io.Writer) {
	new(settings).bind().WriteMarkdown(w)
	fmt.Fprint(w, "\n## External providers\n\n| variable | meaning |\n|---|---|\n")
	for _, v := range plugin.Env() {
		fmt.Fprintf(w, "| `%s` | %s |\n", v.Name, v.Usage)
	}
}
