// SPDX-License-Identifier: Apache-2.0

package place

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// Tree is a place with the client of its server. All methods of Tree are safe for concurrent use.
type Tree struct {
	Place
	Client *s3.Client // nil for a local path
	// Skipped, if not nil, is told of each file that Walk leaves out because it is no regular file, with the reason.
	Skipped func(path, why string)
}

// Kind says what a Tree found at its name.
type Kind int

// The kinds of places.
const (
	Missing Kind = iota // nothing has this name, and no name begins with it and a slash
	One                 // one file or object
	Many                // a directory, a bucket, or the prefix of objects
)

// Look returns what the name of the tree stands for. For One, the entry describes it, and its Key is the last part of
// the name. An object has precedence over a prefix of the same name. A place that does not exist is Missing, without an
// error. A bucket that does not exist is an error of kind NotFound.
func (t Tree) Look(ctx context.Context) (Kind, Entry, error) {
	if !t.Remote() {
		return t.lookLocal()
	}
	if !t.Folder() {
		i, err := t.Client.Head(ctx, t.Bucket, t.Key, "")
		if err == nil {
			return One, Entry{Key: t.Base(), Name: t.Key, Size: i.Size, ETag: i.ETag, Modified: i.Modified}, nil
		}
		if !errs.Is(err, errs.NotFound) || s3.CodeOf(err) == "NoSuchBucket" {
			return Missing, Entry{}, err
		}
	}
	page, err := t.Client.List(ctx, s3.Listing{Bucket: t.Bucket, Prefix: t.AsFolder().Key, Limit: 1})
	if err != nil {
		return Missing, Entry{}, err
	}
	if len(page.Entries) > 0 || t.Key == "" {
		return Many, Entry{}, nil
	}
	return Missing, Entry{}, nil
}

func (t Tree) lookLocal() (Kind, Entry, error) {
	info, err := os.Stat(t.Path)
	switch {
	case os.IsNotExist(err):
		return Missing, Entry{}, nil
	case err != nil:
		return Missing, Entry{}, errs.Wrap("look at", t.Path, err)
	case info.IsDir():
		return Many, Entry{}, nil
	case !info.Mode().IsRegular():
		return Missing, Entry{}, errs.New(errs.Invalid, "look at", t.Path,
			fmt.Sprintf("is neither a file nor a directory but has the mode %v", info.Mode()))
	}
	return One, Entry{Key: t.Base(), Name: t.Path, Size: info.Size(), Modified: info.ModTime()}, nil
}

// Walk lists the files below a directory, or the objects below a prefix, in the byte order of their keys. The prefix of
// an S3 place ends in a slash or is empty; see AsFolder. A server that lists keys out of order gives an error of kind
// Corrupt.
func (t Tree) Walk(ctx context.Context, each func(Entry) error) error {
	if !t.Remote() {
		return walkLocal(ctx, t, each)
	}
	prefix := t.AsFolder().Key
	return walkPages(ctx, t.Client, s3.Listing{Bucket: t.Bucket, Prefix: prefix}, nil, func(e s3.Entry) error {
		return each(Entry{Key: strings.TrimPrefix(e.Key, prefix), Name: e.Key, Size: e.Size, ETag: e.ETag,
			Modified: e.Modified})
	})
}
