// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// releases gives back the space of files that were replaced, behind the saves
// that did. Any save may wait for those of the others while more begin, which a
// sync.WaitGroup does not allow. The zero value is ready.
type releases struct {
	mu      sync.Mutex
	running map[chan struct{}]struct{}
}

// Go runs f in the background.
func (r *releases) Go(f func()) {
	done := make(chan struct{})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running == nil {
		r.running = map[chan struct{}]struct{}{}
	}
	r.running[done] = struct{}{}
	go func() {
		f()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.running, done)
		close(done)
	}()
}

// Wait returns when all that has begun before is over.
func (r *releases) Wait() {
	r.mu.Lock()
	all := slices.Collect(maps.Keys(r.running))
	r.mu.Unlock()
	for _, done := range all {
		<-done
	}
}

// step does one step of a save, timed; in tests it can be cut off before.
func (sv *save) step(e *Engine, name string, f func() error) error {
	if e.onStep != nil {
		if err := e.onStep(name); err != nil {
			return err
		}
	}
	start := time.Now()
	err := f()
	sv.mu.Lock()
	defer sv.mu.Unlock()
	d := time.Since(start).Seconds()
	for i := range sv.steps {
		if sv.steps[i].Stage == name {
			sv.steps[i].Busy += d
			return err
		}
	}
	sv.steps = append(sv.steps, report.Stage{Stage: name, Busy: d})
	return err
}

// publish makes the written file durable and gives it its name, and its sums
// theirs; the order and why it holds at every cut is in checksum/pending.go.
// Before the file has its name an error leaves everything as it was.
func (sv *save) publish(ctx context.Context, e *Engine) error {
	d := sv.draft
	var id checksum.ID
	err := sv.step(e, "sync", func() error {
		sealed, err := d.Seal()
		id = checksum.ID(sealed)
		return err
	})
	if err != nil {
		return err
	}
	dir, err := vfs.LockDir(ctx, filepath.Dir(d.Target()))
	if err != nil {
		return err
	}
	defer dir.Close()
	if ctx.Err() != nil {
		return &errs.Error{Kind: errs.Cancelled, Op: "save", Name: sv.req.Path, Err: context.Cause(ctx)}
	}
	if !dir.Locked() {
		sv.notes = append(sv.notes, "the file system does not lock directories: do not let two programs save to the same name at once")
	}
	undo, err := sv.putSumsBeside(e, dir, id)
	if err == nil {
		err = sv.step(e, "rename", func() error {
			release, err := d.Publish()
			e.releasing.Go(release)
			return err
		})
	}
	if err != nil {
		undo()
		return err
	}
	sv.commit = true
	if err := sv.step(e, "sync_directory", dir.Sync); err != nil {
		return &errs.Error{Kind: errs.IO, Op: "save", Name: sv.req.Path, Msg: "the new file is in place, but may not be after a power loss", Err: err}
	}
	sv.durable = !d.FS().Memory && dir.Synced()
	if !dir.Synced() {
		sv.notes = append(sv.notes, d.FS().Name+" cannot sync a directory: the content is durable, when the name is only the file system knows")
	}
	sv.settleSums(e, dir, id)
	return nil
}

// putSumsBeside does what comes before the file has its name: what killed saves
// left is finished, and the new sums are written, or the old ones set aside.
// undo takes that back.
func (sv *save) putSumsBeside(e *Engine, dir *vfs.Dir, id checksum.ID) (undo func(), err error) {
	undo = func() {}
	target := sv.draft.Target()
	if dir.Locked() {
		if err = sv.step(e, "sweep_checksums", sv.sweepSums); err != nil {
			return undo, err
		}
	}
	changed := true
	if sv.sums != nil {
		undo = func() { checksum.Discard(target, id) }
		err = sv.step(e, "write_checksums", func() error { return sv.sums.WritePending(target, id) })
	} else {
		err = sv.step(e, "retire_checksums", func() error {
			old, moved, err := checksum.Retire(target)
			if changed = moved; moved {
				sv.retired = old
				undo = func() { _ = checksum.Promote(target, old) }
			}
			return err
		})
	}
	if err == nil && changed {
		err = sv.step(e, "sync_directory", dir.Sync)
	}
	if err == nil && sv.draft.Linked() {
		err = sv.step(e, "forget_checksums", sv.forgetLink)
	}
	return undo, err
}

// sweepSums finishes what killed saves to this directory began.
func (sv *save) sweepSums() error {
	dir := filepath.Dir(sv.draft.Target())
	var left []string
	err := vfs.EachName(dir, func(name string) {
		if checksum.IsPending(name) {
			left = append(left, name)
		}
	})
	if err == nil {
		_, err = checksum.Sweep(dir, left)
	}
	return errs.Wrap("save", sv.req.Path, err)
}

// forgetLink removes sums that lie beside a link to the file: they are of the
// old version, and nothing about the new one's identity is in their name.
func (sv *save) forgetLink() error {
	there, err := checksum.Forget(sv.draft.Path())
	if err != nil || !there {
		return err
	}
	dir, err := vfs.OpenDir(filepath.Dir(sv.draft.Path()))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// settleSums gives the sums their plain name, or removes those that were set
// aside. The file is in place and verifies already: what fails here is told in a
// note, and the next save to this directory makes it good.
func (sv *save) settleSums(e *Engine, dir *vfs.Dir, id checksum.ID) {
	if sv.sums == nil && sv.retired == (checksum.ID{}) {
		return
	}
	target := sv.draft.Target()
	err := sv.step(e, "rename_checksums", func() error {
		switch {
		case sv.sums == nil:
			checksum.Discard(target, sv.retired)
			return nil
		case !checksum.Current(target, id):
			checksum.Discard(target, id) // without locks another save may be in place
			return nil
		}
		return checksum.Promote(target, id)
	})
	if err = errors.Join(err, sv.step(e, "sync_directory", dir.Sync)); err != nil {
		sv.notes = append(sv.notes, "the file is in place and durable; its checksums lie beside it under a name that only verified loads and the next save know: "+err.Error())
	}
}
