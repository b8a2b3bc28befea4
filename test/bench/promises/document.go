// SPDX-License-Identifier: Apache-2.0

package promises

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const documentHead = `# Benchmarks

Made by ` + "`make bench`" + ` on %s: %d processors, %s, VMs under TCG (QEMU without
KVM), load %.1f over the last 15 minutes. Medians of %d runs unless it says otherwise. What is promised
is compared with what was measured: a figure that does not keep its promise is **bold**, and ` + "`make bench`" + ` failed.

| what | promised | measured | how |
|---|---|---|---|
`

// Document returns the text of docs/benchmarks.md after the run. Sections of the
// old text that the run has not measured stay as they are.
func (r *Run) Document(all []Promise, old string) string {
	var text strings.Builder
	fmt.Fprintf(&text, documentHead, r.Time.Format(time.DateOnly), r.Processors, r.Kernel, r.Load, r.Runs)
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
	for _, section := range merge(sections(old), r.Tables) {
		text.WriteString(section)
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
