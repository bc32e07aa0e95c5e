// SPDX-License-Identifier: Apache-2.0

package place

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// Version is one version of an object, or the marker of a deleted object.
type Version struct {
	Entry
	ID      string
	Latest  bool // the current version of its key
	Deleted bool // a marker that hides the versions before it
}

// mostVersions is the most versions of one key.
const mostVersions = 1_000_000

// WalkVersions lists all versions below an S3 place in the order of their keys. If folder is set, the place is a folder
// as for Walk; otherwise its name is the beginning of keys as for List. A server whose listing leads back gives an
// error of kind Corrupt.
func (t Tree) WalkVersions(ctx context.Context, folder bool, each func(Version) error) error {
	prefix := t.Key
	if folder {
		prefix = t.AsFolder().Key
	}
	above := prefix[:strings.LastIndexByte(prefix, '/')+1]
	bad := func(msg string) error {
		return errs.New(errs.Corrupt, "list versions of", t.String(), msg).
			WithFix("this server's listings cannot be trusted: try its newest release, or another server")
	}
	last, empty := "", 0
	seen := map[string]bool{} // versions of the last key
	for key, version := "", ""; ; {
		page, err := t.Client.Admin().ListVersions(ctx, t.Bucket, prefix, key, version)
		if err != nil {
			return err
		}
		for _, v := range page.Entries {
			if !strings.HasPrefix(v.Key, prefix) || v.Key < last {
				return bad(fmt.Sprintf("the server lists %s after %s", strconv.Quote(clip(v.Key)), strconv.Quote(clip(last))))
			}
			if v.Key != last {
				clear(seen)
			}
			if seen[v.Version] || len(seen) > mostVersions {
				return bad(fmt.Sprintf("the server lists the version %s of %s twice, or more than %d versions",
					strconv.Quote(clip(v.Version)), strconv.Quote(clip(v.Key)), mostVersions))
			}
			seen[v.Version] = true
			last = v.Key
			if err := each(versionOf(v, above)); err != nil {
				return err
			}
		}
		if page.NextKey == "" {
			return nil
		}
		if empty++; len(page.Entries) > 0 {
			empty = 0
		}
		if page.NextKey < key || page.NextKey == key && page.NextVersion == version || empty > mostEmpty {
			return bad("a page leads back to one before it")
		}
		key, version = page.NextKey, page.NextVersion
	}
}

func versionOf(v s3.VersionEntry, above string) Version {
	return Version{Entry: Entry{Key: strings.TrimPrefix(v.Key, above), Name: v.Key, Size: v.Size, ETag: v.ETag,
		Modified: v.Modified}, ID: v.Version, Latest: v.Latest, Deleted: v.Marker}
}
