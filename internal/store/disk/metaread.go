// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// metaEntry is one change of a key, as a file of the metadata holds it.
type metaEntry struct {
	key   []byte
	seq   uint64
	kind  pebble.InternalKeyKind
	value []byte
	lost  error // why the value cannot be read; the key and its number can
}

// metaGap is a range of keys that a file may hold and that cannot be read. Both ends are outside; nil is open.
type metaGap struct {
	from, to []byte
	err      error
}

// metaReader reads the files of the metadata one by one as far as they can be read, where Pebble gives up at the first
// damage. It changes nothing.
type metaReader struct {
	fs   vfs.FS
	dir  string
	opts *pebble.Options // for tables

	manifest  *manifest
	damage    error // why the manifest is not whole; then which tables count is partly guessed
	unnamed   error // why it is not known which manifest is the right one; the newest is taken
	tables    []*metaTable
	logs      []uint64 // that are not in tables yet
	blobs     []string // names of blob files that tables refer to
	leftovers int      // files that the manifest does not name
}

// probes bounds how often a damaged table is looked into for keys between two damaged places.
const probes = 100

// openMetaReader finds out which files the metadata consists of. strict says that a manifest whose end cannot be read is
// damaged. Otherwise that end is what a crash left of an edit that never counted.
func openMetaReader(f vfs.FS, dir string, strict bool) (*metaReader, error) {
	r := &metaReader{fs: f, dir: dir, manifest: newManifest()}
	names, err := f.List(dir)
	if err != nil {
		return nil, wrapIO("read metadata", dir, err)
	}
	r.opts = toolOptions(f, maxMemTable, true)
	r.opts.EnsureDefaults()
	r.readManifest(names, strict)
	known := map[uint64]bool{}
	for _, t := range r.manifest.tables {
		r.tables = append(r.tables, t)
		known[t.number] = true
	}
	used := map[uint64]bool{}
	for _, b := range r.manifest.blobs {
		used[b.number] = true
		r.blobs = append(r.blobs, fmt.Sprintf("%06d.blob", b.number))
	}
	for _, name := range names {
		n, kind, ok := metaFileNumber(name)
		switch {
		case !ok:
		case kind == "log" && (n >= r.manifest.minLog || r.damage != nil):
			r.logs = append(r.logs, n)
		case kind == "sst" && !known[n]:
			r.leftovers++
			if r.damage != nil {
				r.tables = append(r.tables, &metaTable{number: n})
			}
		case kind == "blob" && !used[n]:
			r.leftovers++
		}
	}
	slices.SortFunc(r.tables, func(a, b *metaTable) int { return int(a.number) - int(b.number) })
	slices.Sort(r.logs)
	slices.Sort(r.blobs)
	return r, nil
}

// readManifest reads the manifest that the marker names, or the newest that there is.
func (r *metaReader) readManifest(names []string, strict bool) {
	name := ""
	if desc, err := pebble.Peek(r.dir, r.fs); err == nil && desc.Exists {
		name = r.fs.PathBase(desc.ManifestFilename)
	} else {
		r.unnamed = errors.New("no marker names the manifest")
		newest := uint64(0)
		for _, n := range names {
			if number, kind, ok := metaFileNumber(n); ok && kind == "MANIFEST" && number >= newest {
				name, newest = n, number
			}
		}
	}
	if name == "" {
		r.damage = errors.New("there is no manifest")
		return
	}
	file, err := openRegular(r.fs, r.fs.PathJoin(r.dir, name))
	if err != nil {
		r.damage = fmt.Errorf("%s: %w", name, err)
		return
	}
	defer func() { _ = file.Close() }()
	m, scan, err := readManifest(file)
	r.manifest = m
	switch {
	case err != nil:
		r.damage = fmt.Errorf("%s: %w", name, err)
	case len(scan.Damaged) > 0:
		r.damage = fmt.Errorf("%s is damaged from byte %d on", name, scan.Damaged[0].From)
	case m.comparer == "":
		r.damage = fmt.Errorf("%s holds no state", name)
	default:
		if info, err := r.fs.Stat(r.fs.PathJoin(r.dir, name)); err == nil && strict && scan.End < info.Size() && r.damage == nil {
			r.damage = fmt.Errorf("%s is readable up to byte %d of %d", name, scan.End, info.Size())
		}
	}
}

// quiet is a Pebble logger that drops what it is told, and turns what Pebble holds for fatal into a panic.
type quiet struct{}

func (quiet) Infof(string, ...any)              {}
func (quiet) Errorf(string, ...any)             {}
func (quiet) Fatalf(format string, args ...any) { panic(fatal{fatalError(format, args)}) }

// log reads the batches of a log, also those behind damage.
func (r *metaReader) log(ctx context.Context, number uint64, each func(metaEntry) error) (chunkScan, error) {
	file, err := openRegular(r.fs, r.fs.PathJoin(r.dir, metaLogName(number)))
	if err != nil {
		return chunkScan{}, err
	}
	defer func() { _ = file.Close() }()
	return scanChunks(file, true, number, func(record []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return eachChange(record, each)
	})
}

// eachChange takes a batch of a log apart. A batch that is none is left out: its checksum was right, so it is of a kind that
// this store never writes.
func eachChange(repr []byte, each func(metaEntry) error) error {
	seq, _, ok := batchHeader(repr)
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
		if err := each(metaEntry{key: key, seq: seq, kind: kind, value: value}); err != nil {
			return err
		}
		seq++
	}
}

// table reads all changes that a table holds. What cannot be read is in the gaps; err is that of each or of the context.
func (r *metaReader) table(ctx context.Context, t *metaTable, each func(metaEntry) error) (gaps []metaGap, err error) {
	all := func(err error) []metaGap { return []metaGap{{from: t.smallest, to: t.largest, err: err}} }
	file, err := openRegular(r.fs, r.fs.PathJoin(r.dir, fmt.Sprintf("%06d.sst", t.number)))
	if err != nil {
		return all(err), nil
	}
	readable, err := sstable.NewSimpleReadable(file)
	if err != nil {
		_ = file.Close()
		return all(err), nil
	}
	reader, err := sstable.NewReader(ctx, readable, r.opts.MakeReaderOptions())
	if err != nil {
		_ = readable.Close()
		return all(err), nil
	}
	defer func() { _ = reader.Close() }()
	s := &tableScan{ctx: ctx, each: each, open: func() (tableIter, error) {
		return reader.NewIter(sstable.NoTransforms, nil, nil, sstable.DebugHandlesBlobContext)
	}}
	s.between = func() bool { return damagedBlocks(reader, file) > 1 }
	if len(t.blobs) > 0 {
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

// damagedBlocks counts the blocks of keys in a table that do not have their checksum. Between one and none there is nothing
// to look for, and looking is dear: Pebble tries all bits of a damaged block in turn.
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
		if _, err := file.ReadAt(b, int64(h.Offset)); err != nil || chunkSum(b[:len(b)-4]) != binary.LittleEndian.Uint32(b[len(b)-4:]) {
			n++
		}
	}
	return n
}

// shadowGet reads a value through Pebble, which panics where a blob file is not what the table says.
func shadowGet(db *pebble.DB, key []byte, broken *bool) (v []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			*broken = true
			v, err = nil, fmt.Errorf("%v", p)
		}
	}()
	v, closer, err := db.Get(key)
	if err != nil {
		return nil, err
	}
	v = bytes.Clone(v)
	if err := closer.Close(); err != nil {
		return nil, err
	}
	return v, nil
}

// shadow opens a database that consists of one table and the blob files that it refers to. Only Pebble itself can follow a
// reference from a table to a blob file.
func (r *metaReader) shadow(t *metaTable) (*pebble.DB, error) {
	mem := vfs.NewMem()
	o := toolOptions(mem, 1<<20, false)
	o.CacheSize = 8 << 20
	db, err := openDB("shadow", o, nil)
	if err != nil {
		return nil, err
	}
	if err := db.Close(); err != nil {
		return nil, err
	}
	desc, err := pebble.Peek("shadow", mem)
	if err != nil {
		return nil, err
	}
	file, err := mem.Create(desc.ManifestFilename, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	w := record.NewWriter(file)
	if _, err = w.WriteRecord(r.manifest.shadow(t)); err == nil {
		err = w.Close()
	}
	if e := file.Close(); err == nil {
		err = e
	}
	if err != nil {
		return nil, err
	}
	over := &shadowFS{FS: mem, under: r.fs, dir: r.dir, names: map[string]bool{fmt.Sprintf("%06d.sst", t.number): true}}
	for _, id := range t.blobs {
		if b := r.manifest.blobs[id]; b != nil {
			over.names[fmt.Sprintf("%06d.blob", b.number)] = true
		}
	}
	o = toolOptions(over, 1<<20, true)
	o.CacheSize = 8 << 20
	o.DisableConsistencyCheck = true
	return openDB("shadow", o, nil)
}

// shadowFS shows some files of one file system among those of another.
type shadowFS struct {
	vfs.FS
	under vfs.FS
	dir   string
	names map[string]bool
}

func (f *shadowFS) real(name string) (string, bool) {
	base := f.PathBase(name)
	return f.under.PathJoin(f.dir, base), f.names[base]
}

func (f *shadowFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if path, ok := f.real(name); ok {
		file, err := openRegular(f.under, path, opts...)
		if errors.Is(err, fs.ErrNotExist) {
			// Pebble takes a missing file for its own fault, and an empty one for damage.
			return f.FS.Create(name, vfs.WriteCategoryUnspecified)
		}
		return file, err
	}
	return f.FS.Open(name, opts...)
}

func (f *shadowFS) Stat(name string) (vfs.FileInfo, error) {
	if path, ok := f.real(name); ok {
		return f.under.Stat(path)
	}
	return f.FS.Stat(name)
}

func (f *shadowFS) List(dir string) ([]string, error) {
	names, err := f.FS.List(dir)
	names = slices.DeleteFunc(names, func(n string) bool { return strings.HasSuffix(n, ".log") })
	for n := range f.names {
		names = append(names, n)
	}
	return names, err
}

func (f *shadowFS) Unwrap() vfs.FS { return f.FS }
