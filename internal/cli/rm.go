// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/place"
	"github.com/nebulaio/nebulaio/internal/store/s3"
	"github.com/nebulaio/nebulaio/internal/units"
)

// rmFlags are the flags of rm.
type rmFlags struct {
	objects                             objectFlags
	filter                              place.Filter
	recursive, dryRun, versions, asJSON bool
}

// removedJSON is one line of rm --json.
type removedJSON struct {
	Action  string `json:"action"` // "delete"
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Size    int64  `json:"size"`
	DryRun  bool   `json:"dry_run,omitempty"`
	Error   string `json:"error,omitempty"`
}

// removalJSON is the last line of rm --json.
type removalJSON struct {
	Action  string `json:"action"` // "summary"
	Deleted int64  `json:"deleted"`
	Bytes   int64  `json:"bytes"`
	Failed  int64  `json:"failed"`
	DryRun  bool   `json:"dry_run,omitempty"`
}

func newRm(a *app) *cobra.Command {
	var f rmFlags
	cmd := &cobra.Command{
		Use:   "rm s3://BUCKET/KEY...",
		Short: "Delete objects",
		Long: `Delete objects.

With --recursive, the command deletes all objects below s3://BUCKET/PREFIX/ that
--include and --exclude leave. The name s3://BUCKET/run does not mean
s3://BUCKET/run2. In a bucket with versions, a deleted object is hidden and its
versions are kept. With --versions, the command deletes all versions for good.

The command deletes no local files. With --json, it prints one JSON object per
deleted object, and a summary on the last line.`,
		Args: places(1, 0, "one or more names such as s3://BUCKET/KEY"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			return f.objects.withClients(ctx, a, func(c *place.Clients) error { return f.run(ctx, a, c, args) })
		}),
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVarP(&f.recursive, "recursive", "r", false, "delete all objects below the name")
	filterFlags(fs, &f.filter)
	fs.BoolVar(&f.versions, "versions", false,
		"delete all versions of the objects for good, and the markers of deleted objects")
	fs.BoolVar(&f.dryRun, "dry-run", false, "list what would be deleted and delete nothing")
	fs.BoolVar(&f.asJSON, "json", false, "print one JSON object per line")
	f.objects.defineServer(fs)
	return cmd
}

// rmRun is one run of rm.
type rmRun struct {
	f     *rmFlags
	a     *app
	p     *sharedProgress
	json  lines
	sum   removalJSON
	first error // the first object that could not be deleted
}

func (f *rmFlags) run(ctx context.Context, a *app, c *place.Clients, names []string) error {
	if !f.recursive && !f.filter.Empty() {
		return errs.New(errs.Invalid, "rm", "", "--include and --exclude choose among many objects").
			WithFix("give --recursive too")
	}
	var trees []place.Tree
	for _, name := range names {
		t, err := openTree(ctx, c, name)
		if err == nil {
			err = onServer("rm", t.Place, "delete local files with rm of the shell")
		}
		if err == nil && t.Bucket == "" {
			err = errs.New(errs.Invalid, "rm", name, "names no bucket; expected s3://BUCKET/KEY").
				WithFix("name a bucket")
		}
		if err != nil {
			return err
		}
		trees = append(trees, t)
	}
	r := &rmRun{f: f, a: a, json: newLines(a.out), sum: removalJSON{Action: "summary", DryRun: f.dryRun},
		p: &sharedProgress{p: a.startWork("listing", f.asJSON)}}
	defer r.p.clear()
	for _, t := range trees {
		if err := r.tree(ctx, t); err != nil {
			return err
		}
	}
	r.p.clear()
	if r.first == nil {
		if f.asJSON {
			return r.json.add(r.sum)
		}
		if !f.dryRun {
			a.printText(func(w io.Writer) {
				field(w, "deleted", "%s, %s", plural(int(r.sum.Deleted), "object"), units.Bytes(r.sum.Bytes))
			})
		}
		return nil
	}
	if f.asJSON {
		if err := r.json.add(r.sum); err != nil {
			return err
		}
	}
	return &errs.Error{Kind: errs.KindOf(r.first), Op: "rm",
		Msg: fmt.Sprintf("%s deleted, %d not; the first", plural(int(r.sum.Deleted), "object"), r.sum.Failed), Err: r.first,
		Fix: errs.FixOf(r.first)}
}

// tree deletes one object, or all below a prefix.
func (r *rmRun) tree(ctx context.Context, t place.Tree) error {
	if !r.f.recursive {
		return r.one(ctx, t)
	}
	return r.removing(ctx, t, func(add func(place.Doomed) error) error {
		if r.f.versions {
			return t.WalkVersions(ctx, true, func(v place.Version) error {
				if !r.f.filter.Match(v.Key) {
					return nil
				}
				return add(doomed(v.Name, v.ID, v.Size))
			})
		}
		return r.f.filter.Of(t).Walk(ctx, func(e place.Entry) error { return add(doomed(e.Name, "", e.Size)) })
	})
}

// one deletes a single object, or all its versions.
func (r *rmRun) one(ctx context.Context, t place.Tree) error {
	if t.Folder() {
		return r.refuse(ctx, t)
	}
	kind, e, err := t.Look(ctx)
	switch {
	case errs.Is(err, errs.Permission): // who may delete need not be allowed to look
		kind = place.One
	case err != nil:
		return err
	}
	switch {
	case kind == place.Many:
		return r.refuse(ctx, t)
	case kind == place.Missing && !r.f.versions:
		return errs.New(errs.NotFound, "rm", t.String(),
			"there is no such object").WithFix("list what is there with nebulaio ls")
	}
	return r.removing(ctx, t, func(add func(place.Doomed) error) error {
		if !r.f.versions {
			return add(doomed(t.Key, "", e.Size))
		}
		n := 0
		err := t.WalkVersions(ctx, false, func(v place.Version) error {
			if v.Name != t.Key {
				return errOther
			}
			n++
			return add(doomed(v.Name, v.ID, v.Size))
		})
		if errors.Is(err, errOther) { // longer keys follow
			err = nil
		}
		if err == nil && n == 0 {
			return errs.New(errs.NotFound, "rm", t.String(), "there is no version of such an object").
				WithFix("list what is there with nebulaio ls --versions")
		}
		return err
	})
}

// errOther ends a walk at the first key that is not the wanted one.
var errOther = errors.New("another key")

// mostCounted is the most objects that a refusal counts.
const mostCounted = 10_000

// refuse returns the error of a prefix or bucket without --recursive, with the number of its objects.
func (r *rmRun) refuse(ctx context.Context, t place.Tree) error {
	n := 0
	err := t.Walk(ctx, func(place.Entry) error {
		if n++; n > mostCounted {
			return errOther
		}
		return nil
	})
	if err != nil && !errors.Is(err, errOther) {
		return err
	}
	count := plural(n, "object")
	if n > mostCounted {
		count = fmt.Sprintf("more than %d objects", mostCounted)
	}
	what := "is a prefix"
	if t.Key == "" {
		what = "is a bucket"
	}
	return errs.New(errs.Invalid, "rm", t.String(),
		fmt.Sprintf("%s with %s; expected the name of one object", what, count)).
		WithFix("to delete all of them, give --recursive; to see them first, give --recursive --dry-run")
}

func doomed(key, version string, size int64) place.Doomed {
	return place.Doomed{Doomed: s3.Doomed{Key: key, Version: version}, Size: size}
}

// removing deletes what walk adds.
func (r *rmRun) removing(ctx context.Context, t place.Tree, walk func(add func(place.Doomed) error) error) error {
	line := func(d place.Doomed) removedJSON {
		return removedJSON{Action: "delete", Name: place.Place{Bucket: t.Bucket, Key: d.Key, Profile: t.Profile}.String(),
			Version: d.Version, Size: d.Size, DryRun: r.f.dryRun}
	}
	if r.f.dryRun {
		return walk(func(d place.Doomed) error { return r.removed(line(d), nil) })
	}
	var failed error
	removal := place.NewRemoval(ctx, t.Client, t.Bucket, func(d place.Doomed, err error) {
		if e := r.removed(line(d), err); failed == nil {
			failed = e
		}
	})
	err := walk(removal.Add)
	if e := removal.Close(err != nil); err == nil {
		err = e
	}
	return errors.Join(err, failed)
}

// removed counts and prints one object.
func (r *rmRun) removed(line removedJSON, err error) error {
	switch {
	case err == nil:
		r.sum.Deleted++
		r.sum.Bytes += line.Size
	default:
		r.sum.Failed++
		line.Error = errs.MessageOf(err)
		if r.first == nil {
			r.first = err
		}
	}
	r.p.say(fmt.Sprintf("deleted %s, %s", plural(int(r.sum.Deleted), "object"), units.Bytes(r.sum.Bytes)))
	switch {
	case r.f.asJSON:
		return r.json.add(line)
	case r.f.dryRun:
		r.a.printText(func(w io.Writer) {
			version := ""
			if line.Version != "" {
				version = "  " + line.Version
			}
			fmt.Fprintf(w, "would delete %s%s\n", printable(line.Name), printable(version))
		})
	}
	return nil
}
