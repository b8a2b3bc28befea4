// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"

	"github.com/outrigger/outrigger/internal/redact"
)

// Options are what there is to see.
type Options struct {
	// Title names the cluster.
	Title string
	// Namespace is that of the first view; empty is all.
	Namespace string
	// Views are the names of those that have a command, the first one first.
	Views []string
	// Open returns the view of a command, such as pods or po, or nil.
	Open func(name, namespace string) *View
	// NoColor leaves out colours.
	NoColor bool
}

const (
	// together is how long after a change others are waited for, so that many of them are drawn once.
	together = 100 * time.Millisecond
	// aging is how often ages are drawn again while nothing changes.
	aging = 5 * time.Second
)

const keys = `↑ ↓ j k         up and down            Enter   deeper: a node's pods, a pod's VM
PgUp PgDn g G   pages, first and last  Esc     drop the filter, or go back
/               filter                 d       describe
:               command                y       YAML, without what may be secret
0               all namespaces         ?       this help
q Ctrl-C        quit

Commands:
`

type (
	changedMsg struct{} // something has changed
	refreshMsg struct{} // and what came with it as well
	agedMsg    struct{}
)

// Model is the UI as bubbletea runs it.
type Model struct {
	Options
	stack         []*frame
	following     map[Source]context.CancelFunc
	send          func(tea.Msg)
	pending       atomic.Bool // a change is to be drawn
	width, height int
	prompt        rune // / or : while somebody types after it
	typed, said   string
}

// New returns a model whose sources have changes sent to it by send.
func New(o Options, send func(tea.Msg)) *Model {
	return &Model{Options: o, following: map[Source]context.CancelFunc{}, send: send}
}

// Close ends all that was followed.
func (m *Model) Close() { m.unfollow(nil) }

// Run shows the UI until somebody quits or ctx ends, and puts the terminal back.
func Run(ctx context.Context, in, out *os.File, o Options) error {
	if o.Open(o.Views[0], o.Namespace) == nil {
		return fmt.Errorf("%q is not a namespace", o.Namespace)
	}
	options := []tea.ProgramOption{tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler()}
	if o.NoColor {
		options = append(options, tea.WithColorProfile(colorprofile.ASCII))
	}
	var p *tea.Program
	m := New(o, func(msg tea.Msg) { p.Send(msg) })
	p = tea.NewProgram(m, options...)
	defer m.Close()
	_, err := p.Run()
	if ctx.Err() != nil && errors.Is(err, tea.ErrProgramKilled) {
		return ctx.Err()
	}
	return err
}

// Init implements tea.Model.
func (m *Model) Init() tea.Cmd {
	m.command(m.Views[0])
	return age()
}

func age() tea.Cmd { return tea.Tick(aging, func(time.Time) tea.Msg { return agedMsg{} }) }

// Update implements tea.Model.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = max(msg.Width, 1), max(msg.Height, 1)
		m.refresh()
	case changedMsg:
		return m, tea.Tick(together, func(time.Time) tea.Msg { return refreshMsg{} })
	case refreshMsg:
		m.pending.Store(false)
		m.refresh()
	case agedMsg:
		m.refresh()
		return m, age()
	case tea.PasteMsg:
		if m.prompt != 0 {
			m.typed += redact.Line(msg.Content)
			m.narrow()
		}
	case tea.KeyPressMsg:
		return m, m.press(msg)
	}
	return m, nil
}

// changed is called by sources. A change that is not drawn yet takes others with it.
func (m *Model) changed() {
	if m.pending.CompareAndSwap(false, true) {
		m.send(changedMsg{})
	}
}

func (m *Model) top() *frame { return m.stack[len(m.stack)-1] }

// screenful is how many rows or lines of the view are on the screen, between titles and status.
func (m *Model) screenful() int {
	if m.top().Page != nil {
		return max(m.height-2, 1)
	}
	return max(m.height-3, 1)
}

func (m *Model) refresh() {
	m.top().refresh(m.width)
	m.top().move(0, m.screenful())
}

// show puts views, the last one on top, and follows what they are made of.
func (m *Model) show(stack []*frame) {
	m.stack = stack
	var wanted []Source
	for _, f := range stack {
		wanted = append(wanted, f.Sources...)
	}
	m.unfollow(wanted)
	for _, s := range wanted {
		if m.following[s] == nil {
			ctx, cancel := context.WithCancel(context.Background())
			m.following[s] = cancel
			go s.Follow(ctx, m.changed)
		}
	}
	m.refresh()
}

func (m *Model) unfollow(except []Source) {
	for s, cancel := range m.following {
		if !slices.Contains(except, s) {
			cancel()
			delete(m.following, s)
		}
	}
}

// push shows what one of a row's functions returns.
func (m *Model) push(open func() *View) {
	if open == nil {
		m.said = "not available for this row"
		return
	}
	m.show(append(slices.Clone(m.stack), &frame{View: open()}))
}

// press does what a key is for.
func (m *Model) press(key tea.KeyPressMsg) tea.Cmd {
	if key.String() == "ctrl+c" {
		return tea.Quit
	}
	if m.prompt != 0 {
		return m.write(key)
	}
	m.said = ""
	f, row := m.top(), &Row{}
	if f.cursor < len(f.rows) {
		row = &f.rows[f.cursor]
	}
	by, isMove := map[string]int{
		"j": 1, "down": 1, "k": -1, "up": -1, "pgdown": m.screenful(), "pgup": -m.screenful(),
		"g": -f.length(), "home": -f.length(), "G": f.length(), "end": f.length(),
	}[key.String()]
	if isMove {
		f.move(by, m.screenful())
		return nil
	}
	switch key.String() {
	case "q":
		return tea.Quit
	case "esc":
		m.back()
	case "enter":
		m.push(row.Open)
	case "d":
		m.push(row.Describe)
	case "y":
		m.push(row.YAML)
	case "?":
		m.push(m.help)
	case "/", ":":
		m.prompt, m.typed = rune(key.String()[0]), ""
	case "0":
		m.Namespace = ""
		m.command(m.stack[0].Name)
	}
	return nil
}

func (m *Model) back() {
	f := m.top()
	if f.filter == "" && len(m.stack) > 1 {
		m.show(m.stack[:len(m.stack)-1])
		return
	}
	f.filter = ""
	m.refresh()
}

// write adds a key to what is typed after / or :, or ends it.
func (m *Model) write(key tea.KeyPressMsg) tea.Cmd {
	prompt := m.prompt
	switch key.String() {
	case "esc":
		m.prompt, m.typed = 0, ""
	case "enter":
		m.prompt = 0
		if prompt == ':' {
			return m.command(m.typed)
		}
	case "backspace":
		runes := []rune(m.typed)
		m.typed = string(runes[:max(0, len(runes)-1)])
	default:
		m.typed += key.Text
	}
	if prompt == '/' {
		m.narrow()
	}
	return nil
}

// narrow shows the rows that have what is typed, unless that is a command.
func (m *Model) narrow() {
	if m.prompt != ':' {
		m.top().filter, m.top().cursor = m.typed, 0
		m.refresh()
	}
}

// command opens a view, such as "pods" or "pods NAMESPACE", or quits.
func (m *Model) command(text string) tea.Cmd {
	if text == "q" || text == "quit" {
		return tea.Quit
	}
	name, namespace, _ := strings.Cut(strings.TrimSpace(text), " ")
	namespace = cmp.Or(strings.TrimSpace(namespace), m.Namespace)
	view := m.Open(name, namespace)
	if view == nil {
		m.said = "unknown view " + text + "; the views are " + strings.Join(m.Views, ", ") + ", each optionally with a namespace"
		return nil
	}
	m.Namespace = namespace
	m.show([]*frame{{View: view}})
	return nil
}

func (m *Model) help() *View {
	text := keys + "  :" + strings.Join(m.Views, "\n  :") + "\n  :" + m.Views[0] + " NAMESPACE\n  :q\n"
	return &View{Name: "help", Page: func(int) string { return text }}
}

// View implements tea.Model.
func (m *Model) View() tea.View {
	if m.width == 0 || len(m.stack) == 0 {
		return tea.View{AltScreen: true}
	}
	lines := []string{titleStyle.Styled(m.fitted(m.title()))}
	lines = append(lines, m.top().draw(m.width, max(m.height-2, 1))...)
	style, status := m.status()
	lines = append(lines, style.Styled(m.fitted(status)))
	return tea.View{Content: strings.Join(lines[:min(len(lines), m.height)], "\n"), AltScreen: true}
}

func (m *Model) fitted(text string) string {
	return ansi.Truncate(redact.Line(text), m.width, "…")
}

// title names the views from the first to the one on top.
func (m *Model) title() string {
	var names []string
	for _, f := range m.stack {
		name := f.Name
		if f.Of != "" {
			name += " of " + f.Of
		}
		if f.filter != "" {
			name += " /" + f.filter
		}
		names = append(names, name)
	}
	title, where := strings.Join(names, " > "), "all namespaces"
	if f := m.top(); f.Page == nil {
		title += fmt.Sprintf(" [%d]", len(f.rows))
	}
	if m.Namespace != "" {
		where = "namespace " + m.Namespace
	}
	return title + "   " + where + "   " + m.Title
}

// status is the last line: what is typed, what is wrong, or what may be done.
func (m *Model) status() (ansi.Style, string) {
	read, err := m.top().state()
	switch {
	case m.prompt != 0:
		return nil, string(m.prompt) + m.typed + "█"
	case m.said != "":
		return badStyle, m.said
	case err != nil && read:
		return badStyle, "as last read; " + redact.Text(err.Error())
	case err != nil:
		return badStyle, redact.Text(err.Error())
	}
	return nil, "Enter deeper  Esc back  / filter  : command  d describe  y YAML  ? help  q quit"
}
