// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// PruneOptions choose the checkpoints that Prune keeps. At least one of KeepLast and KeepEvery must be set.
type PruneOptions struct {
	// KeepLast is the number of newest complete checkpoints to keep.
	KeepLast int
	// KeepEvery keeps complete checkpoints with a step that is divisible by this number.
	KeepEvery int64
	// DryRun removes nothing.
	DryRun bool
}

// Pruned describes what Prune did, or would do, with one directory.
type Pruned struct {
	Name    string
	Path    string
	Step    *int64
	Bytes   int64
	Removed bool
	Reason  string // why the directory was kept or removed
}

// Pruning is the result of Prune.
type Pruning struct {
	All    []Pruned // sorted by step
	Bytes  int64    // of the removed files
	DryRun bool
}

func (o PruneOptions) check(shown string) error {
	bad := func(why string) error { return errs.New(errs.Invalid, "prune checkpoints", shown, why) }
	switch {
	case o.KeepLast < 0:
		return bad(fmt.Sprintf("keep_last is %d; expected 1 or more", o.KeepLast))
	case o.KeepEvery < 0:
		return bad(fmt.Sprintf("keep_every is %d; expected 1 or more", o.KeepEvery))
	case o.KeepLast == 0 && o.KeepEvery == 0:
		return bad("neither keep_last nor keep_every is given; expected one of them, or both")
	}
	return nil
}

// Prune removes checkpoints from a root. Prune looks only at directories that are named as steps, and keeps all others.
// Prune never removes the last complete checkpoint, a directory to which a save may still write, or a checkpoint that
// is damaged. A directory without .metadata that is older than the last complete checkpoint was left by a killed save,
// and is removed. If Prune is killed, each checkpoint is complete, or is no longer listed and is removed by the next
// Prune.
func Prune(ctx context.Context, root Folder, o PruneOptions) (*Pruning, error) {
	if err := o.check(root.Shown("")); err != nil {
		return nil, err
	}
	unlock, err := root.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	found, err := find(ctx, Target{Folder: root})
	if err != nil {
		return nil, err
	}
	out := &Pruning{DryRun: o.DryRun, All: []Pruned{}}
	if err := out.leftovers(ctx, root); err != nil {
		return nil, err
	}
	last := lastComplete(found)
	for _, v := range o.decide(found, last) {
		if v.Removed && !o.DryRun {
			if err := remove(ctx, root, &v, last); err != nil {
				return nil, err
			}
		}
		if v.Removed {
			out.Bytes += v.Bytes
		}
		out.All = append(out.All, v.Pruned)
	}
	return out, nil
}

// verdict is what becomes of one directory.
type verdict struct {
	Pruned
	state *state
}

// lastComplete returns the newest complete checkpoint that is named as a step, or nil if there is none.
func lastComplete(found []*state) *state {
	for _, s := range slices.Backward(found) {
		if _, ok := stepOf(s.Name); ok && s.Complete {
			return s
		}
	}
	return nil
}

// decide says which checkpoints stay. The checkpoints are sorted by step.
func (o PruneOptions) decide(found []*state, last *state) []verdict {
	var out []verdict
	complete := 0 // complete checkpoints that are newer
	for _, s := range slices.Backward(found) {
		v := verdict{state: s, Pruned: Pruned{Name: s.Name, Path: s.Path, Step: s.Step, Bytes: s.size()}}
		step, ok := stepOf(s.Name)
		switch {
		case !ok:
			v.Reason = "it is not named as a step"
		case s == last:
			complete++
			v.Reason = "it is the last complete checkpoint"
		case s.Complete:
			complete++
			v.Removed, v.Reason = o.rotated(step, complete)
		default:
			v.Removed, v.Reason = unfinished(s, step, last)
		}
		out = append(out, v)
	}
	slices.Reverse(out)
	return out
}

// rotated decides about a complete checkpoint that is not the last. The parameter `rank` is its number, counted from
// the newest.
func (o PruneOptions) rotated(step int64, rank int) (removed bool, reason string) {
	switch {
	case rank <= o.KeepLast:
		return false, fmt.Sprintf("it is one of the last %d", o.KeepLast)
	case o.KeepEvery > 0 && step%o.KeepEvery == 0:
		return false, fmt.Sprintf("its step is divisible by %d", o.KeepEvery)
	}
	return true, "it is older than those to keep"
}

// unfinished decides about a directory without a complete checkpoint.
func unfinished(s *state, step int64, last *state) (removed bool, reason string) {
	switch {
	case s.metadata:
		return false, "it has .metadata but is not complete: " + s.Reason
	case last == nil:
		return false, "there is no complete checkpoint yet"
	case step > *last.Step:
		return false, "a save may be running: its step is newer than the last complete checkpoint"
	case s.newer(last):
		return false, "a save may be running: its files are newer than the last complete checkpoint"
	}
	return true, "a killed save or prune left it: " + s.Reason
}

// size returns the bytes of all files in the directory.
func (s *state) size() int64 {
	var n int64
	for _, e := range s.entries {
		if e.Kind == KindFile {
			n += e.Size
		}
	}
	return n
}

// remove removes a directory: .metadata first, made durable, and then the rest. Before that, remove looks at the
// directory again while it holds its lock, because a save may have begun since.
func remove(ctx context.Context, root Folder, v *verdict, last *state) error {
	f := v.state.folder
	unlock, err := f.Lock(ctx)
	if errs.Is(err, errs.NotFound) {
		return nil // somebody else has removed it
	}
	if err != nil {
		return err
	}
	defer unlock()
	now, err := look(ctx, f, v.Name)
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	keep := func(why string) error {
		v.Removed, v.Reason = false, why
		return nil
	}
	busy, err := f.Writing(ctx)
	switch {
	case err != nil:
		return err
	case busy:
		return keep("a save is writing to it")
	case now.ID != v.state.ID || now.Complete != v.state.Complete || now.metadata != v.state.metadata:
		return keep("it changed during the prune")
	case !now.Complete && !now.empty && now.newer(last):
		return keep("a save may be running: its files are newer than the last complete checkpoint")
	case ctx.Err() != nil:
		return &errs.Error{Kind: errs.Cancelled, Op: "prune checkpoints", Name: root.Shown(""), Err: context.Cause(ctx)}
	}
	if now.metadata {
		if err := f.Remove(ctx, []string{MetadataName}); err != nil {
			return err
		}
		if err := f.Sync(ctx); err != nil {
			return err
		}
	}
	if !now.metadata && f.Atomic() {
		if err := markPruned(ctx, f, now); err != nil {
			return err
		}
	}
	hidden, err := root.Hide(ctx, v.Name)
	if err != nil {
		return err
	}
	if err := root.Discard(ctx, hidden); err != nil {
		return err
	}
	return root.Sync(ctx)
}

// markPruned removes the objects of a prefix that has no .metadata. A mark shows that it is no checkpoint any more, and
// is removed after all others.
func markPruned(ctx context.Context, f Folder, s *state) error {
	if err := f.Put(ctx, pruneMark, []byte("{}")); err != nil {
		return err
	}
	var gone []string
	for name, e := range s.entries {
		if e.Kind == KindFile && name != pruneMark {
			gone = append(gone, name)
		}
	}
	return f.Remove(ctx, gone)
}

// leftovers removes the directories that killed prunes have hidden.
func (p *Pruning) leftovers(ctx context.Context, root Folder) error {
	all, err := root.Entries(ctx)
	if err != nil {
		return err
	}
	for _, e := range all {
		if e.Kind != KindFolder || !isPruned(e.Name) || !hiddenStep(e.Name) {
			continue
		}
		p.All = append(p.All, Pruned{Name: e.Name, Path: root.Shown(e.Name), Removed: true, Reason: "a killed prune left it"})
		if !p.DryRun {
			if err := root.Discard(ctx, e.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// hiddenStep reports whether a hidden directory was named as a step.
func hiddenStep(name string) bool {
	name = strings.TrimSuffix(strings.TrimPrefix(name, "."), prunedSuffix)
	base, digits, ok := strings.Cut(name, ".")
	_, step := stepOf(base)
	return ok && step && idPattern.MatchString(digits)
}
