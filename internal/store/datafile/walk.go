// SPDX-License-Identifier: Apache-2.0

package datafile

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Found is a file that Walk found.
type Found struct {
	ID    ID
	Path  string
	Size  int64
	InTmp bool // the file is in tmp/, not moved to data/ yet; Walk may find the same ID in data/ too
	Odd   bool // the file's name, directory or type shows that it is no data file; ID is then 0
}

// Walk calls fn for every file: first the files in tmp/, then the files in data/ in ascending order of their IDs. The
// files must not change during the walk, because a name without a file is taken for a dangling link and reported as
// odd. If fn returns an error, Walk ends and returns that error.
func (f *Files) Walk(ctx context.Context, fn func(Found) error) error {
	if err := f.walkDir(ctx, f.tmp, func(id ID) bool { return true }, true, fn); err != nil {
		return err
	}
	tops, err := f.numbers(ctx, f.data, fn)
	if err != nil {
		return err
	}
	for _, top := range tops {
		upper := f.fs.PathJoin(f.data, fmt.Sprintf("%02x", top))
		subs, err := f.numbers(ctx, upper, fn)
		if err != nil {
			return err
		}
		for _, sub := range subs {
			dir := f.fs.PathJoin(upper, fmt.Sprintf("%02x", sub))
			here := func(id ID) bool { return f.home(id) == dir }
			if err := f.walkDir(ctx, dir, here, false, fn); err != nil {
				return err
			}
		}
	}
	return nil
}

// walkDir calls fn for the files of one directory.
func (f *Files) walkDir(ctx context.Context, dir string, here func(ID) bool, tmp bool, fn func(Found) error) error {
	names, err := f.fs.List(dir)
	if missing(err) && tmp && f.tmpDir == nil {
		return nil // a store that is only read may come without its empty directory
	}
	if err != nil {
		return fail("list", dir, err)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := context.Cause(ctx); err != nil {
			return errs.Wrap("list", dir, err)
		}
		found := Found{Path: f.fs.PathJoin(dir, name), InTmp: tmp}
		info, err := f.fs.Stat(found.Path)
		if err != nil && !missing(err) {
			return fail("stat", found.Path, err)
		}
		if err == nil {
			found.Size = info.Size()
		}
		if id, bad := ParseID(name); err == nil && bad == nil && here(id) && regular(info) {
			found.ID = id
		} else {
			found.Odd = true
		}
		if err := fn(found); err != nil {
			return err
		}
	}
	return nil
}

// regular reports whether info describes a regular file: no directory, pipe, socket or device.
func regular(info vfs.FileInfo) bool { return info.Mode().IsRegular() }

// numbers returns the directories of dir as the numbers in their names, ascending, and calls fn for everything else.
func (f *Files) numbers(ctx context.Context, dir string, fn func(Found) error) ([]uint64, error) {
	names, err := f.fs.List(dir)
	if err != nil {
		return nil, fail("list", dir, err)
	}
	var ns []uint64
	for _, name := range names {
		if err := context.Cause(ctx); err != nil {
			return nil, errs.Wrap("list", dir, err)
		}
		n, err := strconv.ParseUint(name, 16, 64)
		if err == nil && fmt.Sprintf("%02x", n) == name {
			// A file with such a name is not ours.
			if info, err := f.fs.Stat(f.fs.PathJoin(dir, name)); err == nil && info.IsDir() {
				ns = append(ns, n)
				continue
			} else if err != nil && !missing(err) {
				return nil, fail("stat", f.fs.PathJoin(dir, name), err)
			}
		}
		if fn != nil {
			if err := fn(Found{Path: f.fs.PathJoin(dir, name), Odd: true}); err != nil {
				return nil, err
			}
		}
	}
	slices.Sort(ns)
	return ns, nil
}

// MaxID returns a lower bound of the highest ID of all files that were ever moved to data/. The returned ID is at least
// the highest ID in data/ now. MaxID returns false if no file was ever moved to data/. Metadata is older than the data
// files if the next ID that it would assign is not above the result of MaxID. MaxID lists only three directories,
// however many files there are.
func (f *Files) MaxID() (id ID, ok bool, err error) {
	tops, err := f.numbers(context.Background(), f.data, nil)
	if err != nil || len(tops) == 0 {
		return 0, false, err
	}
	top := tops[len(tops)-1]
	upper := f.fs.PathJoin(f.data, fmt.Sprintf("%02x", top))
	subs, err := f.numbers(context.Background(), upper, nil)
	if err != nil {
		return 0, false, err
	}
	// A directory is created for a committed file and stays when its files are removed: so the lowest number in it
	// was reached.
	id = ID(top) << 20
	if len(subs) == 0 {
		return id, true, nil
	}
	sub := subs[len(subs)-1]
	id |= ID(sub) << 12
	dir := f.fs.PathJoin(upper, fmt.Sprintf("%02x", sub))
	names, err := f.fs.List(dir)
	if err != nil {
		return 0, false, fail("list", dir, err)
	}
	for _, name := range names {
		if x, err := ParseID(name); err == nil && f.home(x) == dir {
			id = max(id, x)
		}
	}
	return id, true, nil
}

// Scrub reads a whole data file, compares every block with its checksum, and returns each damage that it finds. Scrub
// opens the file itself and not through the cache of open files. An error other than damage ends the scrub. The
// function pace, if not nil, is called after each block with the block's length, and may wait to limit the rate.
func (f *Files) Scrub(ctx context.Context, id ID, size int64, sums []uint64, pace func(n int64)) ([]*Damage, error) {
	const op = "scrub"
	if err := checkSize(op, id.String(), 0, size); err != nil {
		return nil, err
	}
	if int64(len(sums)) != blocks(size) {
		return nil, errs.New(errs.Invalid, op, f.Path(id),
			fmt.Sprintf("there are %d sums for %d bytes, expected %d", len(sums), size, blocks(size)))
	}
	var found []*Damage
	e := &entry{id: id, fd: -1}
	if err := e.openPatiently(ctx, f); err != nil {
		what := "unreadable"
		if missing(err) {
			what = "missing"
		} else if !rotten(err) {
			return nil, errs.Wrap(op, f.Path(id), err)
		}
		return []*Damage{{ID: id, File: f.Path(id), N: size, What: what, Err: err}}, nil
	}
	defer e.close()
	e.sums = sums
	r := &Reader{f: f, e: e, size: size, OnDamage: func(d *Damage) { found = append(found, d) }}
	for i := range blocks(size) {
		if err := context.Cause(ctx); err != nil {
			return found, errs.Wrap(op, f.Path(id), err)
		}
		before := len(found)
		if err := r.check(i); err != nil && len(found) == before {
			return found, err
		}
		if len(found) > before && found[before].What == "short" {
			break // nothing follows
		}
		if pace != nil {
			_, n := r.extent(i)
			pace(n)
		}
	}
	return found, nil
}
