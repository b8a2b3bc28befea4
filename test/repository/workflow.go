// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// workflow is what is looked at of a workflow of GitHub.
type workflow struct {
	Name        string
	On          any
	Permissions map[string]string
	Jobs        map[string]struct {
		Permissions map[string]string
		Timeout     int `yaml:"timeout-minutes"`
		Steps       []struct{ Uses, Run string }
	}
}

var (
	// command is make with targets, and with variables that may be quoted or
	// the output of a command.
	command = regexp.MustCompile(`^make((?: [a-z-]+)+)(?: [A-Z_]+=(?:"[^"]*"|<\([^()]*\)|[\w./-]+))*$`)
	action  = regexp.MustCompile(`^actions/(checkout|setup-go|cache|upload-artifact)@(v\d+|[0-9a-f]{40})$`)
)

// WorkflowFaults returns what is wrong with a workflow: it runs nothing but
// targets, reads the repository and no more, and ends some time.
func WorkflowFaults(data []byte, targets map[string]bool) []string {
	var w workflow
	if err := decode(data, &w); err != nil {
		return []string{err.Error()}
	}
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if w.Name == "" || w.On == nil || len(w.Jobs) == 0 {
		fault("name, on or jobs are missing")
	}
	if !maps.Equal(w.Permissions, map[string]string{"contents": "read"}) {
		fault("permissions are %v", w.Permissions)
	}
	for _, name := range slices.Sorted(maps.Keys(w.Jobs)) {
		job := w.Jobs[name]
		if job.Timeout == 0 || len(job.Permissions) > 0 {
			fault("job %s has no timeout-minutes, or permissions of its own", name)
		}
		for i, step := range job.Steps {
			if text := stepFault(step.Uses, step.Run, targets); text != "" {
				fault("job %s, step %d: %s", name, i+1, text)
			}
		}
	}
	return faults
}

func stepFault(uses, run string, targets map[string]bool) string {
	if uses != "" {
		if !action.MatchString(uses) {
			return fmt.Sprintf("%s is not an action that is allowed, with its version", uses)
		}
		return ""
	}
	m := command.FindStringSubmatch(run)
	if m == nil {
		return fmt.Sprintf("%q is not make with targets and variables", run)
	}
	for _, name := range strings.Fields(m[1]) {
		if !targets[name] {
			return "there is no target " + name
		}
	}
	return ""
}

// form is what is looked at of an issue form of GitHub.
type form struct {
	Name, Description string
	Body              []struct {
		Type, ID   string
		Attributes struct {
			Label, Value string
			Options      []any
		}
	}
}

// FormFaults returns why GitHub would not show a form.
func FormFaults(data []byte) []string {
	var f form
	if err := decode(data, &f); err != nil {
		return []string{err.Error()}
	}
	var faults []string
	if f.Name == "" || f.Description == "" || len(f.Body) == 0 {
		faults = append(faults, "name, description or body are missing")
	}
	ids := map[string]bool{}
	for i, field := range f.Body {
		choice := field.Type == "dropdown" || field.Type == "checkboxes"
		switch {
		case field.Type == "markdown":
			if field.Attributes.Value != "" {
				continue
			}
		case !choice && field.Type != "input" && field.Type != "textarea":
		case field.Attributes.Label != "" && field.ID != "" && !ids[field.ID] && choice == (len(field.Attributes.Options) > 0):
			ids[field.ID] = true
			continue
		}
		faults = append(faults, fmt.Sprintf("field %d (%s %s) is not one that GitHub shows", i+1, field.Type, field.ID))
	}
	return faults
}
