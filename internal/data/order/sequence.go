// SPDX-License-Identifier: Apache-2.0

package order

import (
	"fmt"
	"math"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// MaxSamples is the most samples of a data set.
const MaxSamples = 1 << 56

// Shuffle says how an epoch's samples are mixed.
type Shuffle string

// The kinds of shuffles.
const (
	// Stored keeps the order of the data set.
	Stored Shuffle = "stored"
	// Full mixes all samples: each position can have any sample.
	Full Shuffle = "full"
	// Blocks mixes blocks of neighbouring samples, and then the samples of a few blocks. Reads stay near each other.
	Blocks Shuffle = "blocks"
)

// Shuffles returns all kinds of shuffles.
func Shuffles() []Shuffle { return []Shuffle{Stored, Full, Blocks} }

// Mixing says how a data set is shuffled. The zero value of Block and Window means DefaultBlock and DefaultWindow.
type Mixing struct {
	Shuffle Shuffle
	Block   int64 // samples in a block, for Blocks alone
	Window  int64 // number of blocks that are mixed with each other, for Blocks alone
}

// The sizes of Blocks if the caller names none: a block of 64 KiB samples has 16 MiB, and 64 blocks are mixed.
const (
	DefaultBlock  = 256
	DefaultWindow = 64
)

// Sequence is the order of one epoch: which sample is at which position. Several goroutines may use a Sequence.
type Sequence struct {
	n       int64
	mixing  Mixing
	all     Permutation // of the samples, or of the blocks
	seed    uint64
	epoch   uint64
	blocks  int64 // number of blocks
	shortAt int64 // position of the last block, which may be shorter, in the order of blocks
	short   int64 // samples that the last block lacks
}

// NewSequence returns the order of an epoch over n samples. A mixing that cannot be done is an error of kind Invalid.
func NewSequence(n int64, m Mixing, seed uint64, epoch int64) (*Sequence, error) {
	invalid := func(format string, args ...any) error {
		return errs.New(errs.Invalid, "order samples", "", fmt.Sprintf(format, args...))
	}
	if n < 1 || n > MaxSamples {
		return nil, invalid("there are %d samples, expected 1 to %d", n, int64(MaxSamples))
	}
	if epoch < 0 {
		return nil, invalid("epoch %d, expected 0 or more", epoch)
	}
	s := &Sequence{n: n, mixing: m, seed: seed, epoch: uint64(epoch)}
	switch m.Shuffle {
	case Stored, Full:
		if m.Block != 0 || m.Window != 0 {
			return nil, invalid("block %d and window %d are for the shuffle %q alone, not for %q", m.Block, m.Window,
				Blocks, m.Shuffle)
		}
		s.all = NewPermutation(n, key(seed, s.epoch))
	case Blocks:
		if m.Block < 0 || m.Window < 0 || m.Block > math.MaxInt32 || m.Window > math.MaxInt32 {
			return nil, invalid("block %d and window %d, expected numbers from 1 to %d, or 0 for %d and %d", m.Block, m.Window,
				math.MaxInt32, DefaultBlock, DefaultWindow)
		}
		s.mixing.Block, s.mixing.Window = orElse(m.Block, DefaultBlock), orElse(m.Window, DefaultWindow)
		s.blocks = (n-1)/s.mixing.Block + 1
		s.all = NewPermutation(s.blocks, key(seed, s.epoch))
		s.short = s.blocks*s.mixing.Block - n
		s.shortAt = s.all.Find(s.blocks - 1)
	default:
		return nil, invalid("shuffle %q, expected one of %q", m.Shuffle, Shuffles())
	}
	return s, nil
}

func orElse(v, otherwise int64) int64 {
	if v == 0 {
		return otherwise
	}
	return v
}

// Len returns the number of samples.
func (s *Sequence) Len() int64 { return s.n }

// At returns the number of the sample at position i, which must be from 0 to Len()-1.
func (s *Sequence) At(i int64) int64 {
	switch s.mixing.Shuffle {
	case Stored:
		return i
	case Full:
		return s.all.At(i)
	}
	block := s.block(i)
	window := block / s.mixing.Window
	start := s.start(window * s.mixing.Window)
	end := s.start(min((window+1)*s.mixing.Window, s.blocks))
	i = start + NewPermutation(end-start, key(s.seed, s.epoch, uint64(window)+1)).At(i-start)
	block = s.block(i)
	return s.all.At(block)*s.mixing.Block + i - s.start(block)
}

// block returns the block to which a position belongs before the samples of windows are mixed. The result is the
// block's position in the order of blocks.
func (s *Sequence) block(i int64) int64 {
	if i >= s.start(s.shortAt+1) {
		i += s.short
	}
	return i / s.mixing.Block
}

// start returns the position of a block's first sample before the samples of windows are mixed.
func (s *Sequence) start(block int64) int64 {
	at := block * s.mixing.Block
	if block > s.shortAt {
		at -= s.short
	}
	return at
}

// Distinct returns how many different blocks a batch of the given size has samples of, on average, for one full window.
// For the shuffle Full, the blocks are those of the default size. Many distinct blocks mean a batch that is mixed well.
func (m Mixing) Distinct(n, batch int64) float64 {
	block := orElse(m.Block, DefaultBlock)
	among := (n-1)/block + 1
	switch m.Shuffle {
	case Stored:
		return min(float64(batch-1)/float64(block)+1, float64(among))
	case Blocks:
		among = min(among, orElse(m.Window, DefaultWindow))
	}
	// The share of blocks without a sample in the batch: all samples are drawn from the other blocks.
	total, none := among*block, 1.0
	for i := range min(batch, total) {
		none *= max(0, float64(total-block-i)/float64(total-i))
	}
	return float64(among) * (1 - none)
}
