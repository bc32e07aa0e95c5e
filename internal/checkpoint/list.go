// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// looking is the number of checkpoints that are examined at the same time.
const looking = 8

// Target is a folder of checkpoints or one checkpoint. If File is not empty, the target is a checkpoint in this single
// file of the folder.
type Target struct {
	Folder Folder
	File   string
}

// shown returns the name of the target for messages.
func (t Target) shown() string { return t.Folder.Shown(t.File) }

// List returns the checkpoints of a target, sorted by step, then by time. If all is not set, List leaves out
// checkpoints that are not complete. If the target does not exist, the error is of kind NotFound. A folder without
// checkpoints gives an empty list.
func List(ctx context.Context, t Target, all bool) ([]Checkpoint, error) {
	found, err := find(ctx, t)
	if err != nil {
		return nil, err
	}
	out := []Checkpoint{}
	for _, s := range found {
		if s.Complete || all {
			out = append(out, s.Checkpoint)
		}
	}
	return out, nil
}

// find examines the target and the folders directly below it.
func find(ctx context.Context, t Target) ([]*state, error) {
	if t.File != "" {
		s, err := t.one(ctx)
		if err != nil {
			return nil, err
		}
		return []*state{s}, nil
	}
	self, err := look(ctx, t.Folder, ".")
	if err != nil {
		return nil, err
	}
	var found []*state
	if self.Format != "" {
		found = append(found, self)
	}
	var mu sync.Mutex
	var group sync.WaitGroup
	var first error
	turns := make(chan struct{}, looking)
	for _, e := range self.entries {
		if !mayHold(self, e) {
			continue
		}
		turns <- struct{}{}
		group.Go(func() {
			defer func() { <-turns }()
			s, err := child(ctx, t.Folder, e)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errs.Is(err, errs.NotFound): // removed since the folder was listed
			case errs.Is(err, errs.Permission):
				found = append(found, closed(t.Folder, e, err))
			case err != nil:
				first = cmp.Or(first, err)
			case s.Format != "" || s.empty && s.Step != nil:
				found = append(found, s)
			}
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return nil, &errs.Error{Kind: errs.Cancelled, Op: "list checkpoints", Name: t.shown(), Err: context.Cause(ctx)}
	}
	if first != nil {
		return nil, first
	}
	slices.SortFunc(found, byAge)
	return found, nil
}

// mayHold reports whether an entry of a folder may be a checkpoint. If the folder is a checkpoint itself, only folders
// that are named as steps are.
func mayHold(self *state, e Entry) bool {
	switch _, step := stepOf(e.Name); {
	case e.Kind == KindFolder:
		return !isPruned(e.Name) && (self.Format == "" || step)
	case e.Kind == KindFile:
		_, summed := self.entries[checksum.Path(e.Name)]
		return self.Format == "" && isTorchFile(e.Name) && summed
	}
	return false
}

func child(ctx context.Context, f Folder, e Entry) (*state, error) {
	if e.Kind == KindFile {
		return lookAtFile(ctx, f, e)
	}
	s, err := look(ctx, f.Folder(e.Name), e.Name)
	if err == nil && s.empty {
		s.changed = e.Time // a save may have made the directory just now
	}
	return s, err
}

// closed describes a folder that may not be read. It may hold a checkpoint, and must not be removed.
func closed(f Folder, e Entry, err error) *state {
	s := &state{folder: f.Folder(e.Name), metadata: true, changed: e.Time}
	s.Name, s.Path, s.Time, s.Reason = e.Name, f.Shown(e.Name), e.Time, errs.MessageOf(err)
	if step, ok := stepOf(e.Name); ok {
		s.Step = &step
	}
	return s
}

// byAge orders checkpoints by step, then by time. Those without a step come first.
func byAge(a, b *state) int {
	step := func(s *state) int64 {
		if s.Step == nil {
			return -1
		}
		return *s.Step
	}
	return cmp.Or(cmp.Compare(step(a), step(b)), a.Time.Compare(b.Time), cmp.Compare(a.Name, b.Name))
}

// one examines the target itself as a checkpoint.
func (t Target) one(ctx context.Context) (*state, error) {
	if t.File == "" {
		return look(ctx, t.Folder, ".")
	}
	all, err := entriesByName(ctx, t.Folder)
	if err != nil {
		return nil, err
	}
	e, ok := all[t.File]
	if !ok {
		return nil, errs.New(errs.NotFound, "open checkpoint", t.shown(), "there is no such file")
	}
	if e.Kind != KindFile {
		return nil, errs.New(errs.Invalid, "open checkpoint", t.shown(), "is not a regular file, or a link that leads away")
	}
	return lookAtFile(ctx, t.Folder, e)
}
