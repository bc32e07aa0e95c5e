// SPDX-License-Identifier: Apache-2.0

package order

import (
	"fmt"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Tail says what happens to the samples at the end of an epoch that do not fill a batch of every rank.
type Tail string

// The ways to end an epoch.
const (
	// Drop leaves the samples at the end out of this epoch. All batches are full, and all ranks have the same number of
	// batches.
	Drop Tail = "drop"
	// Pad fills the last batches with samples from the start of the epoch, so that some samples come twice.
	Pad Tail = "pad"
	// Short divides the samples at the end evenly among the ranks. The last batch of a rank can be smaller, or empty.
	Short Tail = "short"
)

// Tails returns all ways to end an epoch.
func Tails() []Tail { return []Tail{Drop, Pad, Short} }

// State is the place of a training run in its data. All ranks of a run have the same state after the same number of
// batches, so that any of them can be stored. State is the same for every number of ranks.
type State struct {
	Seed     uint64 `json:"seed"`
	Epoch    int64  `json:"epoch"`
	Position int64  `json:"position"` // samples of the epoch that all ranks together have read
}

// Split says which part of the batches one reader gets. Batches go to the ranks first: of each step, every rank has one
// batch. Then the steps go to the workers of a rank in turn.
type Split struct {
	Batch   int64 // samples in a batch of one rank
	Rank    int   // from 0
	World   int   // number of ranks; 0 means 1
	Worker  int   // from 0
	Workers int   // processes of one rank that share its batches; 0 means 1
	Tail    Tail  // "" means Drop
}

// check returns the split with its defaults, or an error of kind Invalid.
func (s Split) check() (Split, error) {
	invalid := func(format string, args ...any) (Split, error) {
		return Split{}, errs.New(errs.Invalid, "split samples", "", fmt.Sprintf(format, args...))
	}
	s.World, s.Workers = int(orElse(int64(s.World), 1)), int(orElse(int64(s.Workers), 1))
	if s.Tail == "" {
		s.Tail = Drop
	}
	const most = 1 << 24 // the samples of one step of the most ranks and the most samples fit into an int64 together
	switch {
	case s.Batch < 1 || s.Batch > most:
		return invalid("batch %d, expected 1 to %d", s.Batch, most)
	case s.World < 1 || s.World > 1<<20:
		return invalid("world %d, expected 1 to %d", s.World, 1<<20)
	case s.Rank < 0 || s.Rank >= s.World:
		return invalid("rank %d, expected 0 to %d", s.Rank, s.World-1)
	case s.Workers < 1 || s.Workers > 1<<20:
		return invalid("%d workers, expected 1 to %d", s.Workers, 1<<20)
	case s.Worker < 0 || s.Worker >= s.Workers:
		return invalid("worker %d, expected 0 to %d", s.Worker, s.Workers-1)
	case s.Tail != Drop && s.Tail != Pad && s.Tail != Short:
		return invalid("tail %q, expected one of %q", s.Tail, Tails())
	}
	return s, nil
}

// Cursor walks through one epoch of one reader. A Cursor is for one goroutine.
type Cursor struct {
	sequence *Sequence
	split    Split
	state    State // at the start of the epoch's remainder
	step     int64 // of all workers together, since state
}

// NewCursor returns a cursor over the remainder of the epoch that begins at from. Other seeds, epochs or shuffles give
// other sequences: the caller must pass the mixing and the number of samples with which the state was made.
func NewCursor(samples int64, m Mixing, s Split, from State) (*Cursor, error) {
	split, err := s.check()
	if err != nil {
		return nil, err
	}
	sequence, err := NewSequence(samples, m, from.Seed, from.Epoch)
	if err != nil {
		return nil, err
	}
	if from.Position < 0 || from.Position > samples {
		return nil, errs.New(errs.Invalid, "resume", "", fmt.Sprintf(
			"position %d of an epoch of %d samples, expected 0 to %d", from.Position, samples, samples))
	}
	return &Cursor{sequence: sequence, split: split, state: from, step: int64(split.Worker)}, nil
}

// Batches returns how many batches one reader gets in a whole epoch.
func Batches(samples int64, m Mixing, s Split) (int64, error) {
	c, err := NewCursor(samples, m, s, State{})
	if err != nil {
		return 0, err
	}
	return c.Batches(), nil
}

// Batches returns how many batches this reader gets from the cursor's start to the end of the epoch.
func (c *Cursor) Batches() int64 {
	steps, workers := c.steps(), int64(c.split.Workers)
	return (steps - int64(c.split.Worker) + workers - 1) / workers
}

// steps returns the number of steps of the whole remainder: in each, every rank has one batch.
func (c *Cursor) steps() int64 {
	left, wide := c.sequence.n-c.state.Position, c.wide()
	if c.split.Tail == Drop {
		return left / wide
	}
	return (left + wide - 1) / wide
}

// wide returns the number of samples in one step of all ranks.
func (c *Cursor) wide() int64 { return c.split.Batch * int64(c.split.World) }

// Next appends the numbers of the samples of the next batch to dst, and returns false at the end of the epoch.
func (c *Cursor) Next(dst []int64) ([]int64, bool) {
	if c.Ended() {
		return dst, false
	}
	first := c.state.Position + c.step*c.wide()
	from, to := c.share(first)
	for i := from; i < to; i++ {
		dst = append(dst, c.sequence.At(i%c.sequence.n))
	}
	c.step += int64(c.split.Workers)
	return dst, true
}

// share returns the positions of this rank's batch in the step that begins at position first.
func (c *Cursor) share(first int64) (from, to int64) {
	rank, world := int64(c.split.Rank), int64(c.split.World)
	if left := c.sequence.n - first; left < c.wide() && c.split.Tail == Short {
		each, rest := left/world, left%world // left*rank would not fit
		return first + each*rank + rest*rank/world, first + each*(rank+1) + rest*(rank+1)/world
	}
	return first + rank*c.split.Batch, first + (rank+1)*c.split.Batch
}

// Ended reports whether this reader has all its batches of the epoch. Other workers can still have one.
func (c *Cursor) Ended() bool { return c.step >= c.steps() }

// State returns the state with which this reader goes on after the batches that Next returned. The workers of a rank
// have equal states after equal numbers of batches. If all workers are at the end of the epoch then, the state is the
// start of the next epoch. A worker that has ended keeps its place in the epoch while another has a batch left.
func (c *Cursor) State() State {
	done := c.step - int64(c.split.Worker)
	if done >= c.steps() {
		return State{Seed: c.state.Seed, Epoch: c.state.Epoch + 1}
	}
	return State{Seed: c.state.Seed, Epoch: c.state.Epoch, Position: c.state.Position + done*c.wide()}
}
