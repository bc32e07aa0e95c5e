// SPDX-License-Identifier: Apache-2.0

package salvage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/store/datafile"
	"github.com/nebulaio/nebulaio/internal/store/filecopy"
	"github.com/nebulaio/nebulaio/internal/store/layout"
)

// carrier copies data files from the old store to the new one. It changes nothing in the old store.
type carrier struct {
	ctx  context.Context
	fs   vfs.FS
	from string // the directory of the old store
	to   string // that of the new one
	dirs filecopy.DirSet
}

// file copies a data file. Its content is always read and checked. If share is set, file creates a hard link instead
// of a copy, if possible.
func (c *carrier) file(id uint64, size int64, share bool, check func(int64, []byte) error) (why string, err error) {
	settled, fresh := datafile.Names(c.fs, c.from, datafile.ID(id))
	to, _ := datafile.Names(c.fs, c.to, datafile.ID(id))
	from := settled
	info, err := c.fs.Stat(from)
	if errors.Is(err, fs.ErrNotExist) {
		from = fresh
		info, err = c.fs.Stat(from)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "its file is missing", nil
	case err != nil:
		return "its file cannot be read: " + err.Error(), nil
	case info.Size() < size:
		return fmt.Sprintf("its file has %d of %d bytes", info.Size(), size), nil
	}
	if err := c.dirs.Make(c.fs.PathDir(to)); err != nil {
		return "", err
	}
	if share && info.Size() == size {
		linked, why, err := c.link(from, to, size, check)
		if linked || why != "" || err != nil {
			return why, err
		}
	}
	err = filecopy.CopyFile(c.ctx, c.fs, from, to, size, check)
	return c.judge(err)
}

// judge distinguishes damage of the old store, which is a loss, from failures of the new store, which end the
// salvage.
func (c *carrier) judge(err error) (why string, fatal error) {
	switch {
	case err == nil:
		return "", nil
	case errors.Is(err, filecopy.ErrSums):
		return "its content does not have its checksum", nil
	case c.ctx.Err() != nil, layout.IsNoSpace(err), errors.Is(err, fs.ErrPermission):
		return "", err
	}
	return "its file cannot be read: " + err.Error(), nil
}

// link creates a hard link to a file in the new store; linked is false if that is not possible.
func (c *carrier) link(from, to string, size int64, check func(int64, []byte) error) (linked bool, why string,
	err error) {
	file, err := layout.OpenRegular(c.fs, from)
	if err != nil {
		why, err = c.judge(err)
		return false, why, err
	}
	err = filecopy.EachBlock(c.ctx, file, size, check)
	_ = file.Close()
	if why, err := c.judge(err); why != "" || err != nil {
		return false, why, err
	}
	return c.fs.Link(from, to) == nil, "", nil
}

// partFile checks the pieces of a part, and copies its file if that is not done yet.
func (c *carrier) partFile(id uint64, pieces []datafile.Piece, bring bool) (why string, err error) {
	settled, fresh := datafile.Names(c.fs, c.from, datafile.ID(id))
	from := settled
	file, err := layout.OpenRegular(c.fs, from)
	if err != nil {
		from = fresh
		if file, err = layout.OpenRegular(c.fs, from); err != nil {
			return c.judge(err)
		}
	}
	info, err := file.Stat()
	if err == nil {
		err = filecopy.PiecesOf(c.ctx, file, pieces)
	}
	_ = file.Close()
	if why, err := c.judge(err); why != "" || err != nil || !bring {
		return why, err
	}
	// An upload continues in its file, so the two stores never share it.
	return c.file(id, info.Size(), false, nil)
}
