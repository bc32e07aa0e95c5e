// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/place"
	"github.com/nebulaio/nebulaio/internal/units"
)

// lsFlags are the flags of ls.
type lsFlags struct {
	objects                            objectFlags
	recursive, human, versions, asJSON bool
}

// listedJSON is one line of ls --json.
type listedJSON struct {
	Type     string     `json:"type"` // "bucket", "folder", "object", "file", "version" or "delete_marker"
	Name     string     `json:"name"` // URL or path
	Key      string     `json:"key,omitempty"`
	Size     *int64     `json:"size,omitempty"`
	ETag     string     `json:"etag,omitempty"`
	Modified *time.Time `json:"modified,omitempty"`
	Version  string     `json:"version,omitempty"`
	Latest   bool       `json:"latest,omitempty"`
}

func newLs(a *app) *cobra.Command {
	var f lsFlags
	cmd := &cobra.Command{
		Use:   "ls [PLACE...]",
		Short: "List buckets, objects and files",
		Long: `List buckets, objects and files.

PLACE is s3://BUCKET/PREFIX or a local path. Without PLACE, the command lists the
buckets of the account. The name s3://PROFILE@BUCKET/PREFIX takes the server and
the keys from another profile of the AWS tools.

Each line has the time of the last change in UTC, the size in bytes and the name.
A prefix that ends inside a name lists all names that begin with it. With --json,
the command prints one JSON object per line.`,
		Args: places(0, 0, "places such as s3://BUCKET/PREFIX"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			if len(args) == 0 {
				args = []string{"s3://"}
			}
			return f.objects.withClients(ctx, a, func(c *place.Clients) error { return f.run(ctx, a, c, args) })
		}),
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVarP(&f.recursive, "recursive", "r", false, "list everything below the place instead of its folders")
	fs.BoolVar(&f.human, "human", false, "print sizes with units such as MiB")
	fs.BoolVar(&f.versions, "versions", false, "list all versions of each object and the markers of deleted objects")
	fs.BoolVar(&f.asJSON, "json", false, "print one JSON object per line")
	f.objects.defineServer(fs)
	return cmd
}

func (f *lsFlags) run(ctx context.Context, a *app, c *place.Clients, names []string) error {
	for _, name := range names {
		t, err := openTree(ctx, c, name)
		if err != nil {
			return err
		}
		out := newLister(a, f)
		err = f.list(ctx, t, out)
		out.flush()
		if err != nil {
			return err
		}
		if err := a.out.failed(); err != nil {
			return err
		}
	}
	return nil
}

// list lists one place.
func (f *lsFlags) list(ctx context.Context, t place.Tree, out *listing) error {
	switch {
	case t.Remote() && t.Bucket == "":
		all, err := t.Client.Admin().ListBuckets(ctx)
		if err != nil {
			return err
		}
		for _, b := range all {
			if err := out.add(listedJSON{Type: "bucket", Name: place.Place{Bucket: b.Name, Profile: t.Profile}.String(),
				Modified: whenJSON(b.Created)}, b.Name); err != nil {
				return err
			}
		}
		return nil
	case f.versions:
		if err := onServer("list versions of", t.Place, "leave out --versions"); err != nil {
			return err
		}
		return f.listVersions(ctx, t, out)
	}
	found := false
	err := t.List(ctx, f.recursive, func(l place.Listed) error {
		found = true
		item := listedJSON{Type: "object", Name: l.Name, Key: l.Key, ETag: l.ETag, Modified: whenJSON(l.Modified)}
		switch {
		case l.Folder:
			item.Type = "folder"
		case !t.Remote():
			item.Type = "file"
		}
		if t.Remote() {
			item.Name = place.Place{Bucket: t.Bucket, Key: l.Name, Profile: t.Profile}.String()
		}
		if !l.Folder {
			item.Size = &l.Size
		}
		return out.add(item, l.Key)
	})
	if err == nil && !found && t.Remote() && t.Key != "" {
		return errs.New(errs.NotFound, "list", t.String(), "no key begins with this name").
			WithFix("list the bucket: nebulaio ls " + place.Place{Bucket: t.Bucket, Profile: t.Profile}.String())
	}
	return err
}

// listVersions lists all versions below a place.
func (f *lsFlags) listVersions(ctx context.Context, t place.Tree, out *listing) error {
	return t.WalkVersions(ctx, false, func(v place.Version) error {
		item := listedJSON{Type: "version", Name: place.Place{Bucket: t.Bucket, Key: v.Name, Profile: t.Profile}.String(),
			Key: v.Key, ETag: v.ETag, Modified: whenJSON(v.Modified), Version: v.ID, Latest: v.Latest}
		if v.Deleted {
			item.Type = "delete_marker"
		} else {
			item.Size = &v.Size
		}
		return out.add(item, v.Key)
	})
}

// listing prints lines as they come.
type listing struct {
	w     *bufio.Writer
	json  lines
	f     *lsFlags
	wrote int
	a     *app
}

func newLister(a *app, f *lsFlags) *listing {
	w := bufio.NewWriterSize(a.out, 64<<10)
	return &listing{w: w, json: newLines(w), f: f, a: a}
}

func (l *listing) flush() { _ = l.w.Flush() } // checkedWriter records the error

func (l *listing) add(item listedJSON, name string) error {
	if l.wrote++; l.wrote%1000 == 0 && l.a.out.err != nil {
		return l.a.out.failed() // nobody reads any more
	}
	if l.f.asJSON {
		return l.json.add(item)
	}
	return l.line(l.w, item, name)
}

func (l *listing) line(w io.Writer, item listedJSON, name string) error {
	at, size := when(time.Time{}), ""
	if item.Modified != nil {
		at = when(*item.Modified)
	}
	switch {
	case item.Type == "folder":
		size = "folder"
	case item.Type == "delete_marker":
		size = "deleted"
	case item.Size != nil && l.f.human:
		size = units.Bytes(*item.Size)
	case item.Size != nil:
		size = fmt.Sprint(*item.Size)
	}
	if item.Type == "bucket" {
		_, err := fmt.Fprintf(w, "%s  %s\n", at, printable(name))
		return errs.Wrap("write", os.Stdout.Name(), err)
	}
	version := ""
	if item.Version != "" {
		version = "  " + printable(item.Version)
		if item.Latest {
			version += " (latest)"
		}
	}
	_, err := fmt.Fprintf(w, "%s  %13s  %s%s\n", at, size, printable(name), version)
	return errs.Wrap("write", os.Stdout.Name(), err)
}
