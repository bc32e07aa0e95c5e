// SPDX-License-Identifier: Apache-2.0

// Package top shows the meters of a machine in a terminal, with one line that says what limits now.
//
// View draws one sample as text and knows no terminal. Run is the interactive program around it.
package top

import (
	"fmt"
	"strings"

	"github.com/nebulaio/nebulaio/internal/bottleneck"
	"github.com/nebulaio/nebulaio/internal/meters"
	"github.com/nebulaio/nebulaio/internal/plain"
)

// View says how a sample is drawn. The zero value of View draws everything without colours, 80 columns wide.
type View struct {
	Width  int // columns; 0 means 80
	Height int // lines; 0 means as many as there are
	Color  bool
	Order  Order // of processes; "" means ByReads
	// Reverse turns the order of processes around. BySize orders disks and interfaces by their rate instead of their name.
	Reverse, BySize bool
	// Filter keeps the rows that contain it in their name, mount point or command line.
	Filter string
	// All shows disks, interfaces and control groups that do nothing, too.
	All bool
	// Note stands at the right end of the first line, such as "paused".
	Note string
	// Keys is the last line; "" leaves it out.
	Keys string
}

// Draw returns the lines of one sample and of the verdict about it. No line is wider than View.Width, and there are at
// most View.Height lines. Text from other programs is drawn with its control characters escaped.
func (v View) Draw(s *meters.Sample, verdict bottleneck.Verdict) []string {
	if v.Width <= 0 {
		v.Width = 80
	}
	height := v.Height
	if height <= 0 {
		height = 1 << 20
	}
	out := v.head(s, verdict, height)
	room := height - len(out)
	if v.Keys != "" {
		room--
	}
	for _, g := range []*grid{v.diskGrid(s), v.gpuGrid(s), v.networkGrid(s), v.remoteGrid(s), v.cuFileGrid(s),
		v.groupGrid(s),
		v.ownGrid(s)} {
		// A third of what is left for each kind, so that many disks do not push the GPUs away.
		lines := g.lines(v.Width, max(min(room-3, max(room/3, 3)), 0))
		out, room = append(out, v.titled(lines)...), room-len(lines)
	}
	lines := v.processGrid(s).lines(v.Width, room)
	out = append(out, v.titled(lines)...)
	room -= len(lines)
	for _, m := range s.Missing {
		if room < 1 {
			break
		}
		text := fmt.Sprintf("no %s: %s", m.Meter, m.Reason)
		if m.Fix != "" {
			text += " (fix: " + m.Fix + ")"
		}
		out, room = append(out, v.dim(plain.Cut(plain.Text(text), v.Width))), room-1
	}
	if v.Keys != "" {
		for ; v.Height > 0 && room > 0; room-- {
			out = append(out, "")
		}
		out = append(out, v.dim(plain.Cut(v.Keys, v.Width)))
	}
	return out[:min(len(out), height)]
}

// head draws the lines above the tables: time, verdict, advice, processors and page cache.
func (v View) head(s *meters.Sample, verdict bottleneck.Verdict, height int) []string {
	title := fmt.Sprintf("nebulaio top  %s  %s", s.Host, s.Time.Format("2006-01-02 15:04:05"))
	if v.Note != "" {
		title += "  [" + v.Note + "]"
	}
	if v.Filter != "" {
		title += "  filter: " + v.Filter
	}
	out := []string{v.dim(plain.Cut(plain.Text(title), v.Width))}
	most := 3
	if height < 24 {
		most = 1
	}
	limit := string(verdict.Bound)
	if verdict.Cause != "" {
		limit += " (" + string(verdict.Cause) + ")"
	}
	if verdict.Why != "" {
		limit += ": " + verdict.Why
	}
	out = append(out, v.labelled("limit", limit, most, v.loud(verdict))...)
	if len(verdict.Next) > 0 {
		out = append(out, v.labelled("do", verdict.Next[0], most, plainText)...)
	}
	c, m, p := s.CPU, s.Memory, s.Pressure
	out = append(out, v.labelled("cpu",
		fmt.Sprintf("%s busy of %d, user %s, system %s, io wait %s, steal %s; pressure cpu "+
			"%s, memory %s, io %s", share(c.Busy()), c.Count, share(c.UserShare), share(c.SystemShare+c.IRQShare),
			share(c.IOWaitShare), share(c.StealShare), share(p.CPUSome), share(p.MemorySome), share(p.IOSome)), 2, plainText)...)
	out = append(out, v.labelled("cache", cacheText(m), 2, plainText)...)
	return append(out, "")
}

func cacheText(m meters.Memory) string {
	text := fmt.Sprintf("%s of %s", size(m.Cached), size(m.Total))
	if m.HitShare >= 0 {
		text += fmt.Sprintf(", hits about %s of %s", share(m.HitShare), rate(m.CallsRate))
	}
	text += fmt.Sprintf(", dirty %s", size(m.Dirty+m.Writeback))
	if m.DirtyLimit > 0 {
		text += fmt.Sprintf(" (%s of the limit)", share(float64(m.Dirty+m.Writeback)/float64(m.DirtyLimit)))
	}
	text += ", written " + rate(m.WrittenRate)
	if m.RefaultRate >= 1e6 {
		text += ", read again " + rate(m.RefaultRate)
	}
	return text
}

// Colours of the terminal.
const (
	plainText = ""
	bold      = "\x1b[1m"
	dimmed    = "\x1b[2m"
	red       = "\x1b[1;31m"
	green     = "\x1b[1;32m"
	reset     = "\x1b[0m"
)

func (v View) styled(style, s string) string {
	if !v.Color || style == plainText || s == "" {
		return s
	}
	return style + s + reset
}

func (v View) dim(s string) string { return v.styled(dimmed, s) }

// loud is the style of a verdict: green if nothing is wrong.
func (v View) loud(verdict bottleneck.Verdict) string {
	switch verdict.Bound {
	case bottleneck.Nothing, bottleneck.Compute:
		return green
	case bottleneck.Unclear:
		return bold
	}
	return red
}

// labelled draws a text behind a label, in at most height lines.
func (v View) labelled(label, text string, height int, style string) []string {
	const column = 7
	var out []string
	for i, line := range wrap(plain.Text(text), max(v.Width-column, 8), height) {
		before := strings.Repeat(" ", column)
		if i == 0 {
			before = pad(label, column)
		}
		out = append(out, plain.Cut(before, v.Width)+v.styled(style, plain.Cut(line, max(v.Width-column, 0))))
	}
	return out
}

// titled makes the heading of a table bold.
func (v View) titled(lines []string) []string {
	if len(lines) > 0 {
		lines[0] = v.styled(bold, lines[0])
	}
	return lines
}
