// SPDX-License-Identifier: Apache-2.0

// Package metascan reads the metadata files of a damaged store one by one, as far as they are readable. Pebble itself
// stops at the first damage.
package metascan

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/metafile"
)

// Entry is one change of a key, as it is stored in a metadata file.
type Entry struct {
	Key   []byte
	Seq   uint64
	Kind  pebble.InternalKeyKind
	Value []byte
	Lost  error       // why the value cannot be read; nil if it was read
	Blob  *BlobHandle // reference to a value in a blob file that the manifest does not name; Lost is then ErrUnnamed
}

// Gap is a range of keys that a file may contain and that cannot be read. From and To are not part of the range; nil
// means an open end.
type Gap struct {
	From, To []byte
	err      error
	empty    bool // the table is damaged, but all its keys were read
}

// Reader reads metadata files one by one, as far as they are readable, and changes nothing. Pebble itself stops at
// the first damage.
type Reader struct {
	fs   vfs.FS
	Dir  string
	opts *pebble.Options // for tables

	manifest  *metafile.Manifest
	Damage    error // damage of the manifest, which makes the list of tables partly guessed; nil: no damage
	unnamed   error // why the current manifest is unknown; the newest one is used
	tables    []*metafile.Table
	logs      []uint64 // logs that are not in tables yet
	blobs     []string // names of blob files that tables refer to
	leftovers int      // files that the manifest does not name
	opened    map[uint64]*BlobFile
	Rescue    bool // values are also read from blob files with a damaged end
}

// probes limits how often a damaged table is searched for keys between two damaged places.
const probes = 100

// Open finds the files that the metadata consists of. If strict is set, a manifest with an unreadable end counts as
// damaged. If strict is not set, an unreadable end of the manifest is taken for an edit that a crash interrupted.
func Open(f vfs.FS, dir string, strict bool) (*Reader, error) {
	r := &Reader{fs: f, Dir: dir, manifest: metafile.NewManifest()}
	names, err := f.List(dir)
	if err != nil {
		return nil, layout.WrapIO("read metadata", dir, err)
	}
	r.opts = metadb.ToolOptions(f, metadb.MaxMemTable, true)
	r.opts.EnsureDefaults()
	r.readManifest(names, strict)
	known := map[uint64]bool{}
	for _, t := range r.manifest.Tables {
		r.tables = append(r.tables, t)
		known[t.Number] = true
	}
	used := map[uint64]bool{}
	for _, b := range r.manifest.Blobs {
		used[b.Number] = true
		r.blobs = append(r.blobs, fmt.Sprintf("%06d.blob", b.Number))
	}
	for _, name := range names {
		n, kind, ok := metafile.ParseName(name)
		switch {
		case !ok:
		case kind == "log" && (n >= r.manifest.MinLog || r.Damage != nil):
			r.logs = append(r.logs, n)
		case kind == "sst" && !known[n]:
			r.leftovers++
			if r.Damage != nil {
				r.tables = append(r.tables, &metafile.Table{Number: n})
			}
		case kind == "blob" && !used[n]:
			r.leftovers++
		}
	}
	slices.SortFunc(r.tables, func(a, b *metafile.Table) int { return int(a.Number) - int(b.Number) })
	slices.Sort(r.logs)
	slices.Sort(r.blobs)
	return r, nil
}

// readManifest reads the manifest that the marker names, or the newest one.
func (r *Reader) readManifest(names []string, strict bool) {
	name := ""
	if current, err := metafile.CurrentManifest(r.fs, r.Dir); err == nil && current != "" {
		name = current
	} else {
		r.unnamed = errors.New("no marker names the manifest")
		newest := uint64(0)
		for _, n := range names {
			if number, kind, ok := metafile.ParseName(n); ok && kind == "MANIFEST" && number >= newest {
				name, newest = n, number
			}
		}
	}
	if name == "" {
		r.Damage = errors.New("there is no manifest")
		return
	}
	file, err := layout.OpenRegular(r.fs, r.fs.PathJoin(r.Dir, name))
	if err != nil {
		r.Damage = fmt.Errorf("%s: %w", name, err)
		return
	}
	defer func() { _ = file.Close() }()
	m, scan, err := metafile.ReadManifest(file)
	r.manifest = m
	switch {
	case err != nil:
		r.Damage = fmt.Errorf("%s: %w", name, err)
	case len(scan.Damaged) > 0:
		r.Damage = fmt.Errorf("%s is damaged from byte %d on", name, scan.Damaged[0].From)
	case m.Comparer == "":
		r.Damage = fmt.Errorf("%s holds no state", name)
	default:
		if info, err := r.fs.Stat(r.fs.PathJoin(r.Dir, name)); err == nil && strict && scan.End < info.Size() &&
			r.Damage == nil {
			r.Damage = fmt.Errorf("%s is readable up to byte %d of %d", name, scan.End, info.Size())
		}
	}
}

// log reads the batches of a log, including those behind damage.
func (r *Reader) log(ctx context.Context, number uint64, each func(Entry) error) (metafile.Result, error) {
	file, err := layout.OpenRegular(r.fs, r.fs.PathJoin(r.Dir, metafile.LogName(number)))
	if err != nil {
		return metafile.Result{}, err
	}
	defer func() { _ = file.Close() }()
	return metafile.Scan(file, true, number, func(record []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return eachChange(record, each)
	})
}

// eachChange decodes a batch of a log. An invalid batch is skipped: its checksum was right, so it is of a kind that
// this store never writes.
func eachChange(repr []byte, each func(Entry) error) error {
	seq, _, ok := metafile.BatchHeader(repr)
	if !ok {
		return nil
	}
	var b pebble.Batch
	if err := b.SetRepr(repr); err != nil {
		return nil
	}
	for br := b.Reader(); ; {
		kind, key, value, ok, err := br.Next()
		if !ok || err != nil {
			return nil
		}
		if kind == pebble.InternalKeyKindLogData {
			continue
		}
		if err := each(Entry{Key: key, Seq: seq, Kind: kind, Value: value}); err != nil {
			return err
		}
		seq++
	}
}

// table reads all changes in a table. The gaps are the unreadable ranges; err comes from each or from the context.
func (r *Reader) table(ctx context.Context, t *metafile.Table, each func(Entry) error) (gaps []Gap, err error) {
	all := func(err error) []Gap { return []Gap{{From: t.Smallest, To: t.Largest, err: err}} }
	file, err := layout.OpenRegular(r.fs, r.fs.PathJoin(r.Dir, fmt.Sprintf("%06d.sst", t.Number)))
	if err != nil {
		return all(err), nil
	}
	defer func() { _ = file.Close() }() // it was read only
	reader, end, err := r.openTable(ctx, t)
	if reader != nil {
		defer func() { _ = reader.Close() }()
	}
	if err != nil {
		return r.rawTable(ctx, t, file, end, err, each)
	}
	s := &tableScan{ctx: ctx, each: each, unsure: r.Damage != nil}
	s.open = func() (tableIter, error) {
		handles := sstable.DebugHandlesBlobContext
		handles.BlobHandleFn = noteHandles(handles.BlobHandleFn, func(h BlobHandle) {
			h.Table = t.Number
			s.handle = &h
		})
		return reader.NewIter(sstable.NoTransforms, nil, nil, handles)
	}
	if r.Rescue {
		s.named = func(h *BlobHandle) ([]byte, error) { return r.named(t, h) }
	}
	s.between = func() bool { return damagedBlocks(reader, file) > 1 }
	if len(t.Blobs) > 0 {
		db, err := r.shadow(t)
		if err != nil {
			s.blobs = func([]byte) ([]byte, error) { return nil, err }
		} else {
			broken := false // a database that panicked cannot be closed
			defer func() {
				if !broken {
					_ = db.Close()
				}
			}()
			s.blobs = func(key []byte) ([]byte, error) { return shadowGet(db, key, &broken) }
		}
	}
	err = s.run()
	return s.gaps, err
}

// openTable opens a table. An error means that its index, or what leads to it, cannot be read; the reader may then be
// nil. end is where the blocks of keys end, or -1 if that cannot be read either.
func (r *Reader) openTable(ctx context.Context, t *metafile.Table) (reader *sstable.Reader, end int, err error) {
	end = -1
	file, err := layout.OpenRegular(r.fs, r.fs.PathJoin(r.Dir, fmt.Sprintf("%06d.sst", t.Number)))
	if err != nil {
		return nil, end, err
	}
	readable, err := sstable.NewSimpleReadable(file)
	if err != nil {
		_ = file.Close() // the error of the read is told
		return nil, end, err
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	if reader, err = sstable.NewReader(ctx, readable, r.opts.MakeReaderOptions()); err != nil {
		_ = readable.Close() // the error of the read is told
		return nil, end, err
	}
	if p, err := reader.ReadPropertiesBlock(ctx, nil); err == nil && p.DataSize <= maxRawTable {
		end = int(p.DataSize)
	}
	_, err = reader.Layout()
	return reader, end, err
}

// rawTable reads a table without its index.
func (r *Reader) rawTable(ctx context.Context, t *metafile.Table, file vfs.File, end int, why error,
	each func(Entry) error) ([]Gap, error) {
	all := func(err error) []Gap { return []Gap{{From: t.Smallest, To: t.Largest, err: err}} }
	info, err := file.Stat()
	if err != nil {
		return all(err), nil
	}
	text, err := readRaw(file, info.Size())
	if err != nil {
		return all(fmt.Errorf("%w; %w", why, err)), nil
	}
	raw := &rawTable{ctx: ctx, text: text, number: t.Number, end: end, each: each}
	if len(t.Blobs) > 0 {
		// The manifest names the files, so that no proof is needed.
		raw.each = func(e Entry) error {
			if e.Blob != nil {
				e.Value, e.Lost = r.named(t, e.Blob)
				e.Blob = nil
			}
			return each(e)
		}
	}
	if err := raw.run(t, why); err != nil {
		return nil, err
	}
	if len(raw.gaps) == 0 {
		raw.gaps = []Gap{{err: why, empty: true}}
	}
	return raw.gaps, nil
}

// named reads a value from the blob file that the manifest names for a table.
func (r *Reader) named(t *metafile.Table, h *BlobHandle) ([]byte, error) {
	if h.Ref >= uint64(len(t.Blobs)) || r.manifest.Blobs[t.Blobs[h.Ref]] == nil {
		return nil, ErrUnnamed
	}
	id, number := t.Blobs[h.Ref], r.manifest.Blobs[t.Blobs[h.Ref]].Number
	if r.opened == nil {
		r.opened = map[uint64]*BlobFile{}
	}
	f := r.opened[number]
	if f == nil {
		path := r.fs.PathJoin(r.Dir, fmt.Sprintf("%06d.blob", number))
		var err error
		if f, err = OpenBlob(r.fs, path, number); err != nil && r.Rescue && id == number {
			f, err = scanBlob(r.fs, path, number)
		}
		if err != nil {
			return nil, err
		}
		r.opened[number] = f
	}
	v, err := f.Value(h)
	return bytes.Clone(v), err
}

// damagedBlocks counts the blocks of keys in a table with a wrong checksum. With one or none there is nothing to
// search for, and searching is expensive: Pebble tries all bits of a damaged block in turn.
func damagedBlocks(reader *sstable.Reader, file vfs.File) (n int) {
	defer func() {
		if recover() != nil {
			n = 0
		}
	}()
	layout, err := reader.Layout()
	if err != nil {
		return 0
	}
	for _, h := range layout.Data {
		b := make([]byte, min(h.Length, 64<<20)+5) // and what kind of block it is, and its checksum
		if _, err := file.ReadAt(b, int64(h.Offset)); err != nil ||
			metafile.Checksum(b[:len(b)-4]) != binary.LittleEndian.Uint32(b[len(b)-4:]) {
			n++
		}
	}
	return n
}
