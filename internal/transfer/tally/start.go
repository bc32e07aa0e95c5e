// SPDX-License-Identifier: Apache-2.0

package tally

import "time"

// Names of the stages of transfers, as reports and profilers show them.
const (
	StagePlan        = "plan"
	StageReadCache   = "read_cache"
	StageReadDirect  = "read_direct"
	StageReadNetwork = "read_network"
	StageReadCuFile  = "read_cufile"
	StageVerify      = "verify"
	StagePack        = "pack"
	StageCopy        = "copy"
	StageWaitCopy    = "wait_copy"
	StageChecksum    = "checksum"
	StageWrite       = "write"
	StageSend        = "write_network"
)

// Tracer shows the stages of transfers in a profiler. Begin shows the beginning of an operation and returns a number,
// with which End shows its end. All methods are safe for concurrent use.
type Tracer interface {
	Begin(stage string) uint64
	End(number uint64)
}

// Start is the beginning of one operation of a stage, which Tally.Begin makes. The method of Tally that counts the
// operation ends it. The zero value is no operation.
type Start struct {
	at     time.Time
	tracer Tracer
	number uint64
}

// Trace makes tracer show the operations that begin from now on. A nil tracer shows none.
func (y *Tally) Trace(tracer Tracer) { y.tracer = tracer }

// Begin begins an operation of the named stage.
func (y *Tally) Begin(stage string) Start {
	s := Start{at: time.Now()}
	if y.tracer != nil {
		s.tracer, s.number = y.tracer, y.tracer.Begin(stage)
	}
	return s
}

// Ago returns the beginning of an operation that took d and has just ended. No profiler sees it.
func Ago(d time.Duration) Start { return Start{at: time.Now().Add(-d)} }

// Drop ends an operation that is not counted, because it failed or moved nothing. Drop returns the time since the
// beginning.
func (s Start) Drop() time.Duration { return s.end().Sub(s.at) }

// end shows the end of an operation, and returns the present time.
func (s Start) end() time.Time {
	now := time.Now()
	if s.tracer != nil {
		s.tracer.End(s.number)
	}
	return now
}
