// SPDX-License-Identifier: Apache-2.0

// Package dataset provides the files that benchmarks read and write.
//
// Package dataset creates files with reproducible content, or uses existing files. Close removes only the files that
// Open created.
package dataset

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/synth"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// Options selects the files of a Set.
type Options struct {
	// Paths are directories for new files, or existing files to read. Benchmarks stripe their blocks over all paths:
	// neighbouring blocks are on different paths.
	Paths []string
	// Files is the number of files in each directory, and FileSize is the size of each file in bytes. For existing
	// files, Files and FileSize are ignored.
	Files    int
	FileSize int64
	Seed     uint64
	// Keep means that created files stay after Close, so that a later Open finds them.
	Keep bool
	// Empty means that the created files are for writing: they have allocated blocks, but no content.
	Empty bool
	// Progress, if not nil, is called with the bytes written so far and the bytes to write in total.
	Progress func(done, total int64)
}

// Bounds of Options.
const (
	MaxFiles    = 100_000
	MaxFileSize = 64 << 40
)

// Set is the collection of all files that a benchmark reads or writes.
type Set struct {
	Groups []Group
	// Known reports whether the files contain the bytes that the method Content computes.
	Known bool

	keep bool
	made []string // directories to remove
}

// Group is the collection of files that belong to one entry of Options.Paths.
type Group struct {
	Path  string // the entry of Options.Paths, as the caller wrote it
	Dir   string // the directory that contains the group's files
	Files []*vfs.File
	first int // index of its first file among all
	seed  uint64
}

// Open creates the benchmark's files, or finds files that an earlier run kept. If Open fails, it leaves no files
// behind. The caller of Open closes the returned Set.
func Open(ctx context.Context, o Options) (_ *Set, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &Set{keep: o.Keep}
	defer func() {
		if err != nil {
			s.keep = false
			err = errors.Join(err, s.Close())
		}
	}()
	adopted, known := 0, 0
	b := builder{o: o, total: int64(len(o.Paths)) * int64(o.Files) * o.FileSize}
	for _, p := range o.Paths {
		info, err := os.Stat(p)
		if err != nil {
			return nil, errs.Wrap("benchmark", p, err)
		}
		g := Group{Path: p, Dir: p, first: s.count(), seed: o.Seed}
		switch {
		case !info.IsDir():
			if o.Empty {
				return nil, errs.New(errs.Invalid, "benchmark writes to", p,
					"is a file, and existing files are never written to; expected a directory")
			}
			adopted++
			g.Dir = filepath.Dir(p)
			if err := g.open(p); err != nil {
				return nil, errors.Join(err, g.close())
			}
		default:
			if m, ok := findManifest(p); ok && !o.Empty {
				if m.fits(o) {
					known++
					g.seed, g.first = m.Seed, m.First
					if err := g.open(m.paths(p)...); err != nil {
						return nil, errors.Join(err, g.close())
					}
					break
				}
				return nil, errs.New(errs.Invalid, "benchmark", p,
					fmt.Sprintf("holds the %d files of %s that an earlier run kept, not %d of %s", m.Files, units.Bytes(m.FileSize),
						o.Files, units.Bytes(o.FileSize))).
					WithFix(fmt.Sprintf("ask for --files %d --size %d, or remove that directory", m.Files, m.FileSize))
			}
			known++
			dir, err := b.make(ctx, p, g.first)
			if dir != "" {
				s.made = append(s.made, dir)
			}
			if err != nil {
				return nil, err
			}
			g.Dir = dir
			if err := g.open(manifest{Files: o.Files}.paths(dir)...); err != nil {
				// Closed before the directory goes: removing it takes a descriptor.
				return nil, errors.Join(err, g.close())
			}
		}
		s.Groups = append(s.Groups, g)
	}
	if adopted > 0 && known > 0 {
		return nil, errs.New(errs.Invalid, "benchmark", o.Paths[0],
			"and the other paths are files and directories mixed; expected all of one kind")
	}
	s.Known = known > 0 && !o.Empty
	return s, nil
}

func (o Options) check() error {
	bad := func(name, value, want string) error {
		return errs.New(errs.Invalid, "benchmark", name+"="+value, "is out of range; expected "+want)
	}
	switch {
	case len(o.Paths) == 0:
		return errs.New(errs.Invalid, "benchmark", "", "no path given; expected directories or files")
	case o.Files < 1 || o.Files > MaxFiles:
		return bad("files", strconv.Itoa(o.Files), "1 to "+strconv.Itoa(MaxFiles))
	case o.FileSize < 4096 || o.FileSize > MaxFileSize:
		return bad("size", strconv.FormatInt(o.FileSize, 10), "4 KiB to 64 TiB")
	}
	var seen []os.FileInfo
	for _, p := range o.Paths {
		info, err := os.Stat(p)
		if err != nil {
			return errs.Wrap("benchmark", p, err)
		}
		if slices.ContainsFunc(seen, func(o os.FileInfo) bool { return os.SameFile(o, info) }) {
			return errs.New(errs.Invalid, "benchmark", p, "is given twice; a stripe needs different members")
		}
		seen = append(seen, info)
	}
	return nil
}

func (g *Group) open(paths ...string) error {
	for _, p := range paths {
		f, err := vfs.Open(p)
		if err != nil {
			return err
		}
		g.Files = append(g.Files, f)
		if f.Size() == 0 {
			return errs.Wrap("benchmark", p, errors.Join(errs.New(errs.Invalid, "", "",
				"is empty; expected a file with bytes to read"), g.close()))
		}
	}
	return nil
}

func (g *Group) close() error {
	var all []error
	for _, f := range g.Files {
		all = append(all, f.Close())
	}
	g.Files = nil
	return errors.Join(all...)
}

func (s *Set) count() int {
	n := 0
	for _, g := range s.Groups {
		n += len(g.Files)
	}
	return n
}

// Files lists all files of the Set, group by group.
func (s *Set) Files() []*vfs.File {
	var all []*vfs.File
	for _, g := range s.Groups {
		all = append(all, g.Files...)
	}
	return all
}

// Bytes returns the total size of all files in bytes.
func (s *Set) Bytes() int64 {
	var n int64
	for _, f := range s.Files() {
		n += f.Size()
	}
	return n
}

// Content fills dst with the content of file number f in group number g, from offset off on. The bytes match the file
// only if the set is Known, or if the file was written with bytes from Content.
func (s *Set) Content(g, f int, off int64, dst []byte) {
	synth.Content(synth.FileSeed(s.Groups[g].seed, s.Groups[g].first+f), off, dst)
}

// Drop asks the kernel to drop the pages of all files from the page cache. Drop returns the number of bytes that
// stayed in the page cache.
func (s *Set) Drop() (left int64, err error) {
	for _, f := range s.Files() {
		if f.FS().Memory {
			left += f.Size() // there is nowhere else
			continue
		}
		n, err := f.DropCache()
		if err != nil {
			return left, err
		}
		left += n
	}
	return left, nil
}

// Resident returns how many bytes of the files are in the page cache, or -1 if the kernel does not tell. Resident
// also returns the name of the kernel call that it used, such as "cachestat".
func (s *Set) Resident() (int64, string) {
	var n int64
	how := ""
	for _, f := range s.Files() {
		m, _ := f.Probe()
		r, err := f.Residency(0, f.Size())
		if err != nil {
			return -1, string(m)
		}
		n, how = n+min(r.Cached, f.Size()), string(m)
	}
	return n, how
}

// Missing returns the path of the first file that was removed or renamed, or "" if every file still has its name. An
// open descriptor of a removed file still works, but the path no longer leads to the same data.
func (s *Set) Missing() string {
	for _, f := range s.Files() {
		if _, err := os.Stat(f.Path()); errors.Is(err, fs.ErrNotExist) {
			return f.Path()
		}
	}
	return ""
}

// Close closes the files and removes those that Open created, unless Options.Keep was set.
func (s *Set) Close() error {
	var all []error
	for i := range s.Groups {
		all = append(all, s.Groups[i].close())
	}
	if s.keep {
		return errors.Join(all...)
	}
	for _, dir := range s.made {
		if err := os.RemoveAll(dir); err != nil {
			all = append(all, errs.Wrap("remove", dir, err))
		}
	}
	s.made = nil
	return errors.Join(all...)
}

// room returns how many bytes an unprivileged user may still write below path.
func room(path string) (free int64, readOnly bool, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, false, errs.Wrap("stat file system of", path, err)
	}
	return int64(st.Bavail) * st.Bsize, st.Flags&unix.ST_RDONLY != 0, nil
}
