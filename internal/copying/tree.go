// SPDX-License-Identifier: Apache-2.0

package copying

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/place"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// TreeOptions say which files of a tree are copied.
type TreeOptions struct {
	// Filter chooses keys on both sides; nil chooses every key. A key that it leaves out is neither copied nor deleted.
	Filter *place.Filter
	// Sync leaves out files that the destination has already, with the same size and at least the same modification time.
	Sync bool
	// Checksum makes Sync compare the content instead of the modification time. The content is compared by the checksum
	// that a server keeps, or by an ETag that is an MD5. If neither exists, the file is copied.
	Checksum bool
	// Delete removes files of the destination that the source does not have, after everything was copied without an
	// error.
	Delete bool
	// DryRun copies and deletes nothing.
	DryRun bool
	// Each, if not nil, is told of every file that was copied or deleted, or that would be. Calls do not overlap.
	Each func(Action)
}

// Action is one step of a copy of a tree.
type Action struct {
	Action      string `json:"action"` // "copy", "delete", or "skip" for a name that cannot be copied
	Source      string `json:"source,omitempty"`
	Destination string `json:"destination"`
	Bytes       int64  `json:"bytes"`
	Why         string `json:"why,omitempty"` // why it is copied, deleted or skipped
	Error       string `json:"error,omitempty"`
}

// Summary says what a copy of a tree did.
type Summary struct {
	Copied   int64            `json:"copied"`
	Bytes    int64            `json:"bytes"` // of the copied files
	Moved    int64            `json:"moved"`
	Resumed  int64            `json:"resumed"`
	Same     int64            `json:"same"` // files that were left out because the destination has them
	Deleted  int64            `json:"deleted"`
	Skipped  int64            `json:"skipped"` // markers of folders, and files that are no regular files
	Failed   int64            `json:"failed"`
	Verified map[string]int64 `json:"verified"` // number of files by what was compared; see Result
	Ways     map[string]int64 `json:"ways"`     // number of files by the way of their bytes; see Result
	Notes    []string         `json:"notes,omitempty"`
}

// mostErrors limits the errors of a tree that are returned.
const mostErrors = 10

// tree is a copy of many files.
type tree struct {
	c        *Copier
	o        TreeOptions
	from, to place.Tree
	folder   *folder // nil: the destination is a bucket, or nothing is written

	mu     sync.Mutex
	sum    Summary
	errs   []error
	notes  map[string]bool
	cancel context.CancelCauseFunc
}

// item is one file to copy.
type item struct {
	e    place.Entry
	had  *place.Entry // what the destination has; nil: nothing
	why  string
	deep bool // the content has to be compared first
}

// CopyTree copies the files below from to the place to. A file that fails does not stop the others, except if the disk
// is full. The error then names the first files that failed, and the Summary counts the rest.
func (c *Copier) CopyTree(ctx context.Context, from, to place.Tree, o TreeOptions) (Summary, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t := &tree{c: c, o: o, from: from, to: to, cancel: cancel, notes: map[string]bool{}}
	t.sum.Verified, t.sum.Ways = map[string]int64{}, map[string]int64{}
	for _, p := range []place.Tree{from, to} {
		if p.Client != nil {
			c.gate.watch(p.Client)
		}
	}
	if err := t.distinct(); err != nil {
		return t.sum, err
	}
	if !to.Remote() && !o.DryRun {
		var err error
		if t.folder, err = openFolder(to.Path); err != nil {
			return t.sum, err
		}
	}
	gone, err := t.copyAll(ctx)
	if t.folder != nil {
		err = errors.Join(err, t.folder.close())
	}
	if err == nil {
		err = t.failures()
	}
	if err == nil {
		err = t.deleteAll(ctx, gone)
	}
	if err == nil {
		err = t.failures()
	}
	return t.sum, err
}

// distinct refuses a destination that lies inside the source, or is the source.
func (t *tree) distinct() error {
	bad := errs.New(errs.Invalid, "copy", t.from.String(),
		"the destination "+t.to.String()+" is the source, or inside it").
		WithFix("name another destination")
	if t.from.Remote() != t.to.Remote() {
		return nil
	}
	if t.from.Remote() {
		a, b := t.from.AsFolder(), t.to.AsFolder()
		if t.from.Client.Endpoint() == t.to.Client.Endpoint() && a.Bucket == b.Bucket && len(b.Key) >= len(a.Key) &&
			b.Key[:len(a.Key)] == a.Key {
			return bad
		}
		return nil
	}
	a, err1 := filepath.Abs(t.from.Path)
	b, err2 := filepath.Abs(t.to.Path)
	if rel, err := filepath.Rel(a, b); err1 == nil && err2 == nil && err == nil && filepath.IsLocal(rel) {
		return bad
	}
	return nil
}

// copyAll walks the source and copies what is to be copied. It returns the files of the destination that the source
// does not have.
func (t *tree) copyAll(ctx context.Context) ([]place.Entry, error) {
	items := make(chan item, 1024)
	var group sync.WaitGroup
	for range t.c.o.Concurrency {
		group.Go(func() {
			for i := range items {
				if ctx.Err() == nil {
					t.one(ctx, i)
				}
			}
		})
	}
	gone, err := t.walk(ctx, items)
	close(items)
	group.Wait()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return gone, err
}

// walk lists both places and sends what is to be copied.
func (t *tree) walk(ctx context.Context, items chan<- item) (gone []place.Entry, err error) {
	send := func(i item) error {
		t.c.expect(i.e.Size)
		select {
		case items <- i:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	t.from.Skipped = func(path, why string) { t.skip(path, why) }
	t.to.Skipped = func(string, string) {}
	from := t.o.Filter.Of(t.from)
	if !t.o.Sync {
		return nil, from.Walk(ctx, func(e place.Entry) error {
			if Ours(e.Key) {
				return nil
			}
			if e.Marker() && e.Size == 0 {
				t.skip(e.Name, "it is an empty marker of a folder")
				return nil
			}
			return send(item{e: e, why: "asked for"})
		})
	}
	to := t.o.Filter.Of(t.to)
	if !t.to.Remote() {
		if _, err := os.Stat(t.to.Path); errors.Is(err, os.ErrNotExist) {
			to = nowhere{}
		}
	}
	err = place.Merge(ctx, from, to, func(p place.Pair) error {
		switch {
		case Ours(p.Key()):
		case p.A == nil:
			if t.o.Delete {
				gone = append(gone, *p.B)
			}
		default:
			i := item{e: *p.A, had: p.B}
			if i.why, i.deep = t.differ(p); i.why != "" || i.deep {
				return send(i)
			}
			t.mu.Lock()
			t.sum.Same++
			t.mu.Unlock()
		}
		return nil
	})
	return gone, err
}

// nowhere is a directory that does not exist yet.
type nowhere struct{}

func (nowhere) Walk(context.Context, func(place.Entry) error) error { return nil }

// differ tells from the listings why a file has to be copied. It is empty if the file need not be copied; deep means
// that the content has to be compared.
func (t *tree) differ(p place.Pair) (why string, deep bool) {
	switch {
	case p.B == nil:
		return "new", false
	case p.A.Size != p.B.Size:
		return fmt.Sprintf("size %d instead of %d", p.A.Size, p.B.Size), false
	case t.o.Checksum:
		return "", true
	case p.A.Modified.Truncate(time.Second).After(p.B.Modified): // listings have whole seconds
		return "newer", false
	}
	return "", false
}

func (t *tree) skip(name, why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum.Skipped++
	t.tell(Action{Action: "skip", Source: name, Why: why})
}

// tell reports an action; the lock is held.
func (t *tree) tell(a Action) {
	if t.o.Each != nil {
		t.o.Each(a)
	}
}

// finish counts a copy that has ended.
func (t *tree) finish(i item, dst string, r Result, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := Action{Action: "copy", Source: t.sourceName(i.e), Destination: dst, Bytes: i.e.Size, Why: i.why}
	if err != nil {
		t.failed(err)
		a.Error = err.Error()
	} else {
		t.sum.Copied++
		t.sum.Bytes += i.e.Size
		t.sum.Moved += r.Moved
		t.sum.Resumed += r.Resumed
		t.sum.Verified[r.Verified]++
		t.sum.Ways[r.Way]++
		for _, n := range r.Notes {
			if !t.notes[n] && len(t.notes) < mostErrors {
				t.notes[n] = true
				t.sum.Notes = append(t.sum.Notes, n)
			}
		}
	}
	t.tell(a)
}

// failed records an error of one file; the lock is held.
func (t *tree) failed(err error) {
	t.sum.Failed++
	if len(t.errs) < mostErrors {
		t.errs = append(t.errs, err)
	}
	if errors.Is(err, syscall.ENOSPC) {
		t.cancel(err)
	}
}

// failures returns one error for all files that failed.
func (t *tree) failures() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.sum.Failed == 0:
		return nil
	case t.sum.Failed == 1:
		return t.errs[0]
	}
	return &errs.Error{Kind: errs.KindOf(t.errs[0]), Op: "copy", Name: t.from.String(),
		Msg: fmt.Sprintf("%d files failed, the first of them", t.sum.Failed), Err: errors.Join(t.errs...),
		Fix: errs.FixOf(t.errs[0])}
}

func (t *tree) sourceName(e place.Entry) string {
	if t.from.Remote() {
		return s3.URL(t.from.Bucket, e.Name)
	}
	return e.Name
}

// one copies one file.
func (t *tree) one(ctx context.Context, i item) {
	dst, err := t.to.Join(i.e.Key)
	if err == nil && i.deep {
		var same bool
		if same, err = t.same(ctx, i); same && err == nil {
			t.c.total.Add(-i.e.Size)
			t.c.known.Add(-1)
			t.mu.Lock()
			t.sum.Same++
			t.mu.Unlock()
			return
		}
		i.why = "content differs"
	}
	var r Result
	switch {
	case err != nil:
	case t.o.DryRun:
		r.Verified, r.Way = "nothing", "none"
	case !t.from.Remote() && t.to.Remote():
		r, err = t.upload(ctx, i, dst)
	case t.from.Remote() && t.to.Remote():
		r, err = t.relay(ctx, i, dst)
	case i.e.Size <= whole && t.from.Remote():
		err = t.small(ctx, i, dst)
		if err == nil {
			return // finish is called when the file has its name
		}
	default:
		r, err = t.large(ctx, i)
	}
	t.finish(i, dst.String(), r, err)
}

func (t *tree) upload(ctx context.Context, i item, dst place.Place) (r Result, err error) {
	src, err := openFile(i.e.Name)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, src.close()) }()
	return t.c.upload(ctx, src, Remote{Client: t.to.Client, Bucket: dst.Bucket, Key: dst.Key})
}

func (t *tree) relay(ctx context.Context, i item, dst place.Place) (Result, error) {
	src, err := t.c.openObject(ctx, Remote{Client: t.from.Client, Bucket: t.from.Bucket, Key: i.e.Name})
	if err != nil {
		return Result{}, err
	}
	return t.c.relay(ctx, src, Remote{Client: t.to.Client, Bucket: dst.Bucket, Key: dst.Key})
}

// large copies a large object, or a file, through a draft.
func (t *tree) large(ctx context.Context, i item) (r Result, err error) {
	var src source
	if t.from.Remote() {
		src, err = t.c.openObject(ctx, Remote{Client: t.from.Client, Bucket: t.from.Bucket, Key: i.e.Name})
	} else {
		src, err = openFile(i.e.Name)
	}
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, src.close()) }()
	to, err := t.folder.large(i.e.Key)
	if err != nil {
		return r, err
	}
	defer to.dir.Close()
	return t.c.download(ctx, src, to)
}

// deleteAll removes files of the destination that the source does not have.
func (t *tree) deleteAll(ctx context.Context, gone []place.Entry) error {
	for _, e := range gone {
		if cause := context.Cause(ctx); cause != nil {
			return errs.Wrap("delete below", t.to.String(), cause)
		}
		a := Action{Action: "delete", Destination: e.Name, Bytes: e.Size, Why: "the source does not have it"}
		var err error
		switch {
		case t.to.Remote():
			a.Destination = s3.URL(t.to.Bucket, e.Name)
			if !t.o.DryRun {
				err = t.to.Client.Delete(ctx, t.to.Bucket, e.Name)
			}
		case e.Linked: // what a link leads to may not be ours
			t.skip(e.Name, "it is a link, or below one")
			continue
		case !t.o.DryRun:
			err = errs.Wrap("delete", e.Name, errs.WithoutPath(os.Remove(e.Name)))
		}
		t.mu.Lock()
		if err != nil {
			a.Error = err.Error()
			t.failed(err)
		} else {
			t.sum.Deleted++
		}
		t.tell(a)
		t.mu.Unlock()
	}
	return nil
}
