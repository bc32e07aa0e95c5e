// SPDX-License-Identifier: Apache-2.0

package wds

import (
	"fmt"

	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// A table has a cell for each sample and column, also where the sample has no such part. Tables with more than
// freeCells cells must have a part in one of maxSparse cells, so that a hostile archive cannot fill the memory.
const (
	maxSparse = 32
	freeCells = 1 << 16
)

// member is one part of a sample.
type member struct {
	offset int64
	size   uint32
	column int32
}

// group forms samples from members, in the order of the archive, by the rules of webdataset.
type group struct {
	columns []string
	column  map[string]int32
	seen    []int // by column: the serial number of the last sample with such a part
	members []member
	starts  []int // by sample: its first member
	keys    []byte
	ends    []int // by sample: the end of its key in keys
	skipped Skipped

	key     string // of the sample that is still open
	bad     bool   // whether webdataset drops the open sample
	was     int    // number of columns before the open sample
	started bool
	serial  int // number of the open sample, counting dropped samples
}

// add takes the next regular member. The result is a reason why the archive cannot be read, or "".
func (g *group) add(name string, e sample.Extent) string {
	if isMetadata(name) {
		g.skipped.Metadata++
		return ""
	}
	key, ext, ok := split(name)
	if !ok {
		g.skipped.NoExtension++
		return ""
	}
	if !g.started || key != g.key {
		g.flush()
		g.key, g.started, g.was = key, true, len(g.columns)
		g.serial++
		g.starts = append(g.starts, len(g.members))
	}
	ext = lower(ext)
	at, known := g.column[ext]
	switch {
	case known && g.seen[at] == g.serial || ext == "__key__" || ext == "__url__":
		return fmt.Sprintf("the sample %.200q has two parts %.200q", key, ext)
	case !known:
		if g.column == nil {
			g.column = map[string]int32{}
		}
		at = int32(len(g.columns))
		g.columns, g.seen = append(g.columns, ext), append(g.seen, 0)
		g.column[ext] = at
	}
	g.seen[at] = g.serial
	g.members = append(g.members, member{e.Offset, uint32(e.Size), at})
	g.bad = g.bad || ext == "__bad__" && e.Size > 0
	return ""
}

// abandon drops the open sample, because the archive is damaged in it or after it.
func (g *group) abandon() {
	g.bad = g.started
	bad := g.skipped.Bad
	g.flush()
	g.skipped.Bad = bad
}

// endBefore ends the open sample if a member with this name belongs to another one. The open sample is then whole, even
// if the member itself is damaged.
func (g *group) endBefore(name string) {
	if key, _, ok := split(name); ok && !isMetadata(name) && g.started && key != g.key {
		g.flush()
	}
}

// flush ends the open sample, and drops it if it is bad.
func (g *group) flush() {
	if !g.started {
		return
	}
	if g.bad {
		first := g.starts[len(g.starts)-1]
		g.skipped.Bad += uint64(len(g.members) - first)
		g.starts, g.members = g.starts[:len(g.starts)-1], g.members[:first]
		for _, ext := range g.columns[g.was:] {
			delete(g.column, ext)
		}
		g.columns, g.seen = g.columns[:g.was], g.seen[:g.was]
	} else {
		g.keys = append(g.keys, g.key...)
		g.ends = append(g.ends, len(g.keys))
	}
	g.started, g.bad = false, false
}

// tooSparse reports whether a table has too many empty cells.
func tooSparse(samples, columns, parts int) bool {
	return columns > 0 && samples > (freeCells+maxSparse*parts)/columns
}

// table ends the last sample and returns the samples of the file.
func (g *group) table(file string, size int64) (*sample.Table, error) {
	g.flush()
	if tooSparse(len(g.starts), len(g.columns), len(g.members)) {
		e := errs.New(errs.Unsupported, opOpen, file,
			fmt.Sprintf("%d samples have %d different extensions, and only %d parts", len(g.starts),
				len(g.columns), len(g.members)))
		e.Fix = "give parts with the same meaning the same extension, and put the rest of the name before the first dot"
		return nil, e
	}
	t := sample.NewTable(file, size, g.columns, len(g.starts))
	parts, key := make([]sample.Extent, len(g.columns)), 0
	for i, from := range g.starts {
		for j := range parts {
			parts[j] = sample.Absent()
		}
		to := len(g.members)
		if i+1 < len(g.starts) {
			to = g.starts[i+1]
		}
		for _, m := range g.members[from:to] {
			parts[m.column] = sample.Extent{Offset: m.offset, Size: int64(m.size)}
		}
		if err := t.Add(string(g.keys[key:g.ends[i]]), parts...); err != nil {
			return nil, err
		}
		key = g.ends[i]
	}
	return t, nil
}
