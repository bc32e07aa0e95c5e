// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// publication is the new file of a save until it is published at its path.
type publication struct {
	path      string           // path that the caller gave
	draft     *vfs.Replacement // nil if no file was begun
	sums      *checksum.Sums   // nil if no checksums are computed
	releasing *releases
	// onStep is called before each step, in tests. If it returns an error, the save fails.
	onStep func(step string) error

	mu    sync.Mutex // guards steps
	steps []report.Stage

	retired checksum.ID // version whose sums were set aside
	commit  bool        // the file has its name
	durable bool
	notes   []string
}

// begin creates the new file, with size bytes.
func (p *publication) begin(size int64) error {
	return p.step("reserve", func() (err error) {
		p.draft, err = vfs.Create(p.path, size)
		if errors.Is(err, syscall.ENOSPC) {
			// Disk space of files that were just replaced may soon be free.
			p.releasing.Wait()
			p.draft, err = vfs.Create(p.path, size)
		}
		return err
	})
}

// step runs one step of a save and records its time. In tests, onStep can stop the save before the step.
func (p *publication) step(name string, f func() error) error {
	if p.onStep != nil {
		if err := p.onStep(name); err != nil {
			return err
		}
	}
	start := time.Now()
	err := f()
	p.mu.Lock()
	defer p.mu.Unlock()
	d := time.Since(start).Seconds()
	for i := range p.steps {
		if p.steps[i].Stage == name {
			p.steps[i].Busy += d
			return err
		}
	}
	p.steps = append(p.steps, report.Stage{Stage: name, Busy: d})
	return err
}

// publish makes the written file durable and renames it to its path, with its sidecar. checksum/pending.go explains
// the order of the steps and why a crash after any step is safe. If an error occurs before the rename, the old file
// and its sidecar are unchanged.
func (p *publication) publish(ctx context.Context) error {
	d := p.draft
	var id checksum.ID
	err := p.step("sync", func() error {
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
		return &errs.Error{Kind: errs.Cancelled, Op: "save", Name: p.path, Err: context.Cause(ctx)}
	}
	if !dir.Locked() {
		p.notes = append(p.notes,
			"the file system does not lock directories: do not let two programs save to the same name at once")
	}
	undo, err := p.putSumsBeside(dir, id)
	if err == nil {
		err = p.step("rename", func() error {
			release, err := d.Publish()
			p.releasing.Go(release)
			return err
		})
	}
	if err != nil {
		undo()
		return err
	}
	p.commit = true
	if err := p.step("sync_directory", dir.Sync); err != nil {
		return &errs.Error{Kind: errs.IO, Op: "save", Name: p.path,
			Msg: "the new file is in place, but may not be after a power loss", Err: err}
	}
	p.durable = !d.FS().Memory && dir.Synced()
	if !dir.Synced() {
		p.notes = append(p.notes,
			d.FS().Name+" cannot sync a directory: the content is durable, when the name is only the file system knows")
	}
	p.settleSums(dir, id)
	return nil
}

// putSumsBeside does the steps for the sidecar that come before the rename of the file. It finishes the work of
// killed saves, and writes the new sums or sets the old ones aside. undo reverts these steps.
func (p *publication) putSumsBeside(dir *vfs.Dir, id checksum.ID) (undo func(), err error) {
	undo = func() {}
	target := p.draft.Target()
	if dir.Locked() {
		if err = p.step("sweep_checksums", p.sweepSums); err != nil {
			return undo, err
		}
	}
	changed := true
	if p.sums != nil {
		undo = func() { checksum.Discard(target, id) }
		err = p.step("write_checksums", func() error { return p.sums.WritePending(target, id) })
	} else {
		err = p.step("retire_checksums", func() error {
			old, moved, err := checksum.Retire(target)
			if changed = moved; moved {
				p.retired = old
				undo = func() { _ = checksum.Promote(target, old) }
			}
			return err
		})
	}
	if err == nil && changed {
		err = p.step("sync_directory", dir.Sync)
	}
	if err == nil && p.draft.Linked() {
		err = p.step("forget_checksums", p.forgetLink)
	}
	return undo, err
}

// sweepSums finishes the work that killed saves to this directory began.
func (p *publication) sweepSums() error {
	dir := filepath.Dir(p.draft.Target())
	var left []string
	err := vfs.EachName(dir, func(name string) {
		if checksum.IsPending(name) {
			left = append(left, name)
		}
	})
	if err == nil {
		_, err = checksum.Sweep(dir, left)
	}
	return errs.Wrap("save", p.path, err)
}

// forgetLink removes a sidecar beside a link to the file. This sidecar belongs to the old version, and its name does
// not contain a version.
func (p *publication) forgetLink() error {
	there, err := checksum.Forget(p.draft.Path())
	if err != nil || !there {
		return err
	}
	dir, err := vfs.OpenDir(filepath.Dir(p.draft.Path()))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// settleSums renames the sidecar to its plain name, or removes the sidecar that was set aside. The file is in place
// and already verifies. So an error becomes a note, and the next save to this directory repairs it.
func (p *publication) settleSums(dir *vfs.Dir, id checksum.ID) {
	if p.sums == nil && p.retired == (checksum.ID{}) {
		return
	}
	target := p.draft.Target()
	err := p.step("rename_checksums", func() error {
		switch {
		case p.sums == nil:
			checksum.Discard(target, p.retired)
			return nil
		case !checksum.Current(target, id):
			checksum.Discard(target, id) // without locks, another save may have published its file
			return nil
		}
		return checksum.Promote(target, id)
	})
	if err = errors.Join(err, p.step("sync_directory", dir.Sync)); err != nil {
		p.notes = append(p.notes,
			"the file is in place and durable; its checksums lie beside it under a name that only verified loads and the "+
				"next save know: "+err.Error())
	}
}

// describe adds the result of the publication to the report.
func (p *publication) describe(f *facts, storage vfs.Storage, route report.Route) {
	d := p.draft
	ok, why := d.Direct()
	f.files = append(f.files, report.File{Path: d.Target(), FS: storage.FS.Name, Size: d.Size(), Direct: ok,
		Unproven: unprovenWrites(storage)})
	if why != nil && route != report.RouteBuffered {
		f.refuse("direct", d.Path(), why.Reason, why.Fix)
	}
	if s := d.Sparse(); s != nil {
		f.refuse("reserved space", d.Path(), s.Reason, s.Fix)
	}
	f.save.Durable, f.save.Replaced, f.save.Reserved = p.durable, d.Replaces() && p.commit, d.Sparse() == nil
	if p.sums != nil && p.commit {
		f.save.Checksums, f.save.ChecksumBlocks = checksum.Path(d.Target()), len(p.sums.Blocks)
	}
	if d.Linked() {
		f.note(d.Path() + " is a link: the file that it leads to was written")
	}
	if n := d.Swept(); n > 0 {
		f.note(fmt.Sprintf("%d unfinished files that killed saves had left in the directory were removed", n))
	}
	if d.FS().Memory && p.commit {
		f.note(d.FS().Name + " lives in memory: the file does not survive a restart of the machine")
	}
	f.notes = append(append(f.notes, d.Notes()...), p.notes...)
}
