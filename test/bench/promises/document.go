// SPDX-License-Identifier: Apache-2.0

package promises

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

const documentHead = `# Benchmarks

Made by ` + "`make bench`" + ` on %s: %d processors, %s, VMs under TCG (QEMU without
KVM), load %.1f over the last 15 minutes. Medians of %d runs unless it says otherwise. What is promised
is compared with what was measured: a figure that does not keep its promise is **bold**, and ` + "`make bench`" + ` failed.
`

// The sections that come first: what a user gains, and all promises.
const (
	StartSection    = "\n## How soon a pod runs\n"
	promisedSection = "\n## What is promised\n"
)

const promisedHead = promisedSection + `
| what | promised | measured | how |
|---|---|---|---|
`

// Document returns the text of docs/benchmarks.md after the run. Sections of the
// old text that the run has not measured stay as they are.
func (r *Run) Document(all []Promise, old string) string {
	promised := promisedHead + r.promised(all)
	merged := merge(sections(old), append([]string{promised}, r.Tables...))
	slices.SortStableFunc(merged, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	return fmt.Sprintf(documentHead, r.Time.Format(time.DateOnly), r.Processors, r.Kernel, r.Load, r.Runs) + strings.Join(merged, "")
}

// rank returns 0 for the section that comes first, then 1, and 2 for all others.
func rank(section string) int {
	first := slices.IndexFunc([]string{StartSection, promisedSection}, func(begin string) bool { return strings.HasPrefix(section, begin) })
	if first < 0 {
		return 2
	}
	return first
}

// promised returns the lines of the first table.
func (r *Run) promised(all []Promise) string {
	var text strings.Builder
	results := r.Judge(all)
	for _, f := range r.Figures {
		if f.Promise == "" {
			fmt.Fprintf(&text, "| %s |  | %s | %s |\n", f.What, f.Measured, f.How)
			continue
		}
		for _, result := range results {
			if result.Name == f.Promise {
				text.WriteString(result.line(f.How))
			}
		}
	}
	for _, result := range results {
		if result.Verdict == DidNotRun {
			text.WriteString(result.line("`" + result.Alone() + "`"))
		}
	}
	return text.String()
}

// sections cuts a text at its second headings; what is above the first is not
// one of them.
func sections(text string) (found []string) {
	for _, part := range strings.Split(text, "\n## ")[1:] {
		found = append(found, "\n## "+strings.TrimSuffix(part, "\n")+"\n")
	}
	return found
}

// merge returns the old sections, in their order, with the new one of the same
// heading in place of each, and then the other new ones.
func merge(old, made []string) []string {
	heading := func(section string) string {
		line, _, _ := strings.Cut(strings.TrimPrefix(section, "\n"), "\n")
		return line
	}
	merged := slices.Clone(old)
	for _, section := range made {
		i := slices.IndexFunc(merged, func(s string) bool { return heading(s) == heading(section) })
		if i < 0 {
			merged = append(merged, section)
			continue
		}
		merged[i] = section
	}
	return merged
}

func (r Result) line(how string) string {
	return fmt.Sprintf("| %s | %s | %s | %s |\n", r.What, r.promised(), r.cell(), how)
}

// promised is the cell of the promise, with its condition.
func (r Result) promised() string {
	if r.Idle {
		return r.Text() + ", idle machine"
	}
	return r.Text()
}
