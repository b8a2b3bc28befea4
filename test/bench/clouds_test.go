// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/test/bench/promises"
	"github.com/outrigger/outrigger/test/stand"
)

// providers are the programs, and the packages whose BenchmarkCloud runs on a
// simulated cloud; others have no lists that grow.
var providers = []struct{ name, pkg string }{
	{"alibabacloud", "alibabacloud"}, {"aws", "aws"}, {"azure", "azure"}, {"gcp", "gcp"}, {"ibmcloud", "ibmcloud"},
	{"ibmcloud-powervs", "ibmcloudpowervs"}, {"openstack", "openstack"}, {"vsphere", "vsphere"},
	{"byom", ""}, {"docker", ""}, {"libvirt", ""}, {"qemu", ""},
}

const cloudsHead = `
## Providers

Calls of the cloud's API for one creation and one deletion, looks at what is under
way included, and a list of many instances: elapsed against a plain fetch of the same
replies on a connection that is there, both without others' garbage. The clouds are simulated and on this machine; for
the list their replies are played back. Medians of at most 3 runs (` + "`BenchmarkCloud` in `./providers/*`" + `). The program is the process plugin, its memory
VmRSS after its first answer.

| provider | calls per create | calls per delete | instances in the list | its calls | elapsed | against a plain fetch | program | resident |
|---|---|---|---|---|---|---|---|---|
`

// clouds is a table of its own: a line for each provider.
func clouds(t *testing.T, runs int) measured {
	table := cloudsHead
	var figures []promises.Figure
	for _, p := range providers {
		if *promise != "" && !isAsked("list-"+p.name) {
			continue
		}
		program := stand.Binary(t, "provider-"+p.name)
		var resident []int64
		for range runs {
			resident = append(resident, pluginRSS(t, program))
		}
		cells, samples := []string{p.name}, cloud(t, p.pkg, runs)
		for _, m := range metrics {
			cell := "–"
			if list := samples[m.name]; len(list) > 0 {
				cell = fmt.Sprintf(m.format, median(list))
			}
			cells = append(cells, cell)
		}
		name := "list-" + p.name
		if _, promised := promises.Find(promises.All(), name); promised {
			if ratios := samples["list/plain"]; len(ratios) > 0 {
				figures = append(figures, promises.Figure{Promise: name, Value: median(ratios), How: "see below"})
			}
		}
		cells = append(cells, mib(size(t, program))+linkage(t, program), mib(median(resident)))
		table += "| " + strings.Join(cells, " | ") + " |\n"
	}
	if *promise != "" { // it lacks lines
		table = ""
	}
	return measured{figures: figures, table: table}
}

// metrics are the columns that BenchmarkCloud reports, and how they are written.
var metrics = []struct{ name, format string }{
	{"calls/create", "%.1f"}, {"calls/delete", "%.1f"}, {"instances", "%.0f"}, {"list-calls", "%.0f"}, {"list-ms", "%.0f ms"}, {"list/plain", "× %.1f"},
}

// cloud returns what a provider's benchmark reports.
func cloud(t *testing.T, pkg string, runs int) map[string][]float64 {
	samples := map[string][]float64{}
	if pkg == "" {
		return samples
	}
	for _, s := range runBenchmark(t, goFigure{pkg: "./providers/" + pkg, benchmark: "BenchmarkCloud", rounds: "3x", runs: 3}, runs) {
		samples[s.metric] = append(samples[s.metric], s.value)
	}
	return samples
}
