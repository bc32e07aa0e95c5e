// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/plain"
	"github.com/nebulaio/nebulaio/internal/units"
)

// rate formats a rate of bytes per second for a column. A rate below 1 KB/s is "-", because the eye looks for what
// moves.
func rate(bytes float64) string {
	switch {
	case bytes >= 9.995e9:
		return fmt.Sprintf("%.1f GB/s", bytes/1e9)
	case bytes >= 999.95e6:
		return fmt.Sprintf("%.2f GB/s", bytes/1e9)
	case bytes >= 999.5e3:
		return fmt.Sprintf("%.1f MB/s", bytes/1e6)
	case bytes >= 1e3:
		return fmt.Sprintf("%.0f kB/s", bytes/1e3)
	}
	return "-"
}

// times formats a number of events per second.
func times(n float64) string {
	switch {
	case n >= 1e6:
		return fmt.Sprintf("%.1fM", n/1e6)
	case n >= 1e4:
		return fmt.Sprintf("%.0fk", n/1e3)
	case n >= 10:
		return fmt.Sprintf("%.0f", n)
	case n >= 0.1:
		return fmt.Sprintf("%.1f", n)
	}
	return "-"
}

// share formats a fraction as percent. A negative fraction is unknown.
func share(f float64) string {
	if f < 0 {
		return "?"
	}
	return fmt.Sprintf("%.0f %%", f*100)
}

// known formats a fraction that is 0 if its limit was not measured.
func known(f, limit float64) string {
	if limit <= 0 {
		return "?"
	}
	return share(f)
}

// delay formats a mean latency in seconds; "-" if nothing happened.
func delay(seconds float64) string {
	if seconds <= 0 {
		return "-"
	}
	return units.Duration(time.Duration(seconds * float64(time.Second)))
}

// size formats a number of bytes.
func size(n uint64) string { return units.Bytes(int64(min(n, 1<<62))) }

// leastFirst is the number of columns that the first column of a grid keeps.
const leastFirst = 14

// grid is a table whose columns are as wide as their cells. The first column takes what is left.
type grid struct {
	title string
	heads []string // the first is left-aligned, the others right-aligned
	rows  [][]string
}

func (g *grid) add(cells ...string) { g.rows = append(g.rows, cells) }

// lines draws the grid at most width columns wide and height lines high. The heading counts as a line. Columns at the
// right that do not fit are left out. If rows do not fit, the last line says how many.
func (g *grid) lines(width, height int) []string {
	if len(g.rows) == 0 || height < 2 {
		return nil
	}
	all := append([][]string{append([]string{g.title}, g.heads...)}, g.rows...)
	shown := all
	if len(all) > height {
		shown = all[:height-1]
	}
	wide := make([]int, len(all[0]))
	for _, row := range shown {
		for i, cell := range row {
			wide[i] = max(wide[i], plain.Columns(cell))
		}
	}
	wide[0] = max(wide[0], leastFirst)
	others := 0
	for _, n := range wide[1:] {
		others += 2 + n
	}
	wide[0] = max(min(wide[0], width-others), leastFirst) // the first column gives way before others are left out
	use := wide[0]
	n := 1
	for ; n < len(wide) && use+2+wide[n] <= width; n++ {
		use += 2 + wide[n]
	}
	var out []string
	for _, row := range shown {
		var b strings.Builder
		b.WriteString(pad(plain.Cut(row[0], min(wide[0], width)), min(wide[0], width)))
		for i := 1; i < min(n, len(row)); i++ {
			b.WriteString("  " + strings.Repeat(" ", wide[i]-plain.Columns(row[i])) + row[i])
		}
		out = append(out, strings.TrimRight(b.String(), " "))
	}
	if left := len(all) - len(shown); left > 0 {
		out = append(out, plain.Cut("… and "+strconv.Itoa(left)+" more", width))
	}
	return out
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-plain.Columns(s)))
}

// wrap breaks a text at spaces into lines of at most width columns, and at most height lines. If words are left, the
// last line ends with an ellipsis.
func wrap(text string, width, height int) []string {
	var out []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case plain.Columns(line)+1+plain.Columns(word) <= width:
			line += " " + word
		default:
			out = append(out, plain.Cut(line, width))
			line = word
		}
	}
	if line != "" {
		out = append(out, plain.Cut(line, width))
	}
	if len(out) > height {
		out = out[:height]
		out[height-1] = plain.Cut(out[height-1]+" …", width)
		if !strings.HasSuffix(out[height-1], "…") {
			out[height-1] = plain.Cut(out[height-1], width-2) + " …"
		}
	}
	return out
}
