// SPDX-License-Identifier: Apache-2.0

package place

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// Listed is a line of a listing: an entry, or a folder with further entries.
type Listed struct {
	Entry
	Folder bool // Key and Name end in a slash, and the other fields are empty
}

// List lists a place for a reader. Unlike Walk, List takes the name of an S3 place as the beginning of keys, and groups
// the keys of a folder unless all is set. The keys of the result begin after the last slash of the place's name. A
// local file is listed itself.
func (t Tree) List(ctx context.Context, all bool, each func(Listed) error) error {
	if !t.Remote() {
		return t.listLocal(ctx, all, each)
	}
	l := s3.Listing{Bucket: t.Bucket, Prefix: t.Key, Delimiter: "/"}
	if all {
		l.Delimiter = ""
	}
	above := t.Key[:strings.LastIndexByte(t.Key, '/')+1]
	return walkPages(ctx, t.Client, l, func(g string) error {
		return each(Listed{Entry: Entry{Key: strings.TrimPrefix(g, above), Name: g}, Folder: true})
	}, func(e s3.Entry) error {
		return each(Listed{Entry: Entry{Key: strings.TrimPrefix(e.Key, above), Name: e.Key, Size: e.Size, ETag: e.ETag,
			Modified: e.Modified}})
	})
}

func (t Tree) listLocal(ctx context.Context, all bool, each func(Listed) error) error {
	kind, e, err := t.lookLocal()
	switch {
	case err != nil:
		return err
	case kind == Missing:
		return errs.Wrap("list", t.Path, os.ErrNotExist)
	case kind == One:
		return each(Listed{Entry: e})
	case all:
		return t.Walk(ctx, func(e Entry) error { return each(Listed{Entry: e}) })
	}
	w := &localWalk{t: t}
	members, err := w.members(ctx, t.Path)
	if err != nil {
		return err
	}
	for _, m := range members {
		l := Listed{Entry: Entry{Key: m.name, Name: filepath.Join(t.Path, m.name)}}
		if l.Folder = strings.HasSuffix(m.name, "/"); l.Folder {
			l.Name += "/"
		} else {
			l.Size, l.Modified = m.info.Size(), m.info.ModTime()
		}
		if err := each(l); err != nil {
			return err
		}
	}
	return nil
}
