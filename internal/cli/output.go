// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/plain"
	"github.com/nebulaio/nebulaio/internal/units"
)

// printJSON writes v to stdout as the only JSON object.
func (a *app) printJSON(v any) error {
	buf := bufio.NewWriter(a.out)
	if err := encodeJSON(buf, v); err != nil {
		return errs.Wrap("encode", "JSON", err)
	}
	_ = buf.Flush() // checkedWriter records the error
	return nil
}

func encodeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// printText writes the output of f to stdout in one piece.
func (a *app) printText(f func(w io.Writer)) {
	buf := bufio.NewWriter(a.out)
	f(buf)
	_ = buf.Flush() // checkedWriter records the error
}

// printResult writes v as JSON, or as the text that text writes.
func (a *app) printResult(asJSON bool, v any, text func(w io.Writer)) error {
	if asJSON {
		return a.printJSON(v)
	}
	a.printText(text)
	return nil
}

// table is text in columns. Cells are never shortened.
type table struct {
	right  []bool // which columns are right-aligned
	indent string
	rows   [][]string
}

// newTable returns a table with a header row. A heading that starts with '>'
// makes its column right-aligned.
func newTable(heads ...string) *table {
	t := &table{}
	row := make([]string, len(heads))
	for i, h := range heads {
		name, right := strings.CutPrefix(h, ">")
		t.right = append(t.right, right)
		row[i] = name
	}
	t.rows = append(t.rows, row)
	return t
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print(w io.Writer) {
	width := make([]int, len(t.right))
	for _, r := range t.rows {
		for i, c := range r {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for _, r := range t.rows {
		var line strings.Builder
		line.WriteString(t.indent)
		for i, c := range r {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if t.right[i] {
				line.WriteString(pad + c + "  ")
			} else {
				line.WriteString(c + pad + "  ")
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}

// field prints one named line of a report.
func field(w io.Writer, name, format string, args ...any) {
	fmt.Fprintf(w, "%-10s%s\n", name, fmt.Sprintf(format, args...))
}

// printable makes foreign text safe for a terminal.
func printable(s string) string { return plain.Text(s) }

func seconds(s float64) string { return units.Duration(time.Duration(s * float64(time.Second))) }

func sized(n int64) string {
	if n < units.KiB {
		return units.Bytes(n)
	}
	return fmt.Sprintf("%s (%d bytes)", units.Bytes(n), n)
}

// plural returns "1 file" or "2 files".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
