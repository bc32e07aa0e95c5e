// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// maxRead bounds the bytes that are read of one file. The rest of the file is ignored.
const maxRead = 4 << 20

// Tree gives read-only access to the files of a machine: this one, or the captured files of another. All paths that a
// Tree takes and returns are absolute and use slashes.
type Tree interface {
	// ReadFile returns at most the first 4 MiB of a file. The error of ReadFile matches fs.ErrNotExist if the file is
	// missing, and fs.ErrPermission if it may not be read.
	ReadFile(name string) ([]byte, error)
	// ReadDir returns the sorted names in a directory.
	ReadDir(name string) ([]string, error)
	// Resolve returns the path name with all symbolic links resolved.
	Resolve(name string) (string, error)
	// Exists reports whether the path name exists, even if it cannot be read.
	Exists(name string) bool
}

// Live returns the Tree of the running machine.
func Live() Tree { return live{} }

type live struct{}

func (live) ReadFile(name string) ([]byte, error) {
	// A device node or a pipe in place of a file would block or never end.
	if st, err := os.Stat(name); err != nil {
		return nil, err
	} else if !st.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: name, Err: errors.New("not a regular file")}
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxRead))
}

func (live) ReadDir(name string) ([]string, error) {
	d, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(1 << 16)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}

func (live) Resolve(name string) (string, error) { return filepath.EvalSymlinks(name) }

func (live) Exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// Record is a Tree in memory: it holds files, directories and symbolic links by path. A path that is not in the
// Record does not exist, unless it is in Denied.
type Record struct {
	Files  map[string][]byte
	Dirs   map[string][]string // names of the entries in each directory that was listed
	Links  map[string]string   // targets of symbolic links, as absolute paths
	Denied map[string]bool     // paths that exist but could not be read
}

// NewRecord returns a Record without files.
func NewRecord() *Record {
	return &Record{Files: map[string][]byte{}, Dirs: map[string][]string{}, Links: map[string]string{},
		Denied: map[string]bool{}}
}

func notThere(op, name string) error { return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist} }
func forbidden(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: fs.ErrPermission}
}

// real follows the recorded links on the way to name.
func (r *Record) real(name string) string {
	name = path.Clean("/" + name)
	for range 40 { // as many as the kernel follows
		next := name
		for p := name; p != "/"; p = path.Dir(p) {
			if to, ok := r.Links[p]; ok && to != p {
				next = path.Clean("/" + to + strings.TrimPrefix(name, p))
				break
			}
		}
		if next == name {
			break
		}
		name = next
	}
	return name
}

// at returns the two names under which the answer for name may be recorded: the name itself, and the name behind its
// links.
func (r *Record) at(name string) [2]string { return [2]string{path.Clean("/" + name), r.real(name)} }

// ReadFile implements Tree.
func (r *Record) ReadFile(name string) ([]byte, error) {
	for _, p := range r.at(name) {
		if b, ok := r.Files[p]; ok {
			return b[:min(len(b), maxRead)], nil
		}
		if r.Denied[p] {
			return nil, forbidden("open", name)
		}
	}
	return nil, notThere("open", name)
}

// ReadDir implements Tree.
func (r *Record) ReadDir(name string) ([]string, error) {
	for _, p := range r.at(name) {
		if names, ok := r.Dirs[p]; ok {
			return names, nil
		}
		if r.Denied[p] {
			return nil, forbidden("open", name)
		}
		if names := r.below(p); len(names) > 0 {
			return names, nil
		}
	}
	return nil, notThere("open", name)
}

// below lists the names in a directory that the recorded paths imply.
func (r *Record) below(dir string) []string {
	seen := map[string]bool{}
	prefix := strings.TrimSuffix(dir, "/") + "/"
	add := func(p string) {
		if rest, ok := strings.CutPrefix(p, prefix); ok && rest != "" {
			first, _, _ := strings.Cut(rest, "/")
			seen[first] = true
		}
	}
	for p := range r.Files {
		add(p)
	}
	for p := range r.Dirs {
		add(p)
	}
	for p := range r.Links {
		add(p)
	}
	names := make([]string, 0, len(seen))
	for n := range seen {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Resolve implements Tree.
func (r *Record) Resolve(name string) (string, error) {
	if to := r.real(name); to != path.Clean("/"+name) {
		return to, nil
	}
	if !r.Exists(name) {
		return "", notThere("resolve", name)
	}
	return path.Clean("/" + name), nil
}

// Exists implements Tree.
func (r *Record) Exists(name string) bool {
	for _, p := range r.at(name) {
		_, isFile := r.Files[p]
		_, isDir := r.Dirs[p]
		_, isLink := r.Links[p]
		if isFile || isDir || isLink || r.Denied[p] || slices.Contains(r.Dirs[path.Dir(p)], path.Base(p)) ||
			len(r.below(p)) > 0 {
			return true
		}
	}
	return false
}

// Recorder is a Tree that passes every request to another Tree and records the reply. A capture made with a Recorder
// thus contains only the files that the checks read.
type Recorder struct {
	from Tree
	kept *Record
}

// NewRecorder returns a Recorder that records the replies of t.
func NewRecorder(t Tree) *Recorder { return &Recorder{from: t, kept: NewRecord()} }

// ReadFile implements Tree.
func (r *Recorder) ReadFile(name string) ([]byte, error) {
	b, err := r.from.ReadFile(name)
	switch {
	case err == nil:
		r.kept.Files[name] = b
	case !errors.Is(err, fs.ErrNotExist):
		r.kept.Denied[name] = true
	}
	return b, err
}

// ReadDir implements Tree.
func (r *Recorder) ReadDir(name string) ([]string, error) {
	names, err := r.from.ReadDir(name)
	switch {
	case err == nil:
		r.kept.Dirs[name] = names
	case !errors.Is(err, fs.ErrNotExist):
		r.kept.Denied[name] = true
	}
	return names, err
}

// Resolve implements Tree.
func (r *Recorder) Resolve(name string) (string, error) {
	to, err := r.from.Resolve(name)
	if err == nil && to != name {
		r.kept.Links[name] = to
	}
	return to, err
}

// Exists implements Tree.
func (r *Recorder) Exists(name string) bool {
	ok := r.from.Exists(name)
	if ok {
		r.note(path.Dir(name), path.Base(name))
	}
	return ok
}

// matching records only the names that match. A whole directory of libraries would reveal more about a machine than
// the checks need.
func (r *Recorder) matching(dir, pattern string) []string {
	names, err := r.from.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.kept.Denied[dir] = true
	}
	names = match(names, pattern)
	r.note(dir, names...)
	return names
}

func (r *Recorder) note(dir string, names ...string) {
	for _, n := range names {
		if !slices.Contains(r.kept.Dirs[dir], n) {
			r.kept.Dirs[dir] = append(r.kept.Dirs[dir], n)
		}
	}
	slices.Sort(r.kept.Dirs[dir])
}

func match(names []string, pattern string) []string {
	var out []string
	for _, n := range names {
		if ok, _ := path.Match(pattern, n); ok {
			out = append(out, n)
		}
	}
	return out
}

// glob lists the paths in dir whose last element matches pattern.
func glob(t Tree, dir, pattern string) []string {
	var names []string
	if r, ok := t.(*Recorder); ok {
		names = r.matching(dir, pattern)
	} else if all, err := t.ReadDir(dir); err == nil {
		names = match(all, pattern)
	}
	for i, n := range names {
		names[i] = path.Join(dir, n)
	}
	return names
}
