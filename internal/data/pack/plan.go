// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/data/dataset"
	"github.com/nebulaio/nebulaio/internal/data/order"
	"github.com/nebulaio/nebulaio/internal/data/sample"
	"github.com/nebulaio/nebulaio/internal/data/wds"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// source is a file of the source with its place in a sample.
type source struct {
	Entry
	key int    // length of the key: the sample is Name[:key]
	ext string // the extension in lower case
}

// unit is what is packed as one: the parts of a sample, or documents of tokens.
type unit struct {
	first, count int   // its files
	from, size   int64 // the range of its only file, for pieces of .jsonl files; otherwise 0 and the size of all files
}

// plan assigns all units of a source to shards.
type plan struct {
	files   []source
	units   []unit
	order   *order.Permutation // nil for the sorted order
	shards  []int              // position of the first unit of each shard, and the number of units at the end
	columns []string           // all extensions, sorted
	digest  string             // of the listing
	listed  int                // number of files in the listing
	bytes   int64              // of all units
	bad     []Bad
}

// at returns the unit at a position of the pack.
func (p *plan) at(position int) *unit {
	if p.order != nil {
		position = int(p.order.At(int64(position)))
	}
	return &p.units[position]
}

// parts returns the files of a unit.
func (p *plan) parts(u *unit) []source { return p.files[u.first : u.first+u.count] }

// key returns the key of a unit.
func (p *plan) key(u *unit) string { f := &p.files[u.first]; return f.Name[:f.key] }

// makePlan lists the source and assigns its samples to shards. The plan depends only on names, sizes, times and
// options.
func makePlan(ctx context.Context, src Place, o *Options) (*plan, error) {
	listed, odd, err := src.List(ctx)
	if err != nil {
		return nil, err
	}
	p := &plan{}
	listed = slices.DeleteFunc(listed, func(e Entry) bool { return ours(e.Name) })
	slices.SortFunc(listed, func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) })
	p.listed, p.digest = len(listed), digestOf(listed)
	p.files = make([]source, 0, len(listed))
	p.bad = append(p.bad, odd...)
	for _, e := range listed {
		f, why := newSource(e, o.Format)
		if why != "" {
			p.bad = append(p.bad, Bad{e.Name, why})
			continue
		}
		p.files = append(p.files, f)
	}
	slices.SortFunc(p.files, func(a, b source) int {
		if c := cmp.Compare(a.Name[:a.key], b.Name[:b.key]); c != 0 {
			return c
		}
		return cmp.Or(cmp.Compare(a.ext, b.ext), cmp.Compare(a.Name, b.Name))
	})
	if err := p.group(o.Format); err != nil {
		return nil, errs.Wrap("pack", src.Shown(""), err)
	}
	if err := refuseBad(src, p.bad, o.SkipBad); err != nil {
		return nil, err
	}
	if len(p.units) == 0 {
		return nil, errs.New(errs.Invalid, "pack", src.Shown(""), fmt.Sprintf("%d files have no samples", len(listed))).
			WithFix("name a folder or prefix with files such as key.jpg")
	}
	if o.Shuffle {
		order := order.NewPermutation(int64(len(p.units)), o.Seed)
		p.order = &order
	}
	p.divide(o)
	return p, nil
}

// newSource finds the key and the extension of a file. The result why is not empty if the file cannot be packed.
func newSource(e Entry, format string) (f source, why string) {
	if e.Size > sample.MaxPart && !(format == Bin && strings.HasSuffix(strings.ToLower(e.Name), ".jsonl")) {
		return f, fmt.Sprintf("it has %d bytes, expected at most %d", e.Size, int64(sample.MaxPart))
	}
	if format == Bin { // documents have no keys, and their names may have dots
		f = source{e, len(e.Name), strings.ToLower(strings.TrimPrefix(path.Ext(e.Name), "."))}
		return f, unknownDocument(f.ext)
	}
	key, ext, ok := wds.SplitName(e.Name)
	if !ok {
		return f, "its name has no key and extension, such as key.jpg"
	}
	return source{e, len(key), ext}, wds.WrongName(key, ext)
}

// group forms units of files, which are sorted by key.
func (p *plan) group(format string) error {
	seen := map[string]bool{}
	for i := 0; i < len(p.files); {
		f := &p.files[i]
		if format == Bin {
			p.documents(i)
			i++
			continue
		}
		u := unit{first: i, count: 1, size: f.Size}
		for i++; i < len(p.files) && p.files[i].Name[:p.files[i].key] == f.Name[:f.key]; i++ {
			if p.files[i].ext == p.files[i-1].ext {
				p.bad = append(p.bad, Bad{p.files[i].Name, "the sample has two parts ." + p.files[i].ext})
				u.count = -len(p.files) // no unit
			}
			u.count++
			u.size += p.files[i].Size
		}
		if u.count <= 0 {
			continue
		}
		for _, part := range p.parts(&u) {
			if !seen[part.ext] {
				seen[part.ext] = true
				p.columns = append(p.columns, part.ext)
			}
		}
		p.units = append(p.units, u)
		p.bytes += u.size
	}
	slices.Sort(p.columns)
	if format != MDS {
		return nil
	}
	if n := len(p.columns); n > dataset.MaxColumns {
		return errs.New(errs.Invalid, "", "", fmt.Sprintf(
			"the files have %d extensions, such as .%.100s, expected at most %d", n, p.columns[0], dataset.MaxColumns)).
			WithFix("give parts with the same meaning the same extension: it begins at the first dot of the name")
	}
	p.requireColumns()
	return nil
}

// requireColumns drops the samples that lack a column, because MDS has no samples with missing parts.
func (p *plan) requireColumns() {
	p.units = slices.DeleteFunc(p.units, func(u unit) bool {
		if u.count == len(p.columns) {
			return false
		}
		has := p.parts(&u)
		missing := slices.IndexFunc(p.columns, func(c string) bool {
			return !slices.ContainsFunc(has, func(f source) bool { return f.ext == c })
		})
		p.bad = append(p.bad, Bad{has[0].Name, fmt.Sprintf(
			"its sample has no part .%s, and samples of MDS have the same parts", p.columns[missing])})
		p.bytes -= u.size
		return true
	})
}

// refuseBad returns an error about bad files, unless they are to be skipped.
func refuseBad(src Place, bad []Bad, skip bool) error {
	if skip || len(bad) == 0 {
		return nil
	}
	more := ""
	if len(bad) > 1 {
		more = fmt.Sprintf(", and %d more files cannot be packed", len(bad)-1)
	}
	return errs.New(errs.Invalid, "pack", src.Shown(bad[0].Name), bad[0].Reason+more).
		WithFix("rename or remove the file, or leave out bad files with --skip-bad")
}

// digestOf returns the sum of a sorted listing.
func digestOf(listed []Entry) string {
	h := sha256.New()
	var b []byte
	for _, e := range listed {
		b = append(binary.AppendUvarint(b[:0], uint64(len(e.Name))), e.Name...)
		b = binary.LittleEndian.AppendUint64(b, uint64(e.Size))
		b = binary.LittleEndian.AppendUint64(b, e.Stamp)
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// divide assigns consecutive units to shards of at most o.ShardSize bytes. A larger unit has a shard of its own.
func (p *plan) divide(o *Options) {
	used := int64(0)
	for i := range p.units {
		n := p.packed(p.at(i), o)
		if i == 0 || used+n > o.ShardSize {
			p.shards = append(p.shards, i)
			used = p.overhead(o)
		}
		used += n
	}
	p.shards = append(p.shards, len(p.units))
}

// overhead returns the bytes of a shard without samples.
func (p *plan) overhead(o *Options) int64 {
	if o.Format == MDS {
		return mdsOverhead(p.columns, o)
	}
	return 0
}

// packed returns the bytes that a unit has in a shard. For aligned archives, it is an estimate.
func (p *plan) packed(u *unit, o *Options) int64 {
	n := int64(0)
	switch o.Format {
	case Tar:
		const block, page = 512, 4096
		for _, f := range p.parts(u) {
			n += block + (f.Size+block-1)/block*block
			if o.Aligned {
				n = (n + 3*block + page - 1) / page * page
			} else if len(f.Name) > 100 {
				n += 2 * block
			}
		}
	case MDS:
		n = 4 + 4 + int64(len(p.key(u))) + u.size
		for _, c := range p.columns {
			if size, _ := encodingOf(c, o); size == 0 {
				n += 4
			}
		}
	case TFRecord:
		n = exampleSize(p.key(u), p.parts(u)) + 16
	default:
		n = u.size
	}
	return n
}
