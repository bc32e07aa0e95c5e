// SPDX-License-Identifier: Apache-2.0

package metascan

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/store/layout"
	"github.com/nebulaio/nebulaio/internal/store/metadb"
	"github.com/nebulaio/nebulaio/internal/store/metafile"
)

// shadowGet reads a value through Pebble, which panics if a blob file does not match the table.
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

// shadow opens a database that consists of one table and its blob files. Only Pebble itself can follow a reference
// from a table to a blob file.
func (r *Reader) shadow(t *metafile.Table) (*pebble.DB, error) {
	mem := vfs.NewMem()
	o := metadb.ToolOptions(mem, 1<<20, false)
	o.CacheSize = 8 << 20
	db, err := metadb.Open("shadow", o)
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
	if _, err = w.WriteRecord(r.manifest.Shadow(t)); err == nil {
		err = w.Close()
	}
	if e := file.Close(); err == nil {
		err = e
	}
	if err != nil {
		return nil, err
	}
	over := &shadowFS{FS: mem, under: r.fs, dir: r.Dir, names: map[string]bool{fmt.Sprintf("%06d.sst", t.Number): true}}
	for _, id := range t.Blobs {
		if b := r.manifest.Blobs[id]; b != nil {
			over.names[fmt.Sprintf("%06d.blob", b.Number)] = true
		}
	}
	o = metadb.ToolOptions(over, 1<<20, true)
	o.CacheSize = 8 << 20
	o.DisableConsistencyCheck = true
	return metadb.Open("shadow", o)
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
		file, err := layout.OpenRegular(f.under, path, opts...)
		if errors.Is(err, fs.ErrNotExist) {
			// Pebble takes a missing file for its own mistake, and an empty one for damage.
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
