// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"fmt"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

// still is a source that has been read and never changes.
type still struct{}

func (still) Follow(ctx context.Context, _ func()) { <-ctx.Done() }
func (still) State() (bool, error)                 { return true, nil }

// table is a model of a table whose rows may be changed.
func table(tb testing.TB, rows *[]Row, width, height int) *Model {
	columns := []string{"NAMESPACE", "POD", "STATUS", "NODE", "VM", "TYPE", "PHASE", "AGE", "ERROR"}
	open := func(string, string) *View {
		return &View{Name: "pods", Columns: columns, Sources: []Source{still{}}, Rows: func() []Row { return append([]Row{}, *rows...) }}
	}
	m := New(Options{Views: []string{"pods"}, Open: open}, func(tea.Msg) {})
	tb.Cleanup(m.Close)
	m.Init()
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	return m
}

func podRows(n int) (rows []Row) {
	for i := range n {
		name := fmt.Sprintf("web-%05d", i)
		rows = append(rows, Row{Key: name, Cells: []string{"shop", name, "Running", fmt.Sprintf("node-%d", i%100), "i-0123456789abcdef0", "m6i.large", "Ready", "5m"}})
	}
	return rows
}

func press(m *Model, keys ...rune) {
	for _, k := range keys {
		text := string(k)
		if k > 0x10ffff-0x1000 || k < ' ' {
			text = ""
		}
		m.Update(tea.KeyPressMsg{Code: k, Text: text})
	}
}

func seen(m *Model) []string { return strings.Split(ansi.Strip(m.View().Content), "\n") }

// under returns the row of the cursor as it is drawn.
func under(m *Model) string {
	for line := range strings.Lines(m.View().Content) {
		if strings.HasPrefix(line, cursorStyle.String()) {
			return strings.Join(strings.Fields(ansi.Strip(line))[:2], " ")
		}
	}
	return ""
}

func TestKeysMoveTheCursor(t *testing.T) {
	rows := podRows(100)
	m := table(t, &rows, 100, 13) // 10 rows are on the screen
	for _, step := range []struct {
		key rune
		row int
	}{{'j', 1}, {tea.KeyDown, 2}, {'k', 1}, {tea.KeyPgDown, 11}, {tea.KeyPgDown, 21}, {tea.KeyPgUp, 11}, {'G', 99}, {'j', 99}, {'g', 0}, {tea.KeyUp, 0}, {tea.KeyEnd, 99}, {tea.KeyHome, 0}} {
		press(m, step.key)
		if want := fmt.Sprintf("shop web-%05d", step.row); under(m) != want {
			t.Errorf("%q: the cursor is on %q, and not on %q", step.key, under(m), want)
		}
	}
}

// TestTheCursorStaysOnItsRow also when rows before it come and go, and goes to the next one when its own is gone.
func TestTheCursorStaysOnItsRow(t *testing.T) {
	rows := podRows(50)
	m := table(t, &rows, 100, 13)
	press(m, tea.KeyPgDown, tea.KeyPgDown, 'j') // 21
	at := len(seen(m))
	rows = append(podRows(15), rows[20:]...)
	m.Update(refreshMsg{})
	if under(m) != "shop web-00021" || len(seen(m)) != at {
		t.Errorf("after others were gone: %q", under(m))
	}
	rows = rows[:10]
	m.Update(refreshMsg{})
	if under(m) != "shop web-00009" {
		t.Errorf("after its own was gone: %q", under(m))
	}
	rows = nil
	m.Update(refreshMsg{})
	press(m, 'j', 'k', 'G', tea.KeyEnter, 'd', 'y')
	if text := strings.Join(seen(m), "\n"); !strings.Contains(text, "nothing here") {
		t.Errorf("without rows:\n%s", text)
	}
}

// TestScreensFit: no line is longer than the screen is wide, and none is missing, whatever the size.
func TestScreensFit(t *testing.T) {
	rows := podRows(30)
	rows[1].Text, rows[2].Text = strings.Repeat("日本語 ", 40), "a\x1b[31mb\tc\nd"
	rows[3].Cells[1] = strings.Repeat("long-", 60) + "\x1b[2J"
	for _, size := range [][2]int{{1, 1}, {3, 2}, {20, 3}, {79, 10}, {80, 24}, {160, 50}, {400, 100}} {
		m := table(t, &rows, size[0], size[1])
		for _, key := range []rune{'j', '?', tea.KeyEscape, '/', 'x', tea.KeyEscape} {
			press(m, key)
			drawn := m.View().Content
			if strings.Contains(drawn, "\x1b[2J") || strings.ContainsAny(drawn, "\t") {
				t.Errorf("%v: %q was passed on", size, drawn)
			}
			lines := strings.Split(drawn, "\n")
			if len(lines) > size[1] || size[1] >= 3 && len(lines) != size[1] {
				t.Errorf("%v, after %q: %d lines", size, key, len(lines))
			}
			for _, l := range lines {
				if ansi.StringWidth(l) > size[0] {
					t.Errorf("%v, after %q: %q is longer than the screen", size, key, l)
				}
			}
		}
	}
}

// BenchmarkFrame is one key and one frame of 10,000 rows; BenchmarkRefresh is what a change of one of them takes.
func BenchmarkFrame(b *testing.B) {
	rows := podRows(10_000)
	m := table(b, &rows, 160, 50)
	for b.Loop() {
		press(m, 'j')
		m.View()
	}
}

func BenchmarkRefresh(b *testing.B) {
	rows := podRows(10_000)
	m := table(b, &rows, 160, 50)
	for b.Loop() {
		m.Update(refreshMsg{})
	}
}
