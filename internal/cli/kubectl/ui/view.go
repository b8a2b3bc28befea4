// SPDX-License-Identifier: Apache-2.0

// Package ui is a terminal UI of tables and pages that stay as new as what they are made of. It knows nothing of
// clusters: what there is to see comes from whoever runs it.
package ui

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/outrigger/outrigger/internal/redact"
)

// View is a table, or, if Page is set, a page of text.
type View struct {
	// Name is the command that opens it, or what it is about; Of is what it is limited to, such as a node.
	Name, Of string
	// Columns are the titles of the cells. One more is that of the rows' Text.
	Columns []string
	// Spare are the columns that a narrow screen does without, the first one first.
	Spare []string
	// Sources are followed while the view is open.
	Sources []Source
	// Rows returns what the sources have now.
	Rows func() []Row
	// Page returns a text that may have lines longer than width; it is empty if what it is about is gone.
	Page func(width int) string
}

// Row is one of a table.
type Row struct {
	// Key finds the row again when others have come or gone.
	Key   string
	Cells []string
	// Text has what the cells leave of the width. Secrets in it are hidden.
	Text string
	Bad  bool
	// Open, Describe and YAML return what Enter, d and y show; nil if there is nothing.
	Open, Describe, YAML func() *View
}

// Source is something that changes.
type Source interface {
	// Follow keeps it as new as it can until ctx ends, and calls changed, from any goroutine, when State or what there is has changed.
	Follow(ctx context.Context, changed func())
	// State reports whether it was read, ever, and why it cannot be read now.
	State() (read bool, err error)
}

const (
	gap = 2 // columns between cells
	// leastCell is how narrow a column becomes before others are left out.
	leastCell = 20
	// maxPage bounds a page, in bytes.
	maxPage = 512 << 10
)

// frame is a view on the screen, or below it.
type frame struct {
	*View
	filter string
	rows   []Row    // that the filter leaves
	lines  []string // of a page
	widths []int    // of the columns, as wide as their cells
	text   int      // how wide the widest Text is
	// cursor is the row of the cursor, and for pages the first line on the screen, as top is for tables.
	cursor, top int
}

// refresh reads what there is now. The cursor stays on its row, if that is still there.
func (f *frame) refresh(width int) {
	if f.Page != nil {
		f.lines = f.filtered(f.Page(width), width)
		return
	}
	var key string
	if f.cursor < len(f.rows) {
		key = f.rows[f.cursor].Key
	}
	wanted := strings.ToLower(f.filter)
	f.rows = slices.DeleteFunc(f.Rows(), func(r Row) bool {
		return wanted != "" && !strings.Contains(strings.ToLower(strings.Join(r.Cells, " ")+" "+r.Text), wanted)
	})
	if at := slices.IndexFunc(f.rows, func(r Row) bool { return r.Key == key }); at >= 0 {
		f.top, f.cursor = f.top+at-f.cursor, at
	}
	f.widths = make([]int, len(f.Columns))
	for i, title := range f.Columns {
		f.widths[i] = utf8.RuneCountInString(title)
	}
	f.text = 0
	for _, r := range f.rows {
		f.text = max(f.text, utf8.RuneCountInString(r.Text))
		for i, cell := range r.Cells {
			f.widths[i] = max(f.widths[i], utf8.RuneCountInString(cell))
		}
	}
}

// filtered returns the lines of a page, none longer than width.
func (f *frame) filtered(text string, width int) (lines []string) {
	if len(text) > maxPage {
		text = strings.ToValidUTF8(text[:maxPage], "") + "\n(there is more: kubectl shows all of it)"
	}
	text = strings.ReplaceAll(string(redact.Terminal([]byte(text))), "\t", "    ")
	for line := range strings.Lines(strings.TrimRight(text, "\n")) {
		line = strings.TrimSuffix(line, "\n")
		if strings.Contains(strings.ToLower(line), strings.ToLower(f.filter)) {
			lines = append(lines, strings.Split(ansi.Hardwrap(line, max(width, 1), true), "\n")...)
		}
	}
	return lines
}

func (f *frame) length() int { return max(len(f.rows), len(f.lines)) }

// move moves the cursor, or a page's text, and keeps it on the screen of so many lines.
func (f *frame) move(by, height int) {
	last := f.length() - 1
	if f.Page != nil {
		last = f.length() - height
	}
	f.cursor = max(0, min(f.cursor+by, last))
	if f.Page != nil {
		f.top = f.cursor
		return
	}
	f.top = max(0, min(f.top, f.cursor, f.length()-height), f.cursor-height+1)
}

// Styles; colours are left out where NO_COLOR is set.
var (
	titleStyle  = ansi.NewStyle().Bold()
	cursorStyle = ansi.NewStyle().Reverse(true)
	badStyle    = ansi.NewStyle().ForegroundColor(ansi.Red)
)

// draw returns the lines of the screen between title and status, exactly height of them.
func (f *frame) draw(width, height int) []string {
	var lines []string
	switch {
	case f.Page != nil && len(f.lines) > 0:
		lines = f.lines[min(f.top, len(f.lines)):min(f.top+height, len(f.lines))]
	case f.length() == 0:
		lines = f.nothing(width)
	default:
		lines = f.table(width, height)
	}
	return append(slices.Clone(lines[:min(len(lines), height)]), make([]string, max(0, height-len(lines)))...)
}

// table draws the titles and the rows that are on the screen, and no others.
func (f *frame) table(width, height int) []string {
	n := len(f.rows[0].Cells)
	title, reserve := "", 0
	if f.text > 0 {
		title, reserve = strings.Join(f.Columns[n:], ""), min(f.text, width/3)
	}
	shown := f.shown(n, width-reserve)
	widths := fit(pick(f.widths, shown), width-reserve)
	lines := []string{titleStyle.Styled(line(pick(f.Columns, shown), widths, title, width))}
	for i := f.top; i < min(f.top+height-1, len(f.rows)); i++ {
		r := &f.rows[i]
		text := line(pick(r.Cells, shown), widths, redact.Foreign(r.Text), width)
		switch {
		case i == f.cursor:
			text = cursorStyle.Styled(text)
		case r.Bad:
			text = badStyle.Styled(text)
		}
		lines = append(lines, text)
	}
	return lines
}

// shown returns which of the first n columns go into width.
func (f *frame) shown(n, width int) (columns []int) {
	least := 0
	for i := range n {
		columns = append(columns, i)
		least += min(f.widths[i], leastCell) + gap
	}
	for _, title := range f.Spare {
		if i := slices.Index(f.Columns, title); least > width && i >= 0 {
			columns = slices.DeleteFunc(columns, func(c int) bool { return c == i })
			least -= min(f.widths[i], leastCell) + gap
		}
	}
	return columns
}

func pick[T any](all []T, columns []int) (picked []T) {
	for _, i := range columns {
		picked = append(picked, all[i])
	}
	return picked
}

// line draws cells in columns, and a text in what is left.
func line(cells []string, widths []int, text string, width int) string {
	var out strings.Builder
	for i, cell := range cells {
		cell = shorten(redact.Line(cell), widths[i])
		out.WriteString(cell + strings.Repeat(" ", max(0, widths[i]-ansi.StringWidth(cell))+gap))
	}
	out.WriteString(text)
	drawn := ansi.Truncate(out.String(), width, "…")
	return drawn + strings.Repeat(" ", max(0, width-ansi.StringWidth(drawn)))
}

// shorten takes from the middle of a text what is too long: names differ at their ends.
func shorten(text string, width int) string {
	has := ansi.StringWidth(text)
	if has <= width {
		return text
	}
	end := width / 2
	return ansi.Truncate(text, width-end-1, "") + "…" + ansi.TruncateLeft(text, has-end, "")
}

// fit makes the widest columns narrower until all go into width.
func fit(widths []int, width int) []int {
	widths = slices.Clone(widths)
	sum := gap * len(widths)
	for _, w := range widths {
		sum += w
	}
	for ; sum > width; sum-- {
		widest := slices.Index(widths, slices.Max(widths))
		if widths[widest] <= 1 {
			break
		}
		widths[widest]--
	}
	return widths
}

// nothing says why there is nothing to see.
func (f *frame) nothing(width int) []string {
	said := "nothing here"
	switch {
	case f.filter != "":
		said += " has " + f.filter + "; Esc shows all"
	case f.Page != nil:
		said = "it is gone"
	}
	if read, err := f.state(); err != nil {
		said = err.Error()
	} else if !read {
		said = "reading …"
	}
	return strings.Split(ansi.Wrap(string(redact.Terminal([]byte(redact.Text(said)))), max(width, 1), ""), "\n")
}

// state reports whether all sources were read, and what is wrong with one of them.
func (f *frame) state() (read bool, failed error) {
	read = true
	for _, s := range f.Sources {
		is, err := s.State()
		read, failed = read && is, cmp.Or(failed, err)
	}
	return read, failed
}
