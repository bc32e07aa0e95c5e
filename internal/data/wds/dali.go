// SPDX-License-Identifier: Apache-2.0

package wds

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
)

const daliVersion = "v1.2"

// ReadDALI parses the text of an index that DALI's wds2idx wrote, version v1.2. Messages show the index as `index`. The
// parameters tar and size are the name and the size of the archive. ReadDALI groups and skips members as Open does, so
// that both return the same table. ReadDALI cannot notice an index of another archive.
// An index by wds2idx has no hidden files such as "dir/.x", which webdataset takes for samples.
//
// A damaged index is an error of kind Corrupt. Other versions are Unsupported, and so are names with a backslash,
// because wds2idx escapes some characters with it.
func ReadDALI(text []byte, index, tar string, size int64) (*sample.Table, error) {
	first, rest, _ := bytes.Cut(text, []byte{'\n'})
	head := strings.Fields(string(first[:min(len(first), 100)]))
	switch {
	case len(head) == 0 || !strings.HasPrefix(head[0], "v"):
		return nil, badDALI(index, 1,
			fmt.Sprintf("the line is %.60q, expected %q and the number of samples", first, daliVersion))
	case head[0] != daliVersion:
		e := errs.New(errs.Unsupported, opRead, index,
			fmt.Sprintf("DALI's index has version %.20q, expected %q", head[0], daliVersion))
		e.Fix = "make the index again with a current wds2idx"
		return nil, e
	case len(head) != 2:
		return nil, badDALI(index, 1,
			fmt.Sprintf("the line is %.60q, expected %q and the number of samples", first, daliVersion))
	}
	count, err := strconv.ParseUint(head[1], 10, 63)
	if err != nil {
		return nil, badDALI(index, 1, fmt.Sprintf("the number of samples is %.40q", head[1]))
	}
	var g group
	lines := uint64(0)
	for rest = bytes.TrimRightFunc(rest, unicode.IsSpace); len(rest) > 0; {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte{'\n'})
		lines++
		if err := g.daliLine(string(line), index, lines+1); err != nil {
			return nil, err
		}
	}
	if lines != count {
		return nil, badDALI(index, 1, fmt.Sprintf("the index has %d samples, and the line says %d", lines, count))
	}
	t, err := g.table(tar, size)
	return t, errs.Wrap(opRead, index, err)
}

// daliLine adds the members on one line of DALI's index.
func (g *group) daliLine(text, index string, line uint64) error {
	fields := strings.Fields(text)
	if len(fields) == 0 || len(fields)%4 != 0 {
		return badDALI(index, line, fmt.Sprintf(
			"there are %d fields, expected extension, offset, size and name for each part", len(fields)))
	}
	for ; len(fields) > 0; fields = fields[4:] {
		ext, name := fields[0], fields[3]
		offset, err1 := strconv.ParseUint(fields[1], 10, 63)
		size, err2 := strconv.ParseUint(fields[2], 10, 63)
		_, suffix, ok := split(name)
		switch {
		case strings.Contains(name, `\`):
			e := errs.New(errs.Unsupported, opRead, index, fmt.Sprintf("line %d: the name %.200q has a backslash", line, name))
			e.Fix = "use the index of NebulaIO, which keeps all names"
			return e
		case err1 != nil || offset < block || offset%block != 0:
			return badDALI(index, line, fmt.Sprintf("the offset is %.40q, expected a multiple of %d above 0", fields[1], block))
		case err2 != nil || size > sample.MaxPart:
			return badDALI(index, line, fmt.Sprintf("the size is %.40q, expected at most %d", fields[2], int64(sample.MaxPart)))
		case ok && ext != suffix:
			return badDALI(index, line, fmt.Sprintf("the extension is %.200q, and the name is %.200q", ext, name))
		}
		if why := g.add(name, sample.Extent{Offset: int64(offset), Size: int64(size)}); why != "" {
			return badDALI(index, line, why)
		}
	}
	return nil
}

// badDALI returns the error for a damaged index of DALI.
func badDALI(index string, line uint64, why string) error {
	e := errs.New(errs.Corrupt, opRead, index, fmt.Sprintf("DALI's index is damaged on line %d: %s", line, why))
	e.Fix = "make the index again with wds2idx"
	return e
}

// WriteDALI writes DALI's index of version v1.2 for an archive. Extensions and names are written with the extension in
// lower case. DALI cannot read an index without samples, nor names with white space, nor an empty extension: the error
// is of kind Invalid, and nothing is written.
func WriteDALI(w io.Writer, t *sample.Table) error {
	if t.Len() == 0 {
		return errs.New(errs.Invalid, opWrite, t.File(),
			"the archive has no samples, and DALI cannot read an index without samples")
	}
	for i := range t.Len() {
		for c, ext := range t.Columns() {
			_, ok := t.Part(i, c)
			if name := t.Key(i) + "." + ext; ok && (ext == "" || len(strings.Fields(name)) != 1 ||
				strings.TrimSpace(name) != name || strings.Contains(name, `\`)) {
				e := errs.New(errs.Invalid, opWrite, t.File(), fmt.Sprintf(
					"DALI cannot read the name %.200q: names must have an extension, and no white space or backslash", name))
				e.Fix = "pack the samples again with other names, or use the index of NebulaIO"
				return e
			}
		}
	}
	out := bufio.NewWriterSize(w, 1<<16)
	fmt.Fprintf(out, "%s %d\n", daliVersion, t.Len())
	for i := range t.Len() {
		space := ""
		for _, c := range byOffset(t, i) {
			e, _ := t.Part(i, c)
			fmt.Fprintf(out, "%s%s %d %d %s.%s", space, t.Columns()[c], e.Offset, e.Size, t.Key(i), t.Columns()[c])
			space = " "
		}
		fmt.Fprintln(out)
	}
	return errs.Wrap(opWrite, t.File(), out.Flush())
}

// byOffset returns the columns of a sample that it has, in the order of the archive.
func byOffset(t *sample.Table, i int) []int {
	columns := make([]int, 0, len(t.Columns()))
	for c := range t.Columns() {
		if _, ok := t.Part(i, c); ok {
			columns = append(columns, c)
		}
	}
	slices.SortFunc(columns, func(a, b int) int {
		x, _ := t.Part(i, a)
		y, _ := t.Part(i, b)
		return cmp.Compare(x.Offset, y.Offset)
	})
	return columns
}

// CheckDALI compares a table from an index of DALI with the archive: the headers before the first, the middle and the
// last sample. The path or URL `index` is for messages. An index of another archive is an error of kind Corrupt.
func CheckDALI(r io.ReaderAt, index string, t *sample.Table) error {
	for _, i := range []int{0, t.Len() / 2, t.Len() - 1} {
		if i < 0 || i >= t.Len() {
			continue
		}
		for _, c := range byOffset(t, i)[:1] {
			e, _ := t.Part(i, c)
			var b [block]byte
			if err := sample.ReadFull(r, b[:], e.Offset-block, opRead, t.File()); err != nil {
				return err
			}
			h, why := parseHeader(b[:])
			name := t.Key(i) + "." + t.Columns()[c]
			switch {
			case why != "":
			case h.size != e.Size:
				why = fmt.Sprintf("its size is %d, expected %d", h.size, e.Size)
			case !needsPAX(name) && !needsPAX(h.name) && len(h.name) < 100 && !strings.EqualFold(h.name, name):
				why = fmt.Sprintf("its name is %.200q, expected %.200q", h.name, name)
			}
			if why != "" {
				return errs.New(errs.Corrupt, opRead, index, fmt.Sprintf(
					"the index is of another archive than %s: the header of sample %d at offset %d is wrong: %s", t.File(), i,
					e.Offset-block, why)).WithFix("make the index again with wds2idx, or remove the index")
			}
		}
	}
	return nil
}
