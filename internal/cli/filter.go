// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"text/template"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/outrigger/outrigger/internal/redact"
)

// matchers say whether a pod has the value of a filter of `ps`.
var matchers = map[string]func(p listedPod, value string) bool{
	"name":     func(p listedPod, v string) bool { return strings.Contains(p.Name, v) },
	"id":       func(p listedPod, v string) bool { return strings.HasPrefix(p.ID, v) },
	"status":   func(p listedPod, v string) bool { return p.Status == v },
	"exited":   func(p listedPod, v string) bool { return p.ExitCode != nil && strconv.Itoa(*p.ExitCode) == v },
	"ancestor": func(p listedPod, v string) bool { return p.Image == v || strings.HasPrefix(p.Image, v+":") },
	"label": func(p listedPod, v string) bool {
		key, want, given := strings.Cut(v, "=")
		has, ok := p.Labels[key]
		return ok && (!given || has == want)
	},
}

// parseFilters returns which pods are wanted, and whether those that have ended are among them.
func parseFilters(filters []string) (keep func(listedPod) bool, ended bool, err error) {
	wanted := map[string][]string{}
	for _, text := range filters {
		key, value, _ := strings.Cut(text, "=")
		if matchers[key] == nil || value == "" {
			return nil, false, fmt.Errorf("--filter %q: want KEY=VALUE with one of %s", text, strings.Join(slices.Sorted(maps.Keys(matchers)), ", "))
		}
		wanted[key] = append(wanted[key], value)
	}
	keep = func(p listedPod) bool {
		for key, values := range wanted {
			if !slices.ContainsFunc(values, func(v string) bool { return matchers[key](p, v) }) {
				return false
			}
		}
		return true
	}
	return keep, slices.Contains(wanted["status"], "exited") || wanted["exited"] != nil, nil
}

// podRow is a pod as templates for docker name its fields.
type podRow struct {
	ID, Names, Image, Command, CreatedAt, RunningFor, State, Status, Ports, Labels string

	labels map[string]string
}

// Label returns the value of one label.
func (r podRow) Label(key string) string { return r.labels[key] }

func (p listedPod) row(whole bool, now time.Time) podRow {
	r := podRow{
		ID: p.ID, Names: p.Name, Image: p.Image, Command: redact.Line(strings.Join(p.Command, " ")), State: p.Status,
		CreatedAt: p.Created.Local().Format("2006-01-02 15:04:05 -0700 MST"), RunningFor: duration.HumanDuration(now.Sub(p.Created)) + " ago",
		Status: p.Status, Ports: strings.Join(p.Ports, ", "), labels: p.Labels,
	}
	if !whole {
		r.ID, r.Command = p.ID[:min(len(p.ID), 12)], r.Command[:min(len(r.Command), 20)]
	}
	switch {
	case p.ExitCode != nil:
		r.Status = fmt.Sprintf("Exited (%d) %s ago", *p.ExitCode, duration.HumanDuration(now.Sub(p.finished)))
	case p.Status == "running":
		r.Status = "Up " + duration.HumanDuration(now.Sub(p.Created))
	}
	for _, key := range slices.Sorted(maps.Keys(p.Labels)) {
		r.Labels += "," + key + "=" + p.Labels[key]
	}
	r.Labels = strings.TrimPrefix(r.Labels, ",")
	return r
}

// formatPods prints pods by a template, as docker does.
func (a *App) formatPods(pods []listedPod, format string, whole bool, now time.Time) error {
	var w io.Writer = a.Stdout
	rows := []podRow{}
	if text, table := strings.CutPrefix(format, "table "); table {
		tabs := tabwriter.NewWriter(a.Stdout, 0, 0, 3, ' ', 0)
		defer tabs.Flush()
		w, format = tabs, text
		rows = append(rows, podRow{
			ID: "ID", Names: "NAMES", Image: "IMAGE", Command: "COMMAND", CreatedAt: "CREATED AT", RunningFor: "CREATED",
			State: "STATE", Status: "STATUS", Ports: "PORTS", Labels: "LABELS",
		})
	}
	for _, p := range pods {
		rows = append(rows, p.row(whole, now))
	}
	return printTemplate(w, format, rows)
}

// printTemplate prints each value in a line of its own.
func printTemplate[T any](w io.Writer, format string, values []T) error {
	if format == "json" {
		format = "{{json .}}"
	}
	t, err := template.New("--format").Funcs(template.FuncMap{
		"json": func(v any) (string, error) { data, err := json.Marshal(v); return string(data), err },
		"join": strings.Join, "lower": strings.ToLower, "upper": strings.ToUpper,
	}).Parse(strings.NewReplacer(`\t`, "\t", `\n`, "\n").Replace(format) + "\n")
	if err != nil {
		return err
	}
	for _, v := range values {
		if err := t.Execute(w, v); err != nil {
			return err
		}
	}
	return nil
}
