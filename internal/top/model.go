// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"slices"
	"strings"
	"sync"

	tea "charm.land/bubbletea/v2"

	"github.com/nebulaio/nebulaio/internal/bottleneck"
	"github.com/nebulaio/nebulaio/internal/meters"
)

// keys is the last line of the screen.
const keys = "q quit  space pause  s sort  r reverse  o order devices  / filter  a all  ? help"

// helpLines are shown by the key ?.
var helpLines = [...]string{
	"space, p   pause the screen; samples are still recorded",
	"n          show the next sample while the screen is paused",
	"s          sort processes by the next column: read, write, cpu, wait or name",
	"r          reverse the order of processes",
	"o          order disks and interfaces by rate or by name",
	"/          filter rows by name, mount point or command; enter keeps the filter, esc removes it",
	"a          show idle disks, interfaces and control groups too",
	"w          show or hide the reasons behind the verdict",
	"q, ctrl+c  quit",
	"",
	"of ceiling  share of the highest rate that nebulaio bench ceilings measured",
	"of link     share of the rate of the link, or of its measured ceiling",
	"hits        share of the bytes of read calls that no disk delivered (an estimate)",
	"from disk   bytes that storage delivered for the process",
	"stopped     share of the periods in which the CPU quota stopped the group",
}

// model is the state of the interactive program. Update changes it, and View draws it.
type model struct {
	ctx    context.Context
	source Source
	view   View

	sample  *meters.Sample // shown
	verdict bottleneck.Verdict
	newest  *meters.Sample
	judged  bottleneck.Verdict // shown verdict of newest
	steady  steady

	paused, typing, help, why bool
	waiting                   bool // a sample is under way
	step                      bool // the sample under way is shown although the screen is paused
	over                      bool // the recording has ended
	replay                    bool
	err                       error

	reading sync.Mutex // held while the source delivers a sample
	closed  bool       // guarded by reading: the source must not be used any more
}

// arrived brings the next sample, or the error in its place.
type arrived struct {
	sample *meters.Sample
	err    error
}

// Init implements tea.Model: it asks for the first sample.
func (m *model) Init() tea.Cmd { return m.next() }

// next asks for a sample. Only one is under way at any time.
func (m *model) next() tea.Cmd {
	if m.waiting || m.over {
		return nil
	}
	m.waiting = true
	return func() tea.Msg {
		m.reading.Lock()
		defer m.reading.Unlock()
		if m.closed {
			return nil
		}
		s, err := m.source.Next(m.ctx)
		return arrived{s, err}
	}
}

// close waits until no sample is under way. The source is not used afterwards.
func (m *model) close() {
	m.reading.Lock()
	defer m.reading.Unlock()
	m.closed = true
}

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.view.Width, m.view.Height = msg.Width, msg.Height
	case arrived:
		return m, m.arrive(msg)
	case tea.KeyPressMsg:
		return m, m.press(msg.String(), msg.Text)
	}
	return m, nil
}

func (m *model) arrive(a arrived) tea.Cmd {
	m.waiting = false
	if ended(a.err) {
		m.over = true
		return nil
	}
	if a.err != nil {
		m.err = a.err
		return tea.Quit
	}
	m.newest, m.judged = a.sample, m.steady.next(bottleneck.Judge(a.sample.Window()))
	if !m.paused || m.sample == nil || m.step {
		m.show()
	}
	m.step = false
	if m.paused && m.replay {
		return nil // the key n goes on
	}
	return m.next()
}

func (m *model) show() { m.sample, m.verdict = m.newest, m.judged }

// press handles a key. The parameter text is what the key types, or "".
func (m *model) press(key, text string) tea.Cmd {
	if m.typing {
		m.edit(key, text)
		return nil
	}
	switch key {
	case "q", "ctrl+c":
		return tea.Quit
	case "space", "p":
		return m.pause()
	case "n", "right":
		if m.newest == nil || !m.paused {
			return nil
		}
		if m.sample != m.newest || !m.replay {
			m.show()
			return nil
		}
		m.step = true
		return m.next()
	case "s":
		all := Orders()
		m.view.Order = all[(slices.Index(all, m.view.Order)+1)%len(all)]
	case "r":
		m.view.Reverse = !m.view.Reverse
	case "o":
		m.view.BySize = !m.view.BySize
	case "a":
		m.view.All = !m.view.All
	case "w":
		m.why = !m.why
	case "?", "h":
		m.help = !m.help
	case "/":
		m.typing = true
	case "esc":
		m.view.Filter, m.help = "", false
	}
	return nil
}

func (m *model) pause() tea.Cmd {
	m.paused = !m.paused
	if m.paused || m.newest == nil {
		return nil
	}
	m.show()
	return m.next()
}

// mostFilter bounds the filter that a user types, in bytes.
const mostFilter = 64

// edit changes the filter while the user types it.
func (m *model) edit(key, text string) {
	switch key {
	case "enter":
		m.typing = false
	case "esc", "ctrl+c":
		m.typing, m.view.Filter = false, ""
	case "backspace":
		if r := []rune(m.view.Filter); len(r) > 0 {
			m.view.Filter = string(r[:len(r)-1])
		}
	default:
		if len(m.view.Filter)+len(text) <= mostFilter {
			m.view.Filter += text
		}
	}
}

// View implements tea.Model.
func (m *model) View() tea.View {
	v := tea.NewView(strings.Join(m.lines(), "\n"))
	v.AltScreen = true
	return v
}

func (m *model) lines() []string {
	if m.sample == nil {
		return []string{"reading the meters …"}
	}
	v := m.view
	v.Note, v.Keys = m.note(), keys
	if m.typing {
		v.Keys = "filter: " + m.view.Filter + "_   (enter keeps it, esc removes it)"
	}
	if m.help {
		return append([]string{v.styled(bold, "nebulaio top"), ""}, helpLines[:]...)
	}
	lines := v.Draw(m.sample, m.verdict)
	if m.why {
		lines = m.reasons(v)
	}
	return lines
}

// reasons lists everything behind the verdict in place of the tables.
func (m *model) reasons(v View) []string {
	out := v.head(m.sample, m.verdict, 1<<20)
	for _, f := range m.verdict.Figures {
		out = append(out, v.labelled(f.Name, share(f.Share)+"  "+f.Text, 3, plainText)...)
	}
	for i, next := range m.verdict.Next {
		label := ""
		if i == 0 {
			label = "next"
		}
		out = append(out, v.labelled(label, next, 4, plainText)...)
	}
	if s := m.verdict.Step; s.Number > 0 {
		out = append(out, v.labelled("step", s.Title+": "+s.Do, 4, plainText)...)
	}
	return append(out, "", v.dim("w hides the reasons"))[:min(len(out)+2, max(v.Height, 1))]
}

func (m *model) note() string {
	var all []string
	if m.replay {
		all = append(all, "replay")
	}
	if m.over {
		all = append(all, "end of the recording")
	}
	if m.paused {
		all = append(all, "paused")
	}
	if m.view.Order != "" && m.view.Order != ByReads {
		all = append(all, "by "+string(m.view.Order))
	}
	return strings.Join(all, ", ")
}
