// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"

	"github.com/nebulaio/nebulaio/internal/plain"
	"github.com/nebulaio/nebulaio/internal/units"
)

const none = "-" // the text of a cell that has no value

// rates prints a rate in both units, because readers confuse them: "3.88 GB/s (3.61 GiB/s)".
func rates(gbps float64) string {
	return units.Rate(gbps) + " (" + gib(gbps) + ")"
}

func gib(gbps float64) string {
	g := gbps * 1e9 / units.GiB
	switch {
	case g >= 10:
		return fmt.Sprintf("%.1f GiB/s", g)
	case gbps >= 0.1: // the unit follows the decimal one beside it
		return fmt.Sprintf("%.2f GiB/s", g)
	}
	return fmt.Sprintf("%.1f MiB/s", g*1024)
}

// size prints a size without needless zeros: "4 MiB", "1.5 GiB".
func size(n int64) string {
	if n >= 1024*units.GiB {
		return trimmed(float64(n)/(1024*units.GiB)) + " TiB"
	}
	num, unit, _ := strings.Cut(units.Bytes(n), " ")
	if strings.Contains(num, ".") {
		num = strings.TrimRight(strings.TrimRight(num, "0"), ".")
	}
	return num + " " + unit
}

func trimmed(v float64) string {
	return strings.TrimRight(strings.TrimRight(strconv.FormatFloat(v, 'f', 2, 64), "0"), ".")
}

// span prints a time with three significant figures.
func span(s float64) string {
	switch {
	case math.IsNaN(s) || math.IsInf(s, 0):
		return none
	case s >= 7200:
		return fmt.Sprintf("%.1f h", s/3600)
	case s >= 120:
		return fmt.Sprintf("%.1f min", s/60)
	case s >= 1:
		return sig(s) + " s"
	case s >= 1e-3:
		return sig(s*1e3) + " ms"
	case s == 0:
		return "0 s"
	}
	return sig(s*1e6) + " µs"
}

// sig prints three significant figures of a number from 0.01 to 9999.
func sig(v float64) string {
	switch {
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// count prints a whole number with its digits grouped: "28 734".
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + " " + s[i:]
	}
	return s
}

// percent prints a ratio as a whole percentage. It adds a decimal if rounding would give 0 % or 100 % although the
// ratio is neither.
func percent(r float64) string {
	p := r * 100
	switch {
	case math.IsNaN(p) || math.IsInf(p, 0):
		return none
	case p > 0 && p < 1, p > 99 && p < 100:
		// Cut, not rounded: 99.96 % is not all.
		return strconv.FormatFloat(max(math.Floor(p*10)/10, 0.1), 'f', 1, 64) + " %"
	}
	// By way of two decimals, so that "0.97 of" and "97 %" agree.
	two, _ := strconv.ParseFloat(strconv.FormatFloat(r, 'f', 2, 64), 64)
	return strconv.FormatFloat(two*100, 'f', 0, 64) + " %"
}

// part returns a/b, or 0 if b is 0.
func part(a, b int64) float64 {
	if b <= 0 {
		return 0
	}
	return float64(a) / float64(b)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// printable makes text of unknown origin safe to display.
func printable(s string) string { return plain.Text(s) }

// glue keeps a number and its unit on one line of a page.
func glue(s string) string {
	var b strings.Builder
	for i, w := range strings.Split(s, " ") {
		if t := b.String(); i > 0 && isUnit(w) && t != "" && strings.IndexByte("0123456789", t[len(t)-1]) >= 0 {
			b.WriteString("\u00a0")
		} else if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(w)
	}
	return b.String()
}

// shell prints a command in a form that can be pasted into a shell.
func shell(args []string) string {
	var b strings.Builder
	for i, a := range args {
		if i > 0 {
			b.WriteByte(' ')
		}
		if a != "" && strings.IndexFunc(a, func(r rune) bool {
			return !(unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_./=:,@%+", r))
		}) < 0 {
			b.WriteString(a)
		} else {
			b.WriteString("'" + strings.ReplaceAll(a, "'", `'\''`) + "'")
		}
	}
	return printable(b.String())
}
