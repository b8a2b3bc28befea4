// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"flag"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/bench/promises"
	"github.com/outrigger/outrigger/test/stand"
)

var (
	operatorPeer = flag.String("operator-peer", "", "program cluster-cloud-controller-manager-operator of OpenShift to measure beside ours; none if it is empty")
	operatorIdle = flag.Duration("operator-idle", 2*time.Minute, "how long the measurement ccm-operator watches what has nothing to do")
)

// changes is how many changes of a configuration are timed, and how many looks
// without anything to do are counted.
const changes = 30

const operatorHead = `
## The operator of cloud controller managers

` + "`ccm-operator operator`" + ` with its own defaults, leader election included, at a real API server, on OpenShift
(AWS) and on plain Kubernetes (libvirt); the controllers of workloads are played.%s Requests are from the
API server's audit log. Before it writes, ccm-operator has the API server show what would become of an object
(a dry run), which is part of the time to a rollout. One run on %s, %d processors%s.

| what | OpenShift | plain Kubernetes |%s
|---|---|---|%s
`

// operators is a table of its own: a line for each figure.
func operators(t *testing.T, _ int) measured {
	sides := []operatorSide{{name: "openshift", program: stand.Binary(t, "ccm-operator"), args: []string{"operator"}, prepare: onOpenShift},
		{name: "plain", program: stand.Binary(t, "ccm-operator"), args: []string{"operator"}, prepare: onPlain}}
	head := []any{"", time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), busy(), "", ""}
	if *operatorPeer != "" {
		sides = append(sides, operatorSide{name: "peer", program: *operatorPeer, prepare: onOpenShift})
		head[0] = " Beside it, in the\nsame run and one after the other, the operator that OpenShift has."
		head[4], head[5] = " OpenShift's own | ratio |", "---|---|"
	}
	var all []*operated
	var lines []promises.Figure
	for _, side := range sides {
		// As a subtest, so that it is gone when the next begins.
		t.Run(side.name, func(t *testing.T) {
			m := side.measure(t)
			t.Logf("%+v", *m)
			all = append(all, m)
			if side.name != "peer" {
				how := fmt.Sprintf("in %s", *operatorIdle)
				lines = append(lines, promises.Figure{Promise: "operator-writes-" + side.name, Value: float64(m.idle.writes), How: how},
					promises.Figure{Promise: "operator-share-" + side.name, Value: m.idleShare(), How: how})
			}
		})
	}
	if len(all) < len(sides) {
		return measured{figures: lines}
	}
	table := fmt.Sprintf(operatorHead, head...)
	for _, f := range operatorFigures {
		table += "| " + strings.Join(f.cells(all), " | ") + " |\n"
	}
	return measured{figures: lines, table: table}
}

// operated is what is measured of one operator.
type operated struct {
	size           int64
	packages, sdks int
	rss            int64
	// idle are requests in an interval without any change, looks those in looks
	// that changed nothing.
	idle, looks       requests
	idleCPU, looksCPU time.Duration
	// toRollout are times from a change of the configuration to that of the
	// Deployment, trip those from a write to its event.
	toRollout, trip times
}

// idleShare is what it takes of one processor without any change, in per cent.
func (o *operated) idleShare() float64 { return 100 * o.idleCPU.Seconds() / operatorIdle.Seconds() }

// figure is a line of the table. Better is less.
type figure struct {
	what   string
	format string
	of     func(*operated) float64
}

var operatorFigures = []figure{
	{"program", "%.1f MiB", func(o *operated) float64 { return float64(o.size) / (1 << 20) }},
	{"packages with code in it", "%.0f", func(o *operated) float64 { return float64(o.packages) }},
	{"packages of clouds' SDKs among them", "%.0f", func(o *operated) float64 { return float64(o.sdks) }},
	{"resident, when it has rolled out", "%.1f MiB", func(o *operated) float64 { return float64(o.rss) / (1 << 20) }},
	{"nothing to do: writes, renewals of its lease aside", "%.0f", func(o *operated) float64 { return float64(o.idle.writes) }},
	{"renewals of its lease meanwhile", "%.0f", func(o *operated) float64 { return float64(o.idle.leases) }},
	{"reads meanwhile, those of the lease aside", "%.0f", func(o *operated) float64 { return float64(o.idle.reads) }},
	{"of one processor meanwhile", "%.2f %%", (*operated).idleShare},
	{fmt.Sprintf("%d looks that find nothing to do: writes", changes), "%.0f", func(o *operated) float64 { return float64(o.looks.writes) }},
	{"reads for each of them", "%.1f", func(o *operated) float64 { return float64(o.looks.reads) / changes }},
	{"processor time for each of them", "%.1f ms", func(o *operated) float64 { return o.looksCPU.Seconds() * 1000 / changes }},
	{"from a change of the configuration to the beginning of the rollout, p50", "%.1f ms", func(o *operated) float64 { return o.toRollout.at(0.5) }},
	{"the same, p99", "%.1f ms", func(o *operated) float64 { return o.toRollout.at(0.99) }},
	{"the same, longest", "%.1f ms", func(o *operated) float64 { return o.toRollout.at(1) }},
	{"from a plain write to its event in the same run, p50", "%.1f ms", func(o *operated) float64 { return o.trip.at(0.5) }},
	{"change to rollout in such round trips, p50", "× %.1f", func(o *operated) float64 { return o.toRollout.at(0.5) / o.trip.at(0.5) }},
}

// cells are the line of ours, and with a peer that and what it is to ours on the
// same kind of cluster.
func (f figure) cells(measured []*operated) []string {
	cells := []string{f.what}
	for _, m := range measured {
		cells = append(cells, fmt.Sprintf(f.format, f.of(m)))
	}
	if len(measured) < 3 {
		return cells
	}
	ratio := "–"
	if theirs := f.of(measured[2]); theirs != 0 {
		ratio = fmt.Sprintf("× %.2f", f.of(measured[0])/theirs)
	}
	return append(cells, ratio)
}
