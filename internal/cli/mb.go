// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/place"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// bucketsJSON is the result of mb and rb.
type bucketsJSON struct {
	Buckets []string `json:"buckets"`           // URLs of those that were made or removed
	Deleted int64    `json:"deleted,omitempty"` // versions that rb --force deleted
	Aborted int64    `json:"aborted,omitempty"` // unfinished uploads that rb --force ended
}

func newMb(a *app) *cobra.Command {
	var objects objectFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "mb s3://BUCKET...",
		Short: "Make buckets",
		Long: `Make buckets.

The bucket is made in the region of --region, AWS_REGION or the profile. A bucket
that exists already is an error.`,
		Args: places(1, 0, "one or more names such as s3://BUCKET"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			return objects.withClients(ctx, a, func(c *place.Clients) error {
				r := bucketsJSON{Buckets: []string{}}
				err := eachBucket(ctx, c, "mb", args, func(t place.Tree) error {
					err := t.Client.Admin().CreateBucket(ctx, t.Bucket)
					if errors.Is(err, fs.ErrExist) {
						return &errs.Error{Kind: errs.KindOf(err), Op: "mb", Name: t.String(), Err: err,
							Fix: "choose another name; nebulaio ls lists your buckets"}
					}
					if err == nil {
						r.Buckets = append(r.Buckets, t.String())
					}
					return err
				})
				if err != nil {
					return err
				}
				return a.printResult(asJSON, r, func(w io.Writer) {
					for _, name := range r.Buckets {
						field(w, "made", "%s", printable(name))
					}
				})
			})
		}),
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as one JSON object")
	objects.defineServer(cmd.Flags())
	return cmd
}

// eachBucket opens the buckets of all names before it calls do with the first.
func eachBucket(ctx context.Context, c *place.Clients, op string, names []string, do func(place.Tree) error) error {
	var all []place.Tree
	for _, name := range names {
		t, err := openTree(ctx, c, name)
		if err != nil {
			return err
		}
		if !t.Remote() || t.Bucket == "" || t.Key != "" {
			return errs.New(errs.Invalid, op, name, "is no bucket; expected s3://BUCKET").
				WithFix("name the bucket alone")
		}
		all = append(all, t)
	}
	for _, t := range all {
		if err := do(t); err != nil {
			return err
		}
	}
	return nil
}

func newRb(a *app) *cobra.Command {
	var objects objectFlags
	var force, asJSON bool
	cmd := &cobra.Command{
		Use:   "rb s3://BUCKET...",
		Short: "Remove buckets",
		Long: `Remove buckets.

A bucket must be empty. With --force, the command first deletes all objects of the
bucket with all their versions, and ends all unfinished uploads.`,
		Args: places(1, 0, "one or more names such as s3://BUCKET"),
		RunE: a.run(func(ctx context.Context, args []string) error {
			return objects.withClients(ctx, a, func(c *place.Clients) error {
				r := bucketsJSON{Buckets: []string{}}
				p := &sharedProgress{p: a.startWork("removing", asJSON)}
				defer p.clear()
				err := eachBucket(ctx, c, "rb", args, func(t place.Tree) error { return r.remove(ctx, t, force, p) })
				p.clear()
				if err != nil {
					return err
				}
				return a.printResult(asJSON, r, func(w io.Writer) {
					for _, name := range r.Buckets {
						field(w, "removed", "%s", printable(name))
					}
					if force {
						field(w, "deleted", "%s, %s", plural(int(r.Deleted), "version"), plural(int(r.Aborted), "unfinished upload"))
					}
				})
			})
		}),
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&force, "force", false, "first delete all objects, their versions and unfinished uploads")
	fs.BoolVar(&asJSON, "json", false, "print the result as one JSON object")
	objects.defineServer(fs)
	return cmd
}

// remove removes one bucket, with its content if force is set.
func (r *bucketsJSON) remove(ctx context.Context, t place.Tree, force bool, p *sharedProgress) error {
	if force {
		if err := r.empty(ctx, t, p); err != nil {
			return err
		}
	}
	err := t.Client.Admin().DeleteBucket(ctx, t.Bucket)
	if s3.CodeOf(err) == "BucketNotEmpty" {
		return &errs.Error{Kind: errs.Invalid, Op: "rb", Name: t.String(), Err: err,
			Fix: "to delete its objects, versions and unfinished uploads too, give --force"}
	}
	if err == nil {
		r.Buckets = append(r.Buckets, t.String())
	}
	return err
}

// empty deletes all versions and unfinished uploads of a bucket.
func (r *bucketsJSON) empty(ctx context.Context, t place.Tree, p *sharedProgress) error {
	var first error
	removal := place.NewRemoval(ctx, t.Client, t.Bucket, func(_ place.Doomed, err error) {
		if err != nil {
			if first == nil {
				first = err
			}
			return
		}
		r.Deleted++
		p.say(fmt.Sprintf("deleted %s", plural(int(r.Deleted), "version")))
	})
	err := t.WalkVersions(ctx, true, func(v place.Version) error { return removal.Add(doomed(v.Name, v.ID, v.Size)) })
	if unsupported(err) { // a server without versions
		err = t.Walk(ctx, func(e place.Entry) error { return removal.Add(doomed(e.Name, "", e.Size)) })
	}
	if e := removal.Close(err != nil); err == nil {
		err = e
	}
	if err == nil {
		err = first
	}
	if err != nil {
		return err
	}
	return r.abort(ctx, t)
}

// unsupported reports whether a server refused a request that it does not know.
func unsupported(err error) bool {
	var f *s3.Fault
	return errors.As(err, &f) && (f.Status == http.StatusNotImplemented || f.Status == http.StatusMethodNotAllowed ||
		f.Code == "NotImplemented")
}

// abort ends all unfinished uploads of a bucket.
func (r *bucketsJSON) abort(ctx context.Context, t place.Tree) error {
	ended := map[s3.Unfinished]bool{}
	for {
		all, err := t.Client.Admin().ListUnfinished(ctx, t.Bucket, "")
		if err != nil {
			if unsupported(err) {
				return nil
			}
			return err
		}
		fresh := 0
		for _, u := range all {
			if ended[u] {
				continue
			}
			if err := t.Client.Admin().AbortUnfinished(ctx, t.Bucket, u); err != nil {
				return err
			}
			ended[u] = true
			fresh++
			r.Aborted++
		}
		if fresh == 0 { // none are left, or the server lists those that have ended
			return nil
		}
	}
}
