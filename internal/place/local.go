// SPDX-License-Identifier: Apache-2.0

package place

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// mostDepth is the most directories within each other. A loop of links ends there at the latest.
const mostDepth = 1000

// localWalk lists the files of a directory tree in the byte order of their keys. Links are followed, except to a
// directory that the walk is in.
type localWalk struct {
	t    Tree
	each func(Entry) error
	in   []fs.FileInfo // the directories from the root to the current one
}

func walkLocal(ctx context.Context, t Tree, each func(Entry) error) error {
	info, err := os.Stat(t.Path)
	if err != nil {
		return errs.Wrap("list", t.Path, err)
	}
	if !info.IsDir() {
		return errs.New(errs.Invalid, "list", t.Path, "is no directory; expected one")
	}
	w := &localWalk{t: t, each: each, in: []fs.FileInfo{info}}
	return w.directory(ctx, t.Path, "", false)
}

// named is a member of a directory. Its name ends in a slash if the member is a directory: this is how it is sorted
// among keys, where "a.b" comes before "a/x".
type named struct {
	name   string
	info   fs.FileInfo
	linked bool
}

// directory lists dir, whose files have keys that begin with prefix.
func (w *localWalk) directory(ctx context.Context, dir, prefix string, linked bool) error {
	members, err := w.members(ctx, dir)
	if err != nil {
		return err
	}
	for _, m := range members {
		if ctx.Err() != nil {
			return errs.Wrap("list", w.t.Path, context.Cause(ctx))
		}
		path, key := filepath.Join(dir, m.name), prefix+m.name
		if !strings.HasSuffix(m.name, "/") {
			if err := w.each(Entry{Key: key, Name: path, Size: m.info.Size(), Modified: m.info.ModTime(),
				Linked: linked || m.linked}); err != nil {
				return err
			}
			continue
		}
		if slices.ContainsFunc(w.in, func(i fs.FileInfo) bool { return os.SameFile(i, m.info) }) {
			w.skip(path, "a link leads back to a directory that contains it")
			continue
		}
		if len(w.in) > mostDepth {
			return errs.New(errs.Invalid, "list", clip(path), fmt.Sprintf("has more than %d directories above it", mostDepth))
		}
		w.in = append(w.in, m.info)
		err := w.directory(ctx, path, key, linked || m.linked)
		w.in = w.in[:len(w.in)-1]
		if err != nil {
			return err
		}
	}
	return nil
}

// members returns the files and directories of dir in the order of their keys. It leaves out what is neither.
func (w *localWalk) members(ctx context.Context, dir string) ([]named, error) {
	all, err := os.ReadDir(dir)
	if err != nil {
		return nil, errs.Wrap("list", dir, err)
	}
	out := make([]named, 0, len(all))
	for _, d := range all {
		if ctx.Err() != nil {
			return nil, errs.Wrap("list", dir, context.Cause(ctx))
		}
		m := named{name: d.Name(), linked: d.Type()&fs.ModeSymlink != 0}
		path := filepath.Join(dir, m.name)
		if m.linked {
			m.info, err = os.Stat(path)
		} else {
			m.info, err = d.Info()
		}
		switch {
		case os.IsNotExist(err) && m.linked:
			w.skip(path, "the link leads to nothing")
			continue
		case os.IsNotExist(err): // removed since
			continue
		case err != nil:
			return nil, errs.Wrap("look at", path, err)
		case m.info.IsDir():
			m.name += "/"
		case !m.info.Mode().IsRegular():
			w.skip(path, fmt.Sprintf("it is no regular file but has the mode %v", m.info.Mode()))
			continue
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b named) int { return strings.Compare(a.name, b.name) })
	return out, nil
}

func (w *localWalk) skip(path, why string) {
	if w.t.Skipped != nil {
		w.t.Skipped(path, why)
	}
}
