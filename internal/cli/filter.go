// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"text/template"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/program"
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
		return hasLabel(p.Labels, v)
	},
}

// hasLabel reports whether there is a label KEY or KEY=VALUE.
func hasLabel(labels map[string]string, text string) bool {
	key, want, given := strings.Cut(text, "=")
	has, ok := labels[key]
	return ok && (!given || has == want)
}

// parseFilters returns which values are wanted, and by which values of which keys.
func parseFilters[T any](filters []string, matchers map[string]func(T, string) bool) (keep func(T) bool, wanted map[string][]string, err error) {
	wanted = map[string][]string{}
	for _, text := range filters {
		key, value, _ := strings.Cut(text, "=")
		if matchers[key] == nil || value == "" {
			return nil, nil, fmt.Errorf("--filter %q: want KEY=VALUE with one of %s", text, strings.Join(slices.Sorted(maps.Keys(matchers)), ", "))
		}
		wanted[key] = append(wanted[key], value)
	}
	keep = func(one T) bool {
		for key, values := range wanted {
			if !slices.ContainsFunc(values, func(v string) bool { return matchers[key](one, v) }) {
				return false
			}
		}
		return true
	}
	return keep, wanted, nil
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

// podHead is the head of a table of pods.
var podHead = podRow{
	ID: "ID", Names: "NAMES", Image: "IMAGE", Command: "COMMAND", CreatedAt: "CREATED AT", RunningFor: "CREATED",
	State: "STATE", Status: "STATUS", Ports: "PORTS", Labels: "LABELS",
}

// printRows prints rows by a template, as docker does: with a head if it begins with table.
func printRows[T any](w io.Writer, format string, head T, rows []T) error {
	text, table := strings.CutPrefix(format, "table ")
	if !table {
		return printTemplate(w, format, rows)
	}
	tabs := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	return errors.Join(printTemplate(tabs, text, append([]T{head}, rows...)), tabs.Flush())
}

// lists has a command list what find returns, as a table or as JSON.
func lists[T any](a *App, cmd *cobra.Command, find func(context.Context, []string) ([]T, error), table func(io.Writer, []T)) *cobra.Command {
	var output string
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		all, err := find(cmd.Context(), args)
		if err != nil {
			return err
		}
		if output == "json" {
			return program.WriteJSON(a.Stdout, all)
		}
		w := tabwriter.NewWriter(a.Stdout, 0, 0, 3, ' ', 0)
		table(w, all)
		return w.Flush()
	}
	commandline.Form(cmd, &output, "output", "form of the output", "table", "json")
	return cmd
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
