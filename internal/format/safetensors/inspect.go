// SPDX-License-Identifier: Apache-2.0

package safetensors

import (
	"fmt"
	"strings"

	"github.com/nebulaio/nebulaio/internal/format"
)

// Severity is the importance of a Problem.
type Severity string

const (
	// Info marks a property of a file that costs nothing or a little speed.
	Info Severity = "info"
	// Warn marks a legal property of a file that is likely to trouble some readers.
	Warn Severity = "warn"
)

// Problem is a noteworthy property of a valid file. Violations of the format are not Problems but errors of Parse.
type Problem struct {
	Severity Severity `json:"severity"`
	Tensor   string   `json:"tensor,omitempty"` // name of the tensor; empty if the problem concerns the whole file
	Text     string   `json:"text"`
	Fix      string   `json:"fix,omitempty"`
}

// Inspect lists the legal but noteworthy properties of a parsed file: first those of the whole file, then those of
// its tensors in order. Each tensor has at most one Problem of each kind, and a good file has none.
func Inspect(f *format.File) []Problem {
	var ps []Problem
	switch {
	case f.DataStart%AlignDefault != 0:
		ps = append(ps, Problem{Severity: Warn,
			Text: fmt.Sprintf("the data starts at byte %d, which is not a multiple of %d: tensors are not aligned to their "+
				"dtypes", f.DataStart, AlignDefault),
			Fix: fmt.Sprintf("write the file again with the header padded by spaces to a multiple of %d bytes", AlignDefault)})
	case f.DataStart%AlignPage != 0:
		ps = append(ps, Problem{Severity: Info,
			Text: fmt.Sprintf("the data starts at byte %d, which is not a multiple of %d: direct I/O reads up to a page more "+
				"at each end", f.DataStart, AlignPage),
			Fix: fmt.Sprintf("write the file again with the header padded by spaces to a multiple of %d bytes", AlignPage)})
	}
	for i := range f.Tensors {
		t := &f.Tensors[i]
		if align := t.DType.Align(); align > 1 && t.Offset%align != 0 {
			ps = append(ps, Problem{Severity: Warn, Tensor: t.Name,
				Text: fmt.Sprintf("it starts at byte %d, which is not a multiple of %d, the element size of %s: it must be "+
					"copied before use", t.Offset, align, t.DType),
				Fix: "write the file again with tensors in order of decreasing element size"})
		}
		if t.Size == 0 {
			ps = append(ps, Problem{Severity: Info, Tensor: t.Name,
				Text: fmt.Sprintf("its shape %s has no elements: it has no bytes to load", shapeText(t.Shape))})
		}
		if looksReserved(t.Name) {
			ps = append(ps, Problem{Severity: Warn, Tensor: t.Name,
				Text: "its name looks like " + metadataKey + " but is a tensor",
				Fix:  "rename the tensor"})
		}
	}
	return ps
}

// looksReserved reports whether a reader or a person may mistake the name for the metadata key.
func looksReserved(name string) bool {
	return strings.HasPrefix(strings.ToLower(strings.TrimSpace(name)), "__metadata")
}
