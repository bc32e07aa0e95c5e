// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/copying"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/place"
)

// cpFlags are the flags of cp.
type cpFlags struct {
	copyFlags
	recursive bool
	dryRun    bool
}

func newCp(a *app) *cobra.Command {
	var f cpFlags
	cmd := &cobra.Command{
		Use:   "cp SRC DST",
		Short: "Copy files and objects, verified, and go on after an interruption",
		Long: `Copy a file or an object, or everything below a folder with --recursive.

SRC and DST are a path, s3://BUCKET/KEY, or - for standard input and output. If DST
is a folder, the copy keeps the name of SRC. A folder is a directory, a bucket, or a
name that ends in a slash.

A download is pinned to one ETag: if the object changes meanwhile, cp fails. The file
gets its name when it is whole, and its checksum equals that of the server.

If cp is interrupted or killed, run the same command again: cp goes on where it ended.`,
		Args: sourceAndOut("a source and a destination"),
		RunE: a.run(func(ctx context.Context, args []string) error { return f.run(ctx, a, args[0], args[1]) }),
	}
	fs := cmd.Flags()
	fs.BoolVarP(&f.recursive, "recursive", "r", false, "copy everything below the folder SRC")
	fs.BoolVar(&f.dryRun, "dry-run", false, "print what would be copied, and copy nothing")
	f.define(fs)
	return cmd
}

func (f *cpFlags) run(ctx context.Context, a *app, src, dst string) error {
	if !f.recursive && !f.filter.Empty() {
		return errs.New(errs.Invalid, "cp", "", "--include and --exclude choose files below a folder").WithFix(
			"give --recursive too")
	}
	if src == "-" || dst == "-" {
		if f.recursive || f.dryRun {
			return errs.New(errs.Invalid, "cp", "-", "is a stream; expected no --recursive and no --dry-run with it")
		}
	}
	return f.withEnds(ctx, a, src, dst, func(from, to place.Tree) error {
		switch {
		case src == "-":
			return f.fromStream(ctx, a, to)
		case dst == "-":
			return f.toStream(ctx, a, from)
		case f.recursive:
			return f.trees(ctx, a, from, to, copying.TreeOptions{Filter: &f.filter, DryRun: f.dryRun})
		}
		return f.one(ctx, a, from, to)
	})
}

// fromStream copies standard input to an object.
func (f *cpFlags) fromStream(ctx context.Context, a *app, to place.Tree) error {
	if !to.Remote() || to.Folder() {
		return errs.New(errs.Invalid, "cp", to.String(), "cannot take standard input; expected s3://BUCKET/KEY").
			WithFix("write a stream to a file with your shell: > FILE")
	}
	return f.report(ctx, a, "-", to.String(), func(c *copying.Copier) (copying.Result, error) {
		return c.ReadFrom(ctx, a.Stdin, remoteOf(to.Place, to))
	})
}

// toStream copies an object to standard output.
func (f *cpFlags) toStream(ctx context.Context, a *app, from place.Tree) error {
	if !from.Remote() || from.Folder() {
		return errs.New(errs.Invalid, "cp", from.String(), "cannot go to standard output; expected s3://BUCKET/KEY").
			WithFix("print a file with cat")
	}
	if f.asJSON {
		return errs.New(errs.Invalid, "cp", "-", "standard output has the content; expected no --json with it")
	}
	c, err := f.copier(a)
	if err != nil {
		return err
	}
	_, err = c.WriteTo(ctx, remoteOf(from.Place, from), a.out)
	return err
}

// one copies one file or object.
func (f *cpFlags) one(ctx context.Context, a *app, from, to place.Tree) error {
	if from.Folder() {
		return isFolder(from)
	}
	dst, err := f.destination(from, to)
	if err != nil {
		return err
	}
	if f.dryRun {
		kind, e, err := from.Look(ctx)
		if err != nil {
			return err
		}
		if kind != place.One {
			return missing(from, kind)
		}
		j := treeJSON{Source: from.String(), Destination: dst.String(), DryRun: true,
			Actions: []copying.Action{{Action: "copy", Source: from.String(), Destination: dst.String(), Bytes: e.Size,
				Why: "asked for"}}}
		j.Copied, j.Bytes = 1, e.Size
		return a.printResult(f.asJSON, j, j.print)
	}
	return f.report(ctx, a, from.String(), dst.String(), func(c *copying.Copier) (r copying.Result, err error) {
		switch {
		case from.Remote() && dst.Remote():
			r, err = c.Relay(ctx, remoteOf(from.Place, from), remoteOf(dst, to))
		case from.Remote():
			r, err = f.download(ctx, a, c, from, dst.Path)
		case dst.Remote():
			r, err = c.Upload(ctx, from.Path, remoteOf(dst, to))
		default:
			r, err = c.CopyFile(ctx, from.Path, dst.Path)
		}
		if from.Remote() && errs.Is(err, errs.NotFound) {
			if kind, _, e := from.Look(ctx); e == nil && kind == place.Many {
				err = isFolder(from)
			}
		}
		return r, err
	})
}

func isFolder(t place.Tree) error {
	return errs.New(errs.Invalid, "cp", t.String(), "is a folder; expected a file or an object").
		WithFix("copy everything below it with --recursive")
}

func missing(t place.Tree, kind place.Kind) error {
	if kind == place.Many {
		return isFolder(t)
	}
	return errs.New(errs.NotFound, "cp", t.String(),
		"nothing has this name").WithFix("list what is there with: nebulaio ls")
}

// destination returns the place of the copy: below a folder, it keeps the name of the source.
func (f *cpFlags) destination(from, to place.Tree) (place.Place, error) {
	folder := to.Folder()
	if !to.Remote() && !folder {
		kind, _, err := to.Look(context.Background()) // a local path: nobody is asked
		if err != nil && !errors.Is(err, io.EOF) {
			return place.Place{}, err
		}
		folder = kind == place.Many
	}
	if !folder {
		return to.Place, nil
	}
	return to.Join(from.Base())
}

// copyJSON is the result of cp for one file.
type copyJSON struct {
	copying.Result
	Seconds float64 `json:"seconds"`
}
